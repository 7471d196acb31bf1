"""The configuration of a finished run, to test it again: from its record, which is untrusted.

A record is data. It says what the network is, and not which code is run (but for functions that
`conf/` names, classes of torch's, and the modules of `trust=[my_package]`), nor where anything is
read, written or sent: that say the command line and `conf/`. See SECURITY.md."""

import copy
from collections.abc import Collection, Sequence
from os.path import isdir, isfile
from pathlib import Path

from omegaconf import Container, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rectifiers.cli.composition import Choices, compose_with_choices, override, refusal
from rectifiers.runs.config import FREE, KEYS, RunConfig
from rectifiers.runs.folder import record_paths, run_folder
from rectifiers.runs.identity import NOT_SCIENCE, science, settings
from rectifiers.runs.options import options
from rectifiers.runs.record import TrainingRecord, load_training
from rectifiers.runs.trust import check_plain, check_targets
from rectifiers.runtime.console import printable
from rectifiers.runtime.errors import InputError, unreadable
from rectifiers.runtime.files import CONF, read_yaml
from rectifiers.runtime.schema import JsonObject, flat, value_at

# What a run's config.yaml says of its data, besides their folder, and no id holds.
OF_THE_DATA = ("data.size", "data.dense_scales_px", "data.view_scales_px")
MOST_SCALES = 100


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


def of_run(
    name: str, values: dict[str, str], trust: Collection[str] = ()
) -> tuple[RunConfig, Choices, list[str] | None]:
    """Return (a run's own configuration with what may differ in a test put in, its choices, its
    overrides).

    name: the run's name or the beginning of it, or the path of its folder. values: by key, as they
    were typed; without `logger=` nothing is logged. trust: modules whose functions may be used.
    """
    folder = _folder_of(name, Path(values.get("runs_dir", "runs")))
    check_free(values)
    place = folder / "record.json"
    record = load_training(place)
    if record.status != "finished":
        raise InputError(f"run={name} {record.status}; there is nothing to test")
    check_plain(record.science, place)
    check_targets(record.science, place, trust)

    try:
        plain = _laid_over(record, values, folder)
    except OmegaConfBaseException as error:  # of a reference that was typed
        raise refusal(error) from error
    try:
        config = RunConfig.of(plain)
    except InputError as error:
        raise InputError(f"run={name}: {printable(str(error))}") from error

    theirs, ours = flat(record.science), flat(science(config))
    for key in sorted(theirs.keys() | ours.keys()):
        if theirs.get(key, ...) != ours.get(key, ...):  # None is a value
            raise InputError(
                f"{place}: science.{printable(key)} is no part of a run's id; a record of this "
                "version does not hold it"
            )
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


def _laid_over(record: TrainingRecord, values: dict[str, str], folder: Path) -> JsonObject:
    """Return the record's science over all other keys, which `conf/` and the command line say. What
    these refer to, such as the size of the images, is the run's.

    Raises:
        InputError: where the command line cannot be used, or the data are not there.
    """
    kept = _kept(folder / "config.yaml")
    composed = _composed_around(record, values, kept)
    fixed = _fixed(values, kept, folder)
    if "download" in composed.data or "data.download" in values:
        fixed["data.download"] = values.get("data.download") == "true"

    plain = copy.deepcopy(record.science)
    for key in NOT_SCIENCE:
        value = fixed[key] if key in fixed else OmegaConf.select(composed, key, default=...)
        if value is ... or (key == "data.root" and value is None):
            continue
        if isinstance(value, Container):
            value = OmegaConf.to_container(value, resolve=True)
        section, _, leaf = key.rpartition(".")
        node = plain.setdefault(section, {}) if section else plain
        if isinstance(node, dict):  # or else it is refused as what it is
            node[leaf] = value
    return plain


def _composed_around(
    record: TrainingRecord, values: dict[str, str], kept: JsonObject
) -> DictConfig:
    """Return what `conf/` and the command line say, with the run's values of the keys that others
    refer to."""
    typed = [
        override(key, value)
        for key, value in values.items()
        if key not in ("data.root", "data.download")
    ]
    composed, _ = compose_with_choices([f"data={_data_option(record)}", *typed])

    # what other keys refer to is a number or a word; a record may hold lists of any size
    of_run = {
        key: value
        for key, value in settings(record.science).items()
        if key in KEYS and not isinstance(value, dict | list)
    }
    of_run |= {key: kept[key] for key in OF_THE_DATA if key in kept and key not in values}
    for key, value in of_run.items():
        OmegaConf.update(composed, key, value, force_add=True)
    return composed


def _fixed(values: dict[str, str], kept: JsonObject, folder: Path) -> JsonObject:
    """Return the keys that a test sets itself: where its files are, that nothing is trained, and
    that nothing is logged unless a logger was typed."""
    fixed: JsonObject = {
        "runs_dir": str(folder.parent),
        "data.root": _root(values, kept),
        "rerun": False,
        "ckpt_path": None,
    }
    is_logged = any(key.partition(".")[0] == "logger" for key in values)
    if not is_logged:
        fixed["logger"] = {}
    return fixed


def _data_option(record: TrainingRecord) -> str:
    """Return the option of `data` whose places and test scales fit the run."""
    known = options("data")
    if (chosen := record.choices.get("data")) in known:
        return str(chosen)

    target = record.science["data"].get("_target_")
    for name in known:
        text = (CONF / "data" / f"{name}.yaml").read_text()
        if f"_target_: {target}\n" in text:
            return name
    return "folder"


def _kept(path: Path) -> JsonObject:
    """Return what a run's `config.yaml` is asked for, by dotted key: where its data lay, in which
    size, and the scales that it was to be tested at, which no id holds.

    Raises:
        InputError: where it cannot be read, or one of these is no short value.
    """
    if not path.exists() and not path.is_symlink():
        return {}
    try:
        config = read_yaml(path)
    except (OSError, ValueError) as error:
        raise unreadable(path, error, "remove it, and give data.root=") from error

    kept = {key: value_at(config, key) for key in ("data.root", *OF_THE_DATA)}
    for key, value in kept.items():
        parts = value if isinstance(value, list) else [value]
        is_plain = all(isinstance(part, int | str | None) for part in parts)
        if not is_plain or len(parts) > MOST_SCALES:
            raise InputError(f"{path}: {key} is no value of a run's; remove it")
    check_plain(kept, path)
    return {key: value for key, value in kept.items() if value is not None}


def _root(values: dict[str, str], kept: JsonObject) -> str | None:
    """Return the folder of the data: that of the command line, or the one that the run read."""
    if "data.root" in values:
        return values["data.root"]
    root = kept.get("data.root")
    if root is not None and not isdir(str(root)):
        raise InputError(
            f"data.root={root}, where the run had its data, is no folder here; give data.root="
        )
    return None if root is None else str(root)


def _folder_of(name: str, runs: Path) -> Path:
    """Return a run's folder, by its name in `runs`, the beginning of that, or the path of the
    folder or its record."""
    typed = Path(name)
    for place in (runs / name, typed.parent if typed.name == "record.json" else typed):
        if isfile(place / "record.json"):
            return place.resolve()

    # a folder within holds runs of others' names; of two of one name, the outermost is taken
    folders = {path.parent.name: path.parent for path in reversed(record_paths(runs))}
    matches = sorted(run for run in folders if run.startswith(name))
    if len(matches) == 1:
        return folders[matches[0]].resolve()
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
