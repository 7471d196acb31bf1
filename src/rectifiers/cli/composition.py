"""From overrides to the typed configuration that all else takes, by Hydra."""

import copy
import functools
import math
import os
import re
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.conf import HydraConf
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from rectifiers.cli.hints import EMPTY, OPTIONAL, explain
from rectifiers.runs.config import PATHS, RunConfig
from rectifiers.runs.options import options_text
from rectifiers.runs.sections import DOTTED_NAME, KEYS_OF_TRAINER, Model
from rectifiers.runtime.console import missing_extra
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CONF, load_yaml
from rectifiers.runtime.schema import JsonObject, keys, unknown_key

Choices = dict[str, str | None]  # the option that was chosen of each group
# The groups of which an option may be a function's dotted name, with the keys that each option of
# the group has; those of data are the keys of data=folder.
BY_NAME: dict[str, JsonObject] = {
    "activation": {},
    "init": {},
    "preprocess": {"scale": 1.0},
    "model": {"width": 1.0, "norm": "none", "dropout": 0.0},
    "data": {},
}
# The overrides by which the runs of a list differ most often; numbers alone, for all else is
# checked as it is composed. Not 010, which is 8 in YAML.
JOB_OVERRIDE = re.compile(r"(seed|optim\.lr)=(?![+-]?0\d)[0-9.e+-]+")
# What Hydra raises of a command line, or of a file in conf/ that somebody wrote.
REFUSALS = (HydraException, OmegaConfBaseException, YAMLError)
WITHOUT_LOCAL = "local=null"  # an override: this machine's own defaults are not read


def _over_root(numbers: Sequence[float], width: float) -> ListConfig:
    is_usable = isinstance(width, int | float) and width > 0  # else it is refused by its own key
    root = math.sqrt(width) if is_usable else 1.0
    return OmegaConf.create([number / root for number in numbers])


OmegaConf.register_new_resolver("over_root", _over_root)  # conf/small_fc.yaml uses it
# conf/train.yaml prints it by --help
OmegaConf.register_new_resolver("option_groups", options_text)
OmegaConf.register_new_resolver("minus", lambda a, b: a - b)  # conf/scheduler/cosine.yaml uses it


def resolve(config: DictConfig) -> RunConfig:
    """Return a configuration with its references followed, checked and frozen."""
    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        assert isinstance(plain, dict)
        _check_settings_of_rows(config)
        plain.pop("claim", None)  # it is about runs, and no part of one
        _check_packages(plain)
        return RunConfig.of({str(key): value for key, value in plain.items()})
    except OmegaConfBaseException as error:
        raise InputError(
            f"the configuration cannot be resolved: {error}", status=2, on_all_ranks=True
        ) from error
    except InputError as error:
        error.status, error.on_all_ranks = 2, True
        raise


def _check_packages(plain: Collection[Any]) -> None:
    """Refuse the keys of a complete setting that its file puts below the name of its group."""
    for group in ("debug", "experiment", "hparams_search", "local"):
        if group in plain:
            raise InputError(
                f"{group} has no keys of its own; begin its file with the line "
                "`# @package _global_`"
            )


def _check_settings_of_rows(config: DictConfig) -> None:
    """Refuse a setting of a network of rows to which nothing in the configuration refers: it would
    start another run with the same numbers."""
    model = config.get("model")
    if not isinstance(model, DictConfig) or model.get("rows") is None:
        return
    text = OmegaConf.to_yaml(config)
    for key in sorted(map(str, model)):
        is_read = key in keys(Model) or re.search(rf"\$\{{model\.{re.escape(key)}\b", text)
        if not is_read:
            raise InputError(unknown_key(f"model.{key}", keys(Model)))


def compose_with_choices(overrides: Sequence[str]) -> tuple[DictConfig, Choices]:
    """Return the configuration that train.py would have, unresolved, and the options of the groups
    that made it."""
    try:
        config = _compose(overrides)
    except REFUSALS as error:
        raise refusal(error) from error
    choices = choices_of(config.hydra)
    with open_dict(config):
        del config["hydra"]
    return config, choices


def composed(overrides: Sequence[str]) -> RunConfig:
    """Return the configuration that train.py would have."""
    return resolve(compose_with_choices(overrides)[0])


