"""The configuration of a finished run, to test it again: from its folder, which is untrusted."""

from collections.abc import Collection
from os import listdir
from os.path import isdir, isfile  # unlike Path's: False of a name that is too long for a path
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from rectifiers.cli.composition import COMPUTED, PLACES, Choices, compose_with_choices, resolve
from rectifiers.runs import record as records
from rectifiers.runs.config import RunConfig
from rectifiers.runs.folder import run_folder
from rectifiers.runs.record import EnsembleRecord, TrainingRecord
from rectifiers.runs.trust import check_plain, check_targets
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import read_yaml, refuse_link

OF_DATA = ("data.root", "data.download")
FREE = ("evaluation", "trainer", "logger", *COMPUTED, *PLACES, "data.download")


def of_run(
    name: str, given: dict[str, str], trust: Collection[str] = ()
) -> tuple[RunConfig, Choices, list[str] | None]:
    """Return (a run's own configuration with what may differ in a test put in, its choices, its
    overrides).

    name: the run's name or the beginning of it, or the path of its folder.

    The folder is data that anybody may have made: it says what the network is, and not which code
    is run (but for the modules of `trust`) or where anything is written or sent: without `logger=`
    nothing is logged.

    Raises:
        InputError: where there is no such run, or its configuration asks for more.
    """
    check_free(given)
    folder = _folder_of(name, Path(given.get("runs_dir", "runs")))
    for place in ("scores", "wandb", "tensorboard"):  # which a test writes to
        refuse_link(folder / place)
    record = _load_finished(name, folder)
    own = _read_config(folder / "config.yaml", trust)
    _put_in(own, given, folder)
    try:
        OmegaConf.resolve(own)
    except OmegaConfBaseException as error:
        raise InputError(
            f"{folder / 'config.yaml'} lacks what the protocol needs "
            f"({str(error).splitlines()[0]}); give the protocol's scales by hand"
        ) from error
    config = resolve(own)
    if run_folder(config) != folder:
        raise InputError(
            f"{folder} does not bear the name of its configuration; give the folder that the "
            "run was made in"
        )
    return config, record.choices, record.overrides


def check_free(given: dict[str, str]) -> None:
    """Refuse keys that belong to the run.

    Raises:
        InputError: for the first one, and for a download without a folder to write to.
    """
    for key in given:
        is_free = any(key == free or key.startswith(f"{free}.") for free in FREE)
        if not is_free or (key.startswith("trainer.") and key not in COMPUTED):
            raise InputError(
                f"{key} belongs to the run and cannot be changed in a test; give only: "
                f"{', '.join(FREE)}"
            )
    download = given.get("data.download", "false")
    if download not in ("true", "false"):
        raise InputError(f"data.download={download} is not usable; give true or false")
    if download == "true" and "data.root" not in given:
        raise InputError(
            "data.download=true needs data.root=<the folder to write to>, for a run does not say "
            "where anything is written"
        )


def _load_finished(name: str, folder: Path) -> TrainingRecord:
    record = records.load(folder / "record.json")
    if isinstance(record, EnsembleRecord):
        members = ",".join(member.run for member in record.members)
        raise InputError(f"run={name} is an ensemble; give its runs: {members}")
    if record.status != "finished":
        raise InputError(f"run={name} {record.status}; there is nothing to test")
    return record


def _read_config(path: Path, trust: Collection[str]) -> DictConfig:
    """Return a run's own configuration, which names only functions that it may name."""
    try:
        plain = read_yaml(path)
        check_plain(plain, path)
        if isinstance(plain, dict):
            plain.pop("logger", None)  # where the run was logged; never used
        check_targets(plain, path, trust)
        if not all(isinstance(plain.get(group), dict) for group in ("trainer", "data", "optim")):
            raise ValueError("it is no configuration of a run, or one of an older version")
        return OmegaConf.create(plain)
    except (OSError, TypeError, ValueError, AttributeError, OmegaConfBaseException) as error:
        raise InputError(
            f"{path} cannot be read ({error}); train it again by train.py with rerun=true"
        ) from error


def _put_in(own: Any, given: dict[str, str], folder: Path) -> None:
    """Put into a run's configuration how it is tested now, and where."""
    asked, _ = compose_with_choices(
        [override(key, value) for key, value in given.items() if key not in OF_DATA]
    )
    with open_dict(own):
        own.evaluation, own.runs_dir, own.rerun = asked.evaluation, str(folder.parent), False
        own.cache_dir = asked.cache_dir
        for key in COMPUTED:
            OmegaConf.update(own, key, OmegaConf.select(asked, key))
        is_logged = any(key.partition(".")[0] == "logger" for key in given)
        own.logger = asked.logger if is_logged else {}
        if "download" in own.data or "data.download" in given:
            own.data.download = given.get("data.download") == "true"
        if "data.root" in given:
            own.data.root = given["data.root"]
        elif own.data.get("root") is not None and not isdir(str(own.data.root)):
            raise InputError(
                f"data.root={own.data.root}, where the run had its data, is no folder here; "
                "give data.root="
            )


def _folder_of(name: str, runs: Path) -> Path:
    """Return a run's folder, by its name in `runs`, the beginning of that, or the path of the
    folder or its record."""
    for place in (runs / name, Path(name), Path(name).parent):
        if isfile(place / "record.json"):
            return place.resolve()
    begun = [each for each in (listdir(runs) if isdir(runs) else ()) if each.startswith(name)]
    found = sorted(each for each in begun if isfile(runs / each / "record.json"))
    if len(found) == 1:
        return (runs / found[0]).resolve()
    if found:
        raise InputError(
            f"run={name} begins the names of {len(found)} runs, {', '.join(found[:5])}; give "
            "more of it"
        )
    raise InputError(
        f"run={name} is not a finished run: there is no {runs / name / 'record.json'}; python "
        "scripts/report.py show "
        "prints what there is, and runs_dir= says where"
    )


def override(key: str, value: str) -> str:
    """Return an override as Hydra reads it; a path is quoted, whatever is in it."""
    return f"{key}='{value}'" if key in PLACES else f"{key}={value}"
