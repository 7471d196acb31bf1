"""Texts that a configuration holds: the paths of folders, and the name of a W&B project."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from rectifiers.runtime.schema import Words

FORBIDDEN_IN_PROJECTS = "/\\#?%:"  # by W&B


def _usable_project(name: str) -> str:
    if not name.isprintable() or not 0 < len(name) <= 128 or set(name) & set(FORBIDDEN_IN_PROJECTS):
        raise ValueError("not a name that W&B takes")
    return name


def _not_empty(path: Any) -> Any:
    if path == "":
        raise ValueError("empty")
    return path


Folder = Annotated[
    Path, BeforeValidator(_not_empty), Words("a folder's path, quoted where it is a number")
]
Project = Annotated[
    str,
    AfterValidator(_usable_project),
    Words(f"1 to 128 characters without {' '.join(FORBIDDEN_IN_PROJECTS)}"),
]
