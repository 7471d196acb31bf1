"""From a configuration to its run's folder and record, without torch: what is done already is answered at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from rectifiers.evaluation.scores import scores_path
from rectifiers.runs.config import RunConfig, Target
from rectifiers.runs.identity import run_id, science
from rectifiers.runs.record import EnsembleRecord, TrainingRecord, load_training
from rectifiers.runtime.errors import InputError

R = TypeVar("R", TrainingRecord, EnsembleRecord)


class NotYet(InputError):
    """The run that another one refers to has no record yet."""


@dataclass(frozen=True)
class Found:
    """A run's record, where it lies, and the protocols that are asked for and it was not tested by."""

    record: TrainingRecord
    path: Path
    lacking: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Whether nothing that is asked for is left to do."""
        return self.record.status == "diverged" or not self.lacking


@dataclass(frozen=True)
class Outcome(Generic[R]):
    """A run's record, where it lies, whether this call made it (False: it was there already), and what W&B lacks."""

    record: R
    path: Path
    fresh: bool
    note: str | None = None


def run_folder(config: RunConfig) -> Path | None:
    """Return the run's folder, or None where its name waits for the data's hash."""
    return None if config.data.awaits_content else config.runs_dir / run_id(science(config))


def find(config: RunConfig) -> Found | None:
    """Return what there is of the run of `config`; None without a record, and where it is to be run again."""
    folder = run_folder(config)
    if folder is None or config.rerun or not (folder / "record.json").exists():
        return None
    record = load_training(folder / "record.json")

    def is_tested(name: str, protocol: Target) -> bool:
        result = record.protocols.get(name)
        if result is None or result.settings != protocol.as_dict():
            return False
        return not config.evaluation.keep_scores or bool(result.scores and scores_path(folder, name).is_file())

    lacking = (name for name, protocol in config.evaluation.protocols.items() if not is_tested(name, protocol))
    return Found(record, folder / "record.json", tuple(lacking))


def settle(config: RunConfig) -> RunConfig:
    """Return `config` with the drop epochs of the run that it refers to; itself as long as that run has no name.

    Raises:
        InputError: where that run diverged, or has no record (`NotYet`).
    """
    reference = config.optim.drop_epochs_from
    name = _sibling(config, reference) if isinstance(reference, Mapping) else reference
    return config if name is None else config.with_drop_epochs(_drop_epochs(name, config.runs_dir))


def _sibling(config: RunConfig, groups: Mapping[str, Any]) -> str | None:
    """The name of the run that has other `groups` and its own drop epochs, and is this run otherwise."""
    unknown = groups.keys() - set(config.as_dict())
    if unknown:
        raise InputError(f"optim.drop_epochs_from names {', '.join(sorted(unknown))}, which is no group; see --help")
    own_drops = {"optim.drop_epochs": None, "optim.drop_epochs_from": None}
    folder = run_folder(config.replaced({**own_drops, **groups}))
    return None if folder is None else folder.name


def _drop_epochs(reference: str, runs: Path) -> list[int]:
    places = [runs / reference / "record.json", Path(reference) / "record.json", Path(reference)]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise NotYet(
            f"optim.drop_epochs_from={reference} has no record yet (looked for {places[0]}); finish that run first, "
            "or give a record's path"
        )
    record = load_training(path)
    if record.status != "finished":
        raise InputError(f"optim.drop_epochs_from={reference} is a run that {record.status}; name a finished one")
    return record.drop_epochs
