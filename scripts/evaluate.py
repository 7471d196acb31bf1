"""Test a finished run by other protocols, without training.

`python scripts/evaluate.py run=<id or folder> evaluation=dense_multi_scale`, and where needed `runs_dir=`,
`data.root=`, `compute=` and their keys. What the run lacks is tested from its last checkpoint and added to its record.
"""

import sys
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from rectifiers.config import CONF, InputError
from rectifiers.reporting.console import print_record
from rectifiers.runs import record as records
from rectifiers.runs.lookup import run_folder

FREE = ("evaluation", "compute", "runs_dir", "cache_dir", "data.root")


def configuration(arguments: list[str]) -> tuple[dict[str, Any], Path]:
    """Return the run's own configuration with what may differ in a test put in, and the run's folder."""
    given = {key: value for key, _, value in (argument.partition("=") for argument in arguments)}
    name = given.pop("run", "")
    if not name:
        raise InputError("no run is given; call scripts/evaluate.py run=<id or folder> evaluation=<option>")
    for key in given:
        if not any(key == free or key.startswith(f"{free}.") for free in FREE) or key == "compute.precision":
            raise InputError(f"{key} belongs to the run and cannot be changed in a test; give only: {', '.join(FREE)}")
    places = [Path(given.get("runs_dir", "runs")) / name, Path(name)]
    folder = next((place for place in places if (place / "record.json").is_file()), None)
    if folder is None:
        raise InputError(f"run={name} is no finished run: there is no {places[0] / 'record.json'}; see runs_dir=")
    try:
        own = yaml.safe_load((folder / "config.yaml").read_text())
        overrides = [f"{key}={value}" for key, value in given.items() if key != "data.root"]
        with initialize_config_dir(str(CONF), version_base="1.3"):
            asked = OmegaConf.to_container(compose("train", overrides=overrides), resolve=False)
    except (OSError, yaml.YAMLError) as fault:
        raise InputError(f"{folder / 'config.yaml'} cannot be read ({fault}); run it again with rerun=true") from fault
    except (HydraException, OmegaConfBaseException) as fault:
        raise InputError(" ".join(str(fault).split())) from fault
    assert isinstance(asked, dict)
    compute = {**own["compute"], **asked["compute"], "precision": own["compute"]["precision"]}  # type: ignore[dict-item]
    own |= {"evaluation": asked["evaluation"], "compute": compute, "runs_dir": str(folder.parent), "rerun": False}
    own["cache_dir"] = given.get("cache_dir", own["cache_dir"])
    if "data.root" in given:
        own["data"]["root"] = given["data.root"]
    plain = OmegaConf.to_container(OmegaConf.create(own), resolve=True)
    assert isinstance(plain, dict)
    if run_folder(plain) != folder:  # type: ignore[arg-type]
        raise InputError(
            f"{folder} does not bear the name of its configuration; give the folder that the run was made in"
        )
    return plain, folder  # type: ignore[return-value]


def main() -> None:
    try:
        config, folder = configuration(sys.argv[1:])
        record = records.load(folder / "record.json")
        if record["status"] != "finished":
            raise InputError(f"run={folder.name} {record['status']}; there is nothing to test")
        from rectifiers.training.run import train

        outcome = train(config, record["choices"])
    except InputError as fault:
        sys.exit(f"error: {fault}")
    print_record(outcome.record, Console())
    print(outcome.path)


if __name__ == "__main__":
    main()
