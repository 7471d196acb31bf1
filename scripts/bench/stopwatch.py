"""CPU time within functions that are patched to be timed while something runs."""

import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock


class Stopwatch:
    """CPU seconds by part; where functions of several parts call each other, the outermost call's part has them."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._within = False

    def timed(self, part: str, place: Any, name: str) -> AbstractContextManager[Any]:
        """Return a context in which the function `name` of `place` counts for `part`."""
        original: Callable[..., Any] = getattr(place, name)

        def within(*arguments: Any, **keywords: Any) -> Any:
            if self._within:
                return original(*arguments, **keywords)
            self._within, started = True, time.process_time()
            try:
                return original(*arguments, **keywords)
            finally:
                self._within = False
                self.seconds[part] += time.process_time() - started

        return mock.patch.object(place, name, within)
