"""How bad input is refused: by an `InputError` of one line."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rectifiers.runtime.errors import InputError


@contextmanager
def refused(match: str | re.Pattern[str]) -> Iterator[pytest.ExceptionInfo[InputError]]:
    """Expect an `InputError` that says `match`, in one line."""
    with pytest.raises(InputError, match=match) as raised:
        yield raised
    message = str(raised.value)
    assert message.splitlines() == [message]
