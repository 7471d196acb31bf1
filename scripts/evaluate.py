"""Test what is trained by other protocols, without training.

    python scripts/evaluate.py run=<id or folder> evaluation=dense_multi_scale
    python scripts/evaluate.py run=[<id>,<id>,...] evaluation=dense_multi_scale       the ensemble of these runs
    python scripts/evaluate.py run=<file> model=vgg19 activation=relu data=imagenet   a plain state_dict

Where needed with `runs_dir=`, `cache_dir=`, `data.root=`, `compute=` and their keys. What a run lacks is tested from
its last checkpoint and added to its record; an ensemble gets a record of its own; the result of a plain state_dict is
printed and not recorded.
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

from rectifiers.cli import unusable_choice
from rectifiers.config import CONF, InputError
from rectifiers.distributed import world
from rectifiers.reporting.console import errors_table, print_record
from rectifiers.runs import record as records
from rectifiers.runs.lookup import run_folder
from rectifiers.stopping import INTERRUPTED, heeded

FREE = ("evaluation", "compute", "runs_dir", "cache_dir", "data.root")


def composed(overrides: list[str], *, resolve: bool) -> dict[str, Any]:
    """Return the configuration that train.py would have."""
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            plain = OmegaConf.to_container(compose("train", overrides=overrides), resolve=resolve)
    except (HydraException, OmegaConfBaseException) as fault:
        raise InputError(" ".join(str(fault).split())) from fault
    assert isinstance(plain, dict)
    return plain  # type: ignore[return-value]


def configuration(name: str, given: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
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
    asked = composed([_override(key, value) for key, value in given.items() if key != "data.root"], resolve=False)
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


def _override(key: str, value: str) -> str:
    """One of Hydra's; a path is quoted, whatever is in it."""
    return f"{key}='{value}'" if key in ("runs_dir", "cache_dir", "data.root") else f"{key}={value}"


def test(arguments: list[str]) -> None:
    """Do what the command line asks for, and print what comes out."""
    unusable = unusable_choice(arguments)
    if unusable:
        raise InputError(unusable)
    given = {key: value for key, _, value in (argument.partition("=") for argument in arguments)}
    names = [name.strip() for name in given.pop("run", "").strip("[]").split(",")]
    if not all(names):
        raise InputError("no run is given; call scripts/evaluate.py run=<id or folder> evaluation=<option>")
    if len(names) == 1 and Path(names[0]).is_file() and Path(names[0]).name != "record.json":
        config = composed([_override(key, value) for key, value in given.items()], resolve=True)
        from rectifiers.training.run import test_weights

        results = test_weights(config, Path(names[0]))
        Console().print(errors_table(results))
        return
    runs = [configuration(name, given) for name in names]
    if len(runs) == 1:
        from rectifiers.training.run import train

        outcome = train(*runs[0])
    else:
        from rectifiers.training.ensemble import ensemble

        outcome = ensemble(runs, Path(runs[0][0]["runs_dir"]))
    if world().rank == 0:
        print_record(outcome.record, Console())
        print(outcome.path)


def main() -> None:
    try:
        with heeded():
            test(sys.argv[1:])
    except InputError as fault:
        sys.exit(f"error: {fault}")
    except KeyboardInterrupt:  # a second one
        print("interrupted; nothing was recorded of the protocol that was being tested", file=sys.stderr)
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
