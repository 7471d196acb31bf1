"""What the notebooks of this folder share: the project's own code, read from where it stands."""

import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rectifiers.runtime.files import CONF


class Source:
    """The source of a function or class, or a file of the configuration, as a notebook shows it.

    after, before: words of the first line to show and of the first line not to show; by default
    all is shown. A word that the source does not have is an error."""

    def __init__(self, what: Callable[..., Any] | str, after: str = "", before: str = "") -> None:
        if isinstance(what, str):
            self.language, self.place = "yaml", f"conf/{what}"
            lines = (CONF / what).read_text().splitlines()
        else:
            path = Path(inspect.getsourcefile(what) or "")
            place = "/".join(path.parts[path.parts.index("rectifiers") :])
            self.language, self.place = "python", f"src/{place}"
            lines = inspect.getsource(what).splitlines()
        start = next(i for i, line in enumerate(lines) if after in line)
        stop = len(lines)
        if before:
            stop = next(i for i, line in enumerate(lines) if i > start and before in line)
        self.code = textwrap.dedent("\n".join(lines[start:stop]))

    def _repr_markdown_(self) -> str:
        return f"`{self.place}`\n\n```{self.language}\n{self.code}\n```"
