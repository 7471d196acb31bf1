"""Configurations outside of train.py: the one that some overrides make, and that of a run that is finished."""

from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rectifiers.runs import record as records
from rectifiers.runs.lookup import run_folder
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.paths import CONF

FREE = ("evaluation", "compute", "runs_dir", "cache_dir", "data.root")


def composed(overrides: list[str], *, resolve: bool = True) -> dict[str, Any]:
    """Return the configuration that train.py would have."""
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            plain = OmegaConf.to_container(compose("train", overrides=overrides), resolve=resolve)
    except (HydraException, OmegaConfBaseException) as fault:
        raise InputError(" ".join(str(fault).split())) from fault
    assert isinstance(plain, dict)
    return plain  # type: ignore[return-value]


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
