"""Whether a claim's criterion stood before its runs.

The commit of each run has to hold the criterion that judges it, and no earlier commit may hold an
answer of the same run under another one: who makes a run again, knowing how it ends, has not made
the criterion before it."""

import csv
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import yaml

from rectifiers.results.claims import PLACE, Claim, Runs
from rectifiers.runs.provenance import commits_of, committed_file
from rectifiers.runtime.errors import InputError

SEEDS = {"seeds": 0, "first_seed": 0}  # with what they are where nothing is said
PARTS = (
    "measure",
    "with",
    "of",
    "minus",
    "over",
    "statistic",
    "supported",
    "contradicted",
    "leave_out_diverged",
)


Read = Callable[[str, str], str | None]


def check(
    answered: Iterable[tuple[Claim, Runs]],
    read: Read = committed_file,
    versions: Callable[[str], Iterable[str]] = commits_of,
) -> set[str]:
    """Check that every run was made by a commit with the present criterion, and answered no other
    one before.

    read: (commit, path of a file in the checkout) -> its text; None where either is not there.
    versions: a path -> the commits that changed it. Returned are commits that are not known here,
    as in a clone without its history, of which nothing can be said.

    Raises:
        InputError: for the first claim of which a run is older than its criterion, or answered
        another one before.
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
            elif (then := read(commit, f"conf/experiment/claim/{path.name}")) is None or criterion(
                then
            ) != present:
                raise InputError(
                    f"claim/{claim.name} is judged by a criterion or a number of seeds that "
                    f"commit {commit[:8]}, which "
                    f"ran its seed {min(seeds)}, does not hold; what changes after a run needs "
                    "other seeds: give "
                    f"first_seed: {max(claim.all_seeds()) + 1}"
                )
        _check_answers_before(
            claim,
            present,
            {r.run: r.seed for arm in runs.values() for r in arm.values()},
            read,
            versions,
        )
    return unknown


def _check_answers_before(
    claim: Claim,
    present: Any,
    seeds: Mapping[str, int],
    read: Read,
    versions: Callable[[str], Iterable[str]],
) -> None:
    """Check that no commit holds an answer of these runs under another criterion. seeds: by the
    names of the runs."""
    table = f"results/claims/{claim.name}.csv"
    for commit in versions(table):
        then, rows = read(commit, f"conf/experiment/claim/{claim.name}.yaml"), read(commit, table)
        if then is None or rows is None or criterion(then) == present:
            continue
        for row in csv.DictReader(rows.splitlines()):
            if row.get("run") in seeds:
                raise InputError(
                    f"claim/{claim.name} was answered in commit {commit[:8]} by its seed "
                    f"{seeds[row['run']]} under "
                    "another criterion or number of seeds, and a run that is made again is no "
                    "new one: give "
                    f"first_seed: {max(claim.all_seeds()) + 1}"
                )


def criterion(text: str) -> list[Mapping[str, Any]]:
    """Return what decides a claim, of its file: its seeds, measures, arms and bounds, whatever the
    words around them.

    The seeds are a part of it, because whoever asks for more after a look stops when the result
    suits him."""
    described = (yaml.safe_load(text) or {}).get("claim") or {}
    seeds = {part: described.get(part, usual) for part, usual in SEEDS.items()}
    return [
        seeds,
        *({part: test.get(part) for part in PARTS} for test in described.get("tests", [])),
    ]
