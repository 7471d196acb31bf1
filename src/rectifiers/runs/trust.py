"""What a file may name: a configuration or an override that is read from a run, a sweep or an entry
of the benchmark is data. It calls no foreign code and refers to nothing.

Its functions are those that `conf/` names, or of modules that the user allows on the command line
by `trust=[my_package]`. What the user types as `_target_` is the user's own word, and is not judged
here. See SECURITY.md."""

import functools
import pkgutil
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from rectifiers.runs.sections import options
from rectifiers.runtime.console import printable
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CONF

DOTTED_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
# The groups whose options name functions.
FUNCTIONS = ("activation", "init", "model", "preprocess", "data", "evaluation", "callbacks")


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
    """Refuse overrides, read from `place`, that Hydra would follow out of the configuration.

    Raises:
        InputError: where one is of `hydra`, removes or moves anything, chooses what is no option of
            its group, or has a `$`: Hydra reads `$\\{oc.env:X\\}` as a reference, too.
    """
    for each in overrides:
        key, equals, value = each.partition("=")
        parts = key.removeprefix("+").split(".")
        is_setting = len(parts) > 1  # the one thing that a plus may add
        if (
            not equals
            or each != printable(each)
            or not all(part.isidentifier() for part in parts)
            or parts[0] == "hydra"
            or (key.startswith("+") and not is_setting)
        ):
            raise InputError(
                f"{place}: {printable(each)} is not a key of a run, and is not used; remove it"
            )
        if "$" in value:
            raise InputError(
                f"{place}: {printable(each)} has a reference; write the value that it stands for"
            )
        if not is_setting and (CONF / key).is_dir():
            chosen = {name.strip(" '\"") for name in value.strip("[]").split(",")}
            if not chosen <= {"null", *options(key).split(", ")}:
                raise InputError(
                    f"{place}: {printable(each)} is no option of conf/{key}; remove it"
                )


def check_targets(config: Any, place: Path, trust: Collection[str]) -> None:
    """Refuse functions that `conf/` does not name for their group and the user does not trust;
    nothing of theirs is imported.

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
            f"{place}: {key}={named[key]} is no function that conf/{_group(key) or ''} names, "
            "and is not used; if you know that code and trust it, add "
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
    if (_group(key), target) in _functions_of_conf():
        return None
    if module == "torch.nn" and _group(key) == "activation" and _is_torch_module(name):
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


def _is_torch_module(name: str) -> bool:
    from torch import nn

    found = getattr(nn, name, None)
    return isinstance(found, type) and issubclass(found, nn.Module)


def _group(key: str) -> str | None:
    """Return the group that a dotted key belongs to: `evaluation` of `evaluation.center._target_`,
    and `activation` of `experiment.activation._target_`."""
    return next((part for part in key.split(".") if part in FUNCTIONS), None)


@functools.cache
def _functions_of_conf() -> frozenset[tuple[str | None, str]]:
    """Return every function that `conf/` names, with the group that it is named for."""
    found = set()
    for path in CONF.rglob("*.yaml"):
        text = path.read_text()
        if "_target_:" not in text:
            continue
        for key, value in _leaves(yaml.safe_load(text), path.relative_to(CONF).parts[0]):
            if key.endswith("._target_"):
                found.add((_group(key), value))
    return frozenset(found)
