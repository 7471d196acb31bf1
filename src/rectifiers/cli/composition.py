"""Configurations outside of train.py: the one that some overrides make, and that of a run that is finished."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from rectifiers.runs import record as records
from rectifiers.runs.lookup import run_folder
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.paths import CONF

FREE = ("evaluation", "compute", "runs_dir", "cache_dir", "data.root")


def composed(overrides: list[str], *, resolve: bool = True) -> dict[str, Any]:
    """Return the configuration that train.py would have."""
    config, _ = compose_with_choices(overrides)
    return resolved(config) if resolve else OmegaConf.to_container(config)  # type: ignore[return-value]


def compose_with_choices(overrides: Sequence[str]) -> tuple[DictConfig, dict[str, Any]]:
    """Return the configuration that train.py would have, unresolved, and the options of the groups that made it."""
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose("train", overrides=list(overrides), return_hydra_config=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise InputError(" ".join(str(error).split())) from error
    choices = {group: option for group, option in config.hydra.runtime.choices.items() if "hydra" not in group}
    with open_dict(config):
        del config["hydra"]
    return config, choices


def resolved(config: DictConfig) -> dict[str, Any]:
    """Return a composed configuration as plain values."""
    try:
        return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)  # type: ignore[return-value]
    except OmegaConfBaseException as error:
        raise InputError(f"the configuration cannot be resolved: {' '.join(str(error).split())}") from error


def of_run(name: str, given: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (a run's own configuration with what may differ in a test put in, the choices that made it)."""
    for key in given:
        if not any(key == free or key.startswith(f"{free}.") for free in FREE) or key == "compute.precision":
            raise InputError(f"{key} belongs to the run and cannot be changed in a test; give only: {', '.join(FREE)}")
    places = [Path(given.get("runs_dir", "runs")) / name, Path(name), Path(name).parent]
    folder = next((place.resolve() for place in places if (place / "record.json").is_file()), None)
    if folder is None:
        raise InputError(f"run={name} is no finished run: there is no {places[0] / 'record.json'}; see runs_dir=")
    record = records.load(folder / "record.json")
    if "members" in record:
        raise InputError(f"run={name} is an ensemble; give its runs: {','.join(m['run'] for m in record['members'])}")
    if record["status"] != "finished":
        raise InputError(f"run={name} {record['status']}; there is nothing to test")
    try:
        own = yaml.safe_load((folder / "config.yaml").read_text())
        compute = own["compute"]
    except (OSError, yaml.YAMLError, TypeError, KeyError) as fault:
        raise InputError(f"{folder / 'config.yaml'} cannot be read ({fault}); run it again with rerun=true") from fault
    asked = composed([override(key, value) for key, value in given.items() if key != "data.root"], resolve=False)
    compute = {**compute, **asked["compute"], "precision": compute["precision"]}
    own |= {"evaluation": asked["evaluation"], "compute": compute, "runs_dir": str(folder.parent), "rerun": False}
    own["cache_dir"] = given.get("cache_dir", own["cache_dir"])
    if "data.root" in given:
        own["data"]["root"] = given["data.root"]
    try:
        plain = OmegaConf.to_container(OmegaConf.create(own), resolve=True)
    except OmegaConfBaseException as fault:
        raise InputError(
            f"{folder / 'config.yaml'} lacks what the protocol needs ({str(fault).splitlines()[0]}); it was made by "
            "older code: give the protocol's scales by hand"
        ) from fault
    assert isinstance(plain, dict)
    if run_folder(plain) != folder:  # type: ignore[arg-type]
        raise InputError(
            f"{folder} does not bear the name of its configuration; give the folder that the run was made in"
        )
    return plain, record["choices"]  # type: ignore[return-value]


def override(key: str, value: str) -> str:
    """One of Hydra's; a path is quoted, whatever is in it."""
    return f"{key}='{value}'" if key in ("runs_dir", "cache_dir", "data.root") else f"{key}={value}"
