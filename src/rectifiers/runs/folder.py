"""A run's folder before there is a record in it: begun, begun anew, gone on with."""

from collections.abc import Iterable
from pathlib import Path

from rectifiers.runtime.distributed import launch_id
from rectifiers.runtime.files import write_text

MARK = "launch"  # which launch of several processes began it


def begin(folder: Path, *, anew: bool) -> None:
    """Make the folder ready to be trained in; `anew`, where a record is in it, it is set aside first.

    One without a record was killed: it is gone on with, also where it is itself a rerun.
    """
    if anew and (folder / "record.json").exists():
        _set_aside(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for part in folder.glob("*.part"):
        part.unlink()  # what a kill left half written
    began = launch_id()
    if began:
        write_text(folder / MARK, began)


def begun_by(folder: Path, launches: Iterable[str | None]) -> bool:
    """Return whether one of `launches` began what lies in the folder, so that a restart must not begin it anew."""
    return (folder / MARK).is_file() and (folder / MARK).read_text() in launches


def _set_aside(folder: Path) -> None:
    """Move a run that will be run again to `replaced/<id>-<n>`, n from 1; nothing is deleted."""
    attic = folder.parent / "replaced"
    attic.mkdir(exist_ok=True)
    n = 1
    while (attic / f"{folder.name}-{n}").exists():
        n += 1
    folder.rename(attic / f"{folder.name}-{n}")
