"""Modules of the user's own, in the folder that a program is called from.

That folder may be somebody else's, so it is not on `sys.path`: libraries try to import what need
not be installed, such as `dill` or `onnx`, and would run a file of that name."""

import inspect
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType, ModuleType

# The groups whose options name functions.
FUNCTIONS = (
    *("activation", "init", "model", "preprocess", "data", "optim", "scheduler", "evaluation"),
    *("callbacks", "logger"),
)
KEYS = (*FUNCTIONS, "_target_", "trust")  # the last parts of keys whose values name any
NAME = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"


class OwnModules(MetaPathFinder):
    """Finds the modules `names`, and what these import that lies beside them, where nothing
    installed has their name.

    names: by module of the top level, the folders that it may lie in."""

    def __init__(self) -> None:
        self.names: dict[str, list[str]] = {}
        self._found: dict[str, list[str]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is not None:  # within a package, which says where it lies
            return None

        frame = inspect.currentframe()
        caller = _importer(frame.f_back if frame else None)
        folders = self.names.get(fullname) or self._found.get(caller, [])

        spec = PathFinder.find_spec(fullname, folders)
        if spec is not None:
            self._found[fullname] = folders
        return spec


def _importer(frame: FrameType | None) -> str:
    """Return the top-level name of the module whose import statement runs in `frame`."""
    top = "importlib"
    while frame is not None and top in ("importlib", "_frozen_importlib"):
        name = str(frame.f_globals.get("__name__", ""))
        top, frame = name.partition(".")[0], frame.f_back
    return top


_finder = OwnModules()


def find_modules(targets: Iterable[str], folder: str | os.PathLike[str]) -> None:
    """Let modules of these dotted names be found in a folder, too, from now on."""
    if _finder not in sys.meta_path:
        sys.meta_path.append(_finder)
    place = os.path.abspath(folder)
    for target in targets:
        folders = _finder.names.setdefault(target.partition(".")[0], [])
        if place not in folders:
            folders.append(place)


def named_by(arguments: Iterable[str]) -> list[str]:
    """Return the dotted names of functions and modules in a command line of key=value. A name
    without a dot is an option's, such as logger=wandb, but for the modules of `trust`."""
    names: list[str] = []
    for argument in arguments:
        key, _, value = argument.partition("=")
        last = key.lstrip("+~").rpartition(".")[2]
        pattern = NAME if last in KEYS else rf"_target_\s*:\s*['\"]?({NAME})"
        names += [name for name in re.findall(pattern, value) if "." in name or last == "trust"]
    return names


@contextmanager
def modules_of_command(arguments: Iterable[str]) -> Iterator[None]:
    """Let what a command line names be found in the current folder, within the body."""
    before = {name: list(folders) for name, folders in _finder.names.items()}
    with suppress(FileNotFoundError):  # the folder is gone
        find_modules(named_by(arguments), os.getcwd())
    try:
        yield
    finally:
        _finder.names = before
