"""What a folder may name: a configuration that is read from a run or a sweep is data, and calls no
foreign code.

Its functions are this package's own, or of modules that the user allows on the command line by
`trust=[my_package]`. What the user types as `_target_` is the user's own word, and is not judged
here. See SECURITY.md."""

import functools
import importlib
import pkgutil
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from rectifiers.runtime.console import printable
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CONF

DOTTED_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
CALL = re.compile(r"\$\{.*:", re.DOTALL)
TARGET = re.compile(r"_target_: *(rectifiers(?:\.\w+)+)")


def split_trust(arguments: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Return (the modules of `trust=[<module>,...]`, the other arguments)."""
    given = [each.partition("=")[2] for each in arguments if each.startswith("trust=")]
    names = (name.strip() for text in given for name in text.strip("[]").split(","))
    return tuple(filter(None, names)), [each for each in arguments if not each.startswith("trust=")]


def check_plain(config: Any, place: Path) -> None:
    """Refuse references in a configuration that was resolved when it was written: one could read a
    secret.

    Raises:
        InputError: where a value holds `${`.
    """
    for key, value in _leaves(config):
        if isinstance(value, str) and "${" in value:
            raise InputError(
                f"{place}: {printable(f'{key}={value}')} is a reference, which no written "
                "configuration has"
            )


def check_overrides(overrides: Sequence[str], place: Path) -> None:
    """Refuse overrides of a sweep that reach beyond the configuration: Hydra's own keys can start
    programs.

    Raises:
        InputError: where one is of `hydra`, adds or removes a key, or names an option outside of
        its group.
    """
    for each in overrides:
        key, equals, value = each.partition("=")
        parts = re.split("[./]", key)
        if not equals or not all(part.isidentifier() for part in parts) or parts[0] == "hydra":
            raise InputError(
                f"{place}: {printable(each)} is not a key of a run, and is not used; remove it"
            )
        if CALL.search(value):
            raise InputError(
                f"{place}: {printable(each)} reads more than the configuration; remove it"
            )
        if (CONF / parts[0]).is_dir() and "." not in key and ".." in value:
            raise InputError(f"{place}: {printable(each)} is no option of conf/{key}; remove it")


def check_references(config: Any, place: Path) -> None:
    """Refuse references that call something, such as `${oc.env:SECRET}`, in a configuration that is
    not resolved yet.

    Raises:
        InputError: where there is one.
    """
    for key, value in _leaves(config):
        if isinstance(value, str) and CALL.search(value):
            raise InputError(
                f"{place}: {printable(f'{key}={value}')} reads more than the configuration; "
                "remove it"
            )


def check_targets(config: Any, place: Path, trust: Collection[str]) -> None:
    """Refuse functions that this package does not define and the user does not trust; nothing of
    theirs is imported.

    Raises:
        InputError: where there is one; the message has the `trust=[...]` that allows all of them.
    """
    named = {
        key: str(value) for key, value in _leaves(config) if key.rpartition(".")[2] == "_target_"
    }
    unusable = next((each for each in named.items() if not DOTTED_NAME.fullmatch(each[1])), None)
    if unusable:
        raise InputError(
            f"{place}: {printable('='.join(unusable))} is not the dotted name of a function"
        )
    foreign = {
        key: home for key, target in named.items() if (home := _foreign_module(key, target, trust))
    }
    if foreign:
        key = next(iter(foreign))
        raise InputError(
            f"{place}: {key}={named[key]} is no function of this package, and code that a "
            "folder names is not run; if "
            "you know that code and trust it, add "
            f"trust=[{','.join(sorted(set(foreign.values())))}]"
        )


def _leaves(node: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict | list | tuple):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from _leaves(value, f"{at}.{key}" if at else str(key))
    else:
        yield at, node


def _foreign_module(key: str, target: str, trust: Collection[str]) -> str | None:
    """Return the module to trust before `target` may be used, or None where it may be used as it
    is."""
    module, _, name = target.rpartition(".")
    if target in _targets_of_conf():
        return None
    if module in _modules_of_conf():  # its own functions, and not what it imports
        found = None if name.startswith("_") else getattr(_imported(module), name, None)
        return (
            None if callable(found) and found.__module__ == _imported(module).__name__ else module
        )
    if (
        module == "torch.nn"
        and f".{key}".endswith(".activation._target_")
        and _is_torch_module(name)
    ):
        return None
    if not _is_within(module, trust):
        return module
    try:
        home = pkgutil.resolve_name(target).__module__
    except (ImportError, AttributeError, ValueError):
        return None  # a name that does not exist is refused where it is used
    return None if _is_within(home, trust) else home


def _is_within(module: str, packages: Collection[str]) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


def _imported(module: str) -> Any:
    package, _, name = module.rpartition(".")
    return getattr(importlib.import_module(package), name, None) or importlib.import_module(module)


def _is_torch_module(name: str) -> bool:
    from torch import nn

    found = getattr(nn, name, None)
    return isinstance(found, type) and issubclass(found, nn.Module)


@functools.cache
def _targets_of_conf() -> frozenset[str]:
    return frozenset(
        name for path in CONF.rglob("*.yaml") for name in TARGET.findall(path.read_text())
    )


@functools.cache
def _modules_of_conf() -> frozenset[str]:
    return frozenset(target.rpartition(".")[0] for target in _targets_of_conf())
