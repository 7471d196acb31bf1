"""What a file may name: a configuration or an override that is read from a run or an entry of the
benchmark is data. It calls no foreign code and refers to nothing.

Its functions are those that `conf/` names, or of modules that the user allows on the command line
by `trust=[my_package]`. What the user types as `_target_` is the user's own word, and is not judged
here. See SECURITY.md."""

import functools
import importlib
import pkgutil
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from rectifiers.runs.sections import options
from rectifiers.runtime.console import printable
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CONF, load_yaml

DOTTED_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
# The groups whose options name functions.
FUNCTIONS = (
    *("activation", "init", "model", "preprocess", "data", "optim", "scheduler", "evaluation"),
    *("callbacks", "logger"),
)
# The modules of torch, and their base classes, whose subclasses any file may name for a group.
OF_TORCH = {
    "activation": ("torch.nn", "Module"),
    "optim": ("torch.optim", "Optimizer"),
    "scheduler": ("torch.optim.lr_scheduler", "LRScheduler"),
}


def split_trust(arguments: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Return (the modules of `trust=[<module>,...]`, the other arguments)."""
    modules: list[str] = []
    rest = []
    for argument in arguments:
        if argument.startswith("trust="):
            names = argument.removeprefix("trust=").strip("[]").split(",")
            modules += filter(None, map(str.strip, names))
        else:
            rest.append(argument)
    return tuple(modules), rest


def check_plain(config: object, place: Path) -> None:
    """Refuse references, `${...}`, in a configuration that was resolved when it was written: one
    could read a secret."""
    for key, value in _leaves(config):
        if isinstance(value, str) and "${" in value:
            text = printable(f"{key}={value}")
            raise InputError(f"{place}: {text} is a reference, and not a value")


def check_overrides(overrides: Sequence[str], place: Path) -> None:
    """Refuse overrides, read from `place`, that Hydra would follow out of the configuration: of
    `hydra`, that remove or move anything, choose no option of a group, or have a `$` (Hydra reads
    `$\\{oc.env:X\\}` as a reference, too)."""
    for override in overrides:
        key, equals, value = override.partition("=")
        parts = key.removeprefix("+").split(".")
        is_setting = len(parts) > 1  # the one thing that a plus may add
        is_key = all(part.isidentifier() for part in parts) and parts[0] != "hydra"
        is_key = is_key and (is_setting or not key.startswith("+"))
        is_usable = equals and is_key and "$" not in value and override == printable(override)
        if is_usable and not is_setting and (CONF / key).is_dir():
            chosen = {name.strip(" '\"") for name in value.strip("[]").split(",")}
            is_usable = chosen <= {"null", *options(key).split(", ")}
        if not is_usable:
            raise InputError(
                f"{place}: {printable(override)} is no value of a key, or option of a group, of a "
                "run; remove it"
            )


def check_targets(config: object, place: Path, trust: Collection[str]) -> None:
    """Refuse functions that `conf/` does not name for their group and the user does not trust;
    nothing of theirs is imported. The message has the `trust=[...]` that allows all of them."""
    untrusted = {}
    for key, target in _leaves(config):
        if key.rpartition(".")[2] != "_target_":
            continue
        if not DOTTED_NAME.fullmatch(str(target)):
            text = printable(f"{key}={target}")
            raise InputError(f"{place}: {text} is not the dotted name of a function")
        if module := _untrusted_module(_group(key), str(target), trust):
            untrusted[key] = (target, module)
    if untrusted:
        key, (target, _) = next(iter(untrusted.items()))
        modules = ",".join(sorted({module for _, module in untrusted.values()}))
        raise InputError(
            f"{place}: {key}={target} is no function that conf/{_group(key) or ''} names, and is "
            f"not used; if you know that code and trust it, add trust=[{modules}]"
        )


def _leaves(node: object, at: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(node, dict | list | tuple):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from _leaves(value, f"{at}.{key}" if at else str(key))
    else:
        yield at, node


def _untrusted_module(group: str | None, target: str, trust: Collection[str]) -> str | None:
    """Return the module to trust before `target` may be used, or None where it may be used as it
    is."""
    module = target.rpartition(".")[0]
    if (group, target) in _functions_of_conf() or _is_of_torch(group, target):
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


def _is_of_torch(group: str | None, target: str) -> bool:
    """Return whether a target is a module of `torch.nn` for an activation, or a class that
    `torch.optim` defines for an optimiser or a scheduler."""
    module, _, name = target.rpartition(".")
    place, base = OF_TORCH.get(group or "", ("", ""))
    if module != place:
        return False
    package = importlib.import_module(place)
    kind = getattr(package, name, None)
    return isinstance(kind, type) and issubclass(kind, getattr(package, base))


def _group(key: str) -> str | None:
    """Return the group that a dotted key belongs to: `evaluation` of `evaluation.center._target_`,
    and `activation` of `experiment.activation._target_`."""
    return next((part for part in key.split(".") if part in FUNCTIONS), None)


@functools.cache
def _functions_of_conf() -> frozenset[tuple[str | None, str]]:
    """Return every function that `conf/` names, with the group that it is named for."""
    functions = set()
    for path in CONF.rglob("*.yaml"):
        text = path.read_text()
        if "_target_:" not in text:
            continue
        for key, value in _leaves(load_yaml(text), path.relative_to(CONF).parts[0]):
            if key.endswith("._target_"):
                functions.add((_group(key), str(value)))
    return frozenset(functions)
