"""Links to run folders under readable names."""

import os
import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rectifiers.runs.identity import NOT_SCIENCE

LATEST, BY_NAME = "latest", "by-name"  # in a folder of runs
NAMED_BY = ("data", "model", "activation", "init")
LONGEST_NAME = 200  # characters, of 255 that a file system takes


def readable_name(
    run: str, choices: Mapping[str, str | None], seed: int, overrides: Sequence[str]
) -> str:
    """Return a readable name such as `digits-small14-prelu-he-optim.lr=0.1-seed=0-<run>`: the
    options of NAMED_BY, the settings among the overrides, the seed, and the run's id, which makes
    it unique."""
    chosen = [str(choices[group]) for group in NAMED_BY if choices.get(group)]
    typed = [override.lstrip("+~") for override in overrides]
    text = "-".join([*chosen, *filter(_is_setting, typed), f"seed={seed}"])
    return f"{re.sub(r'[^A-Za-z0-9_.=+-]', '_', text)[:LONGEST_NAME]}-{run}"


def _is_setting(override: str) -> bool:
    """Whether an override is a setting within a group, and can change a number."""
    key = override.partition("=")[0]
    group, dot, _ = key.partition(".")
    return bool(dot) and group != "hydra" and not {key, group} & set(NOT_SCIENCE)


def link_run(folder: Path, name: str) -> None:
    """Make `latest` and `by-name/<name>`, beside a run's folder, links to it.

    The links are for people alone, so errors of the file system are ignored."""
    names = folder.parent / BY_NAME
    with suppress(OSError):
        _link(folder.parent / LATEST, Path(folder.name))
        names.mkdir(exist_ok=True)
        if not names.is_symlink():  # which may lead anywhere
            _link(names / name, Path("..", folder.name))


def _link(place: Path, target: Path) -> None:
    """Make `place` a link to `target`, atomically. An older link is replaced; a file or folder that
    is no link stays."""
    if place.exists() and not place.is_symlink():
        return
    part = place.with_name(f".{socket.gethostname()}.{os.getpid()}.part")
    part.unlink(missing_ok=True)  # of a killed process
    part.symlink_to(target)
    try:
        os.replace(part, place)
    finally:
        part.unlink(missing_ok=True)
