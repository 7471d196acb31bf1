"""The configuration of a finished run, to test it again: from its folder, which is untrusted."""

from collections.abc import Collection
from os import listdir
from os.path import isdir, isfile  # unlike Path's: False of a name that is too long for a path
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rectifiers.cli.composition import (
    COMPUTED,
    PLACES,
    Choices,
    compose_with_choices,
    override,
    resolve,
)
from rectifiers.runs.config import RunConfig
from rectifiers.runs.folder import run_folder
from rectifiers.runs.record import load_training
from rectifiers.runs.trust import check_plain, check_targets
from rectifiers.runtime.errors import InputError, unreadable
from rectifiers.runtime.files import read_yaml

# What a test may choose.
FREE = ("evaluation", "logger", *COMPUTED, *PLACES, "data.download")


def of_run(
    name: str, values: dict[str, str], trust: Collection[str] = ()
) -> tuple[RunConfig, Choices, list[str] | None]:
    """Return (a run's own configuration with what may differ in a test put in, its choices, its
    overrides).

    name: the run's name or the beginning of it, or the path of its folder. values: by key, as they
    were typed.

    The folder is data that anybody may have made: it says what the network is, and not which code
    is run (but for the modules of `trust`) or where anything is written or sent: without `logger=`
    nothing is logged.
    """
    folder = _folder_of(name, Path(values.get("runs_dir", "runs")))
    check_free(values)
    record = load_training(folder / "record.json")
    if record.status != "finished":
        raise InputError(f"run={name} {record.status}; there is nothing to test")
    kept = _read_config(folder / "config.yaml", trust)
    _put_in(kept, values, folder)
    config = resolve(kept, is_composed=False)
    if run_folder(config) != folder:
        raise InputError(
            f"{folder} does not bear the name of its configuration; give the folder that the run "
            "was made in"
        )
    return config, record.choices, record.overrides


def check_free(values: dict[str, str]) -> None:
    """Refuse keys that belong to the run, and a download without a folder to write to."""
    for key in values:
        if key != "trainer" and not any(f"{key}.".startswith(f"{free}.") for free in FREE):
            raise InputError(
                f"{key} belongs to the run and cannot be changed in a test; give only: trainer, "
                f"{', '.join(FREE)}"
            )
    download = values.get("data.download", "false")
    if download != "false" and (download != "true" or "data.root" not in values):
        raise InputError(
            f"data.download={download} is not usable; give false, or true with data.root=<the "
            "folder to write to>, for a run does not say where anything is written"
        )


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
        raise unreadable(path, error, "train it again by train.py with rerun=true") from error


def _put_in(kept: DictConfig, values: dict[str, str], folder: Path) -> None:
    """Put into a run's configuration how it is tested now, and where."""
    of_data = ("data.root", "data.download")
    overrides = [override(key, value) for key, value in values.items() if key not in of_data]
    chosen, _ = compose_with_choices(overrides)
    is_logged = any(key.partition(".")[0] == "logger" for key in values)
    kept.evaluation, kept.cache_dir = chosen.evaluation, chosen.cache_dir
    kept.runs_dir, kept.rerun = str(folder.parent), False
    # where the training began, which a test does not read
    kept.ckpt_path = kept.weights = None
    for key in COMPUTED:
        OmegaConf.update(kept, key, OmegaConf.select(chosen, key))
    kept.logger = (chosen.get("logger") or {}) if is_logged else {}
    if "download" in kept.data or "data.download" in values:
        kept.data.download = values.get("data.download") == "true"
    if "data.root" in values:
        kept.data.root = values["data.root"]
    elif kept.data.get("root") is not None and not isdir(str(kept.data.root)):
        raise InputError(
            f"data.root={kept.data.root}, where the run had its data, is no folder here; give "
            "data.root="
        )


def _folder_of(name: str, runs: Path) -> Path:
    """Return a run's folder, by its name in `runs`, the beginning of that, or the path of the
    folder or its record."""
    typed = Path(name)
    for place in (runs / name, typed.parent if typed.name == "record.json" else typed):
        if isfile(place / "record.json"):
            return place.resolve()
    names = listdir(runs) if isdir(runs) else []
    matches = sorted(n for n in names if n.startswith(name) and isfile(runs / n / "record.json"))
    if len(matches) == 1:
        return (runs / matches[0]).resolve()
    if matches:
        raise InputError(
            f"run={name} begins the names of {len(matches)} runs, {', '.join(matches[:5])}; give "
            "more of it"
        )
    raise InputError(
        f"run={name} is not a finished run: there is no {runs / name / 'record.json'}, and no "
        f"file {name} of weights; list runs with python scripts/report.py show, or give their "
        "folder with runs_dir="
    )
