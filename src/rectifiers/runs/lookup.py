"""From a configuration to its run's folder and record, without torch: what is done already is answered at once."""

from pathlib import Path
from typing import Any

from rectifiers.evaluation.scores import scores_path
from rectifiers.runs import record as records
from rectifiers.runs.config import check, protocols
from rectifiers.runs.identity import run_id, science
from rectifiers.runtime.errors import InputError


class NotYet(InputError):
    """The run that another one refers to has no record yet."""


def prepare(config: dict[str, Any]) -> None:
    """Check a resolved configuration and put in what it refers to; doing it twice changes nothing.

    Raises:
        InputError: for a value that cannot be used, or a reference to a run that diverged, or has no record (`NotYet`).
    """
    check(config)
    optim = config["optim"]
    reference = optim["drop_epochs_from"]
    if isinstance(reference, dict):
        reference = _sibling(config, reference)
    if reference is None:
        return
    drops = _drop_epochs(str(reference), Path(config["runs_dir"]))
    if optim["drop_epochs"] not in (None, drops):
        raise InputError(
            f"optim.drop_epochs={optim['drop_epochs']} differs from those of optim.drop_epochs_from="
            f"{reference}, {drops}; set one of them to null"
        )
    optim["drop_epochs"] = drops


def _sibling(config: dict[str, Any], groups: dict[str, Any]) -> str | None:
    """The name of the run that has other `groups` and its own drop epochs, and is this run otherwise.

    None where names wait for the data's hash.
    """
    unknown = groups.keys() - config.keys()
    if unknown:
        raise InputError(f"optim.drop_epochs_from names {', '.join(sorted(unknown))}, which is no group; see --help")
    own_drops = {**config["optim"], "drop_epochs": None, "drop_epochs_from": None}
    folder = run_folder({**config, "optim": own_drops, **groups})
    return None if folder is None else folder.name


def _drop_epochs(reference: str, runs: Path) -> list[int]:
    places = [runs / reference / "record.json", Path(reference) / "record.json", Path(reference)]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise NotYet(
            f"optim.drop_epochs_from={reference} has no record yet (looked for {places[0]}); finish that run first, "
            "or give a record's path"
        )
    record = records.load(path)
    if record["status"] != "finished":
        raise InputError(f"optim.drop_epochs_from={reference} is a run that {record['status']}; name a finished one")
    return record["drop_epochs"]


def run_folder(config: dict[str, Any]) -> Path | None:
    """Return the run's folder, or None where its name waits for the data's hash (`data.content` not filled in yet)."""
    if config["data"].get("content", "none asked for") is None:
        return None
    return Path(config["runs_dir"]) / run_id(science(config))


def finished(config: dict[str, Any]) -> tuple[dict[str, Any], Path] | None:
    """Return (record, path) of a run that has all that `config` asks for, else None; always None for rerun=true."""
    folder = run_folder(config)
    if folder is None or config["rerun"] or not (folder / "record.json").exists():
        return None
    record = records.load(folder / "record.json")
    done = record["status"] == "diverged" or not lacking(config, record, folder)
    return (record, folder / "record.json") if done else None


def lacking(config: dict[str, Any], record: dict[str, Any], folder: Path) -> list[str]:
    """Return the protocols that `config` asks for and the run has not been tested by, or without keeping scores."""
    asked, tested = protocols(config), record["protocols"]

    def is_kept(name: str) -> bool:
        return tested.get(name, {}).get("scores") is not None and scores_path(folder, name).is_file()

    keep = config["evaluation"]["keep_scores"]
    return [n for n in asked if tested.get(n, {}).get("settings") != asked[n] or (keep and not is_kept(n))]
