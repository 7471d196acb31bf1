"""From a record back to the command that makes it: what was chosen, and what departs from the present defaults."""

import functools
import json
import re
import shlex
from collections.abc import Sequence
from typing import Any

from rectifiers.results.comparison import MISSING, differences, flat
from rectifiers.runs.identity import canonical_json, science_of, without
from rectifiers.runtime.paths import CONF

NO_CHOICE_OF_SCIENCE = ("logger", "evaluation", "experiment", "sweep", "debug")
OF_THE_SEED = "${seed}"  # what a configuration says where the images are split by the run's seed
BY_CONTENT = "data.content"  # filled in from what lies at data.root, which no record tells
PLAIN = re.compile(r"[\w./+-]+")


def command(record: dict[str, Any]) -> str | None:
    """Return a line for the shell that makes the run of `record`, or None where `conf/` no longer can.

    It needs no other run: drop epochs that were taken from a sibling are written out. Where data lie in a folder, its
    place is for the reader to put in.
    """
    if "members" in record:
        runs = ",".join(member["run"] for member in record["members"])
        return f"python scripts/evaluate.py run=[{runs}] evaluation={_listed(list(record['protocols']))}"
    wanted = without(record["science"], ["seed", BY_CONTENT])
    if wanted["data"].get("split_seed") == record["science"]["seed"]:
        wanted["data"]["split_seed"] = OF_THE_SEED
    given = _overrides(canonical_json([record["choices"], wanted]))
    if given is None:
        return None
    overrides = [*given, f"seed={record['science']['seed']}"]
    if record["protocols"]:
        overrides.append(f"evaluation={_listed(list(record['protocols']))}")
    return " ".join(["python train.py", *map(shlex.quote, overrides), *_root(given)])


def _listed(names: Sequence[str]) -> str:
    every = sorted(_composed(("evaluation=calibration",))[0]["evaluation"].keys() - {"keep_scores"})
    if sorted(names) == every:
        return "calibration"
    return names[0] if len(names) == 1 else f"[{','.join(sorted(names))}]"


def _root(overrides: Sequence[str]) -> list[str]:
    data = _composed(tuple(overrides))[0]["data"]
    return ["data.root=FOLDER"] if "root" in data and data["root"] is None and "download" not in data else []


@functools.cache
def _overrides(key: str) -> tuple[str, ...] | None:
    """What to give for these choices and this science (both as JSON), or None."""
    choices, wanted = json.loads(key)
    given = [f"experiment={choices['experiment']}"] if choices.get("experiment") else []
    given += [f"debug={choices['debug']}"] if choices.get("debug") else []
    present = _composed(tuple(given))[1]
    for group, option in choices.items():
        if group not in NO_CHOICE_OF_SCIENCE and group in present and option != present[group]:
            given.append(f"{group}={_text(option)}")
    for _ in range(3):  # what is set may be what other keys are made of
        ours = without(science_of(_composed(tuple(given))[0]), ["seed", BY_CONTENT])
        apart = differences(flat(ours), flat(wanted))
        if not apart:
            return tuple(given)
        if any(MISSING in pair for pair in apart.values()):
            return None
        scalars = {k: theirs for k, (_, theirs) in apart.items() if not isinstance(theirs, list | dict)}
        for name, value in (scalars or {k: theirs for k, (_, theirs) in apart.items()}).items():
            given.append(f"{name}={_text(value)}")
            if name == "optim.drop_epochs":
                given.append("optim.drop_epochs_from=null")
    return None


def _text(value: Any) -> str:
    """Spell a value as Hydra's command line reads it."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    if isinstance(value, str):
        return value if PLAIN.fullmatch(value) else json.dumps(value)
    return json.dumps(value)


@functools.cache
def _composed(overrides: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The resolved configuration that train.py would have, and the choices that made it; empty where it refuses."""
    from hydra import compose, initialize_config_dir  # here and not above: all but commands does without
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose("train", overrides=list(overrides), return_hydra_config=True)
            choices = dict(config.hydra.runtime.choices)
            plain = OmegaConf.to_container(
                OmegaConf.masked_copy(config, [str(k) for k in config if k != "hydra"]), resolve=True
            )
    except (HydraException, OmegaConfBaseException):
        return {"data": {}}, {}
    assert isinstance(plain, dict)
    if OmegaConf.to_container(config.data).get("split_seed") == OF_THE_SEED:  # type: ignore[union-attr]
        plain["data"]["split_seed"] = OF_THE_SEED
    return plain, choices  # type: ignore[return-value]
