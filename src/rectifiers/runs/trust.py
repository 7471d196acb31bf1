"""What the configuration of an untrusted record or checkpoint may name.

It may name functions that `conf/` names for their group, classes of torch, and functions of the
modules in `trust=[my_package]`; no other code is imported. See SECURITY.md."""

import functools
import importlib
import json
import pkgutil
from collections.abc import Collection, Iterator
from pathlib import Path

from rectifiers.runs.config import PLACES, RunConfig
from rectifiers.runs.identity import without
from rectifiers.runs.sections import DOTTED_NAME
from rectifiers.runtime.console import printable
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CONF, load_yaml
from rectifiers.runtime.own_modules import FUNCTIONS

# The modules of torch, and their base classes, whose subclasses any record may name for a group.
OF_TORCH = {
    "activation": ("torch.nn", "Module"),
    "optim": ("torch.optim", "Optimizer"),
    "scheduler": ("torch.optim.lr_scheduler", "LRScheduler"),
}
# What builds no network: where files are, and what looks on or steps in while it trains.
NOT_KEPT = (*PLACES, "callbacks")


def kept_text(config: RunConfig) -> str:
    """Return the part of a configuration that checkpoints keep, as JSON."""
    return json.dumps(without(config.as_dict(), NOT_KEPT))


def config_of_text(text: str, place: Path, trust: Collection[str] = ()) -> RunConfig:
    """Return the configuration that `kept_text` wrote, with the default folders.

    place: the file that holds it. trust: modules whose functions may be used.

    Raises:
        ValueError: where it is no configuration.
        InputError: where a key is not usable, or names a function that is not trusted.
    """
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError("its configuration is not a mapping")
    check_plain(values, place)
    check_targets(values, place, trust)
    places = {"rerun": False, "runs_dir": "runs", "cache_dir": ".cache"}
    try:
        return RunConfig.of({**without(values, NOT_KEPT), **places})
    except InputError as error:
        raise InputError(f"{place}: {printable(str(error))}") from error


def check_plain(config: object, place: Path) -> None:
    """Refuse references, `${...}`: a record holds values, and one could read a secret."""
    for key, value in _leaves(config):
        if isinstance(value, str) and "${" in value:
            text = printable(f"{key}={value}")
            raise InputError(f"{place}: {text} is a reference, and not a value")


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
            f"{place}: {printable(key)}={target} is no function that conf/{_group(key) or ''} "
            f"names, and is not used; if you know that code and trust it, add trust=[{modules}]"
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
    if not isinstance(home, str):  # of an attribute of some object, which is no module's function
        return module
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
