"""Whether a claim's criterion stood before its runs: the commit of each run has to hold the one that judges it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import yaml

from rectifiers.results.claims import PLACE, Claim, Runs
from rectifiers.runs.provenance import committed_file
from rectifiers.runtime.errors import InputError

SEEDS = {"seeds": 0, "first_seed": 0}  # with what they are where nothing is said
PARTS = ("measure", "with", "of", "minus", "over", "statistic", "supported", "contradicted", "leave_out_diverged")


def check(answered: Iterable[tuple[Claim, Runs]], read: Callable[[str, str], str | None] = committed_file) -> set[str]:
    """Check that every run was made by a commit whose criterion of its claim is the present one.

    read: (commit, path of a file in the checkout) -> its text; None where either is not there. Returned are commits
    that are not known here, as in a clone without its history, of which nothing can be said.

    Raises:
        InputError: for the first claim of which a run is older than its criterion.
    """
    unknown: set[str] = set()
    for claim, runs in answered:
        path = PLACE / f"{claim.name}.yaml"
        present = criterion(path.read_text())
        by_commit: dict[str, list[int]] = {}
        for record in (record for arm in runs.values() for record in arm.values()):
            by_commit.setdefault(str(record.provenance.git_sha), []).append(record.seed)
        for commit, seeds in by_commit.items():
            if read(commit, "README.md") is None:
                unknown.add(commit)
            elif (then := read(commit, f"conf/experiment/claim/{path.name}")) is None or criterion(then) != present:
                raise InputError(
                    f"claim/{claim.name} is judged by a criterion or a number of seeds that commit {commit[:8]}, which "
                    f"ran its seed {min(seeds)}, does not hold; what changes after a run needs other seeds: give "
                    f"first_seed: {max(claim.all_seeds()) + 1}"
                )
    return unknown


def criterion(text: str) -> list[Mapping[str, Any]]:
    """Return what decides a claim, of its file: its seeds, measures, arms and bounds, whatever the words around them.

    The seeds are a part of it, because whoever asks for more after a look stops when the result suits him.
    """
    described = (yaml.safe_load(text) or {}).get("claim") or {}
    seeds = {part: described.get(part, usual) for part, usual in SEEDS.items()}
    return [seeds, *({part: test.get(part) for part in PARTS} for test in described.get("tests", []))]