@functools.cache
def compose_job(overrides: tuple[str, ...]) -> tuple[RunConfig, Choices]:
    """Return (configuration, choices) that `train.py <overrides>` would have without conf/local:
    claims and the benchmark are the same on every machine.

    Composing takes 0.1 s, and many runs differ in the seed and the rate alone: what they share is
    composed once.
    """
    numbers = list(filter(JOB_OVERRIDE.fullmatch, overrides))
    others = tuple(o for o in overrides if o not in numbers)
    shared, choices = _compose_shared((*others, WITHOUT_LOCAL))
    config = copy.deepcopy(shared)
    config.merge_with_dotlist(numbers)
    return resolve(config), choices


_compose_shared = functools.cache(compose_with_choices)


def _compose(overrides: Sequence[str]) -> DictConfig:
    within_train = GlobalHydra.instance().is_initialized()
    with nullcontext() if within_train else initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("train", expand_names(overrides), return_hydra_config=True)


def expand_names(overrides: Sequence[str]) -> list[str]:
    """Return overrides in which a function may be named without a file in conf/.

    `activation=my_package.my_function`, or `activation._target_=my_package.my_function` alone,
    chooses an option that is stored here. Settings of a function that is named on the command line,
    and arguments of Lightning's Trainer that conf/ leaves out, get the plus that Hydra asks for.
    Of groups that may be left out, null becomes the empty list, which Hydra takes. With
    RECTIFIERS_LOCAL=null in the environment, this machine's own defaults are left out."""
    if os.environ.get("RECTIFIERS_LOCAL") == "null":
        overrides = [*overrides, WITHOUT_LOCAL]
    if not (CONF / "local").is_dir():  # Hydra refuses an override of a group that is not there
        overrides = [typed for typed in overrides if typed != WITHOUT_LOCAL]
    chosen = {override.partition("=")[0] for override in overrides if "=" in override}
    named: set[str] = set()  # the groups and sections of which a function is named
    renamed = []
    for override in overrides:
        key, equals, value = override.partition("=")
        place, _, last = key.lstrip("+").rpartition(".")
        if last == "_target_":
            named.add(place)
            if place in BY_NAME and place not in chosen:
                key = place

        if equals and key in OPTIONAL:
            value = _without_null(value)
        if key in BY_NAME:
            for name in filter(DOTTED_NAME.fullmatch, value.split(",")):
                _store_option(key, name)
                named.add(key)
        renamed.append(f"{key}{equals}{value}")

    return [_with_plus(override, named) for override in renamed]


def _with_plus(override: str, named: Collection[str]) -> str:
    """Return an override with the plus that Hydra asks for before a key that conf/ does not have.

    named: the groups and sections of which a function is named, whose settings conf/ lacks."""
    bare = override.lstrip("+")
    place, _, last = bare.partition("=")[0].rpartition(".")
    is_setting = place in named and last.isidentifier() and last != "_target_"
    is_of_trainer = place == "trainer" and last not in KEYS_OF_TRAINER
    return f"++{bare}" if is_setting or is_of_trainer else override


def _without_null(value: str) -> str:
    """Return the options of a group that may be left out, without null: `[]` for `null`, and `[a]`
    for `[a,null]`; several values of a sweep stay several."""
    if value.startswith("["):
        names = [name for name in value.strip("[]").split(",") if name.strip() != "null"]
        return f"[{','.join(names)}]"
    parts = value.split(",")
    return ",".join("[]" if part.strip() in EMPTY else part for part in parts)


def _store_option(group: str, name: str) -> None:
    """Let a function be chosen as an option of a group by its dotted name."""
    settings = dict(BY_NAME[group])
    if group == "data":
        settings = load_yaml((CONF / "data" / "folder.yaml").read_text())["data"]
        del settings["root"]  # which that function alone reads
    node = {**settings, "_target_": name}
    ConfigStore.instance().store(group=group, name=name, node=node)


def refusal(error: Exception) -> InputError:
    """Return what Hydra refused as one line, with what was probably meant."""
    return InputError(missing_extra(error) or explain(error), status=2, on_all_ranks=True)


def choices_of(hydra: HydraConf) -> Choices:
    """Return the options that Hydra's own part of a configuration says were chosen."""
    return {
        group: None if option == "[]" else option
        for group, option in hydra.runtime.choices.items()
        if "hydra" not in group and group != "local"
    }


def override(key: str, value: str) -> str:
    """Return an override as Hydra reads it; a path is quoted, whatever is in it."""
    # Hydra halves backslashes before a quote and at the end, and takes all others as they are
    quoted = re.sub(r"(\\*)('|\Z)", lambda m: 2 * m[1] + ("\\'" if m[2] else ""), value)
    return f"{key}='{quoted}'" if key in PATHS else f"{key}={value}"
