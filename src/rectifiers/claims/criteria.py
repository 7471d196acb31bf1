"""Whether each criterion is older than the runs that it judges, by the history of the checkout."""

import csv
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from rectifiers.claims.archive import Runs
from rectifiers.claims.claims import PLACE, Claim
from rectifiers.results.frame import RESULTS
from rectifiers.results.origin import code_of, machine_of
from rectifiers.runs.provenance import commits_of, committed_file
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import load_yaml
from rectifiers.runtime.schema import JsonObject

FOLDERS = ("conf/claim", "conf/experiment/claim")  # of claims: the present one, and the first
EARLIER = RESULTS / "earlier_ids.csv"
TABLES = ("/runs.csv", ".csv")  # of a claim's runs: where it is, and where it was
RUN_FIELDS = {"seeds": 0, "first_seed": 0, "older": []}  # of a claim, with their defaults
CRITERION_FIELDS = (  # of a test
    *("measure", "with", "of", "minus", "over", "since", "statistic"),
    *("supported", "contradicted", "leave_out_diverged"),
)
CALLBACK = re.compile(r"^callbacks\.\w+\.(?=\w+=)")
Read = Callable[[str, str], str | None]  # commit, path -> text


def check_criteria(
    answered: Iterable[tuple[Claim, Runs]],
    read: Read = committed_file,
    versions: Callable[[str], Iterable[str]] = commits_of,
) -> set[str]:
    """Check that every run was made by a commit with the present criterion and the arm's present
    overrides (who looks first can choose the arm that wins), that no earlier commit holds an
    answer of the same run under another criterion (who makes a run again, knowing how it ends, has
    not made the criterion before it), and that the claim has kept all that makes it careful. An arm
    that the claim calls `older` may have runs of commits without the claim.

    read: (commit, path of a file in the checkout) -> its text; None where either is not there.
    versions: a path -> the commits that changed it. Returned are commits that are not known here,
    as in a clone without its history, of which nothing can be said."""
    unknown: set[str] = set()
    read = functools.cache(read)
    for claim, runs in answered:
        present = (PLACE / f"{claim.name}.yaml").read_text()
        unknown |= _check_commits_of_runs(claim, present, runs, read)
        rows = list(_committed_rows(claim, read, versions))
        _check_earlier_answers(claim, present, runs, rows, read)
        if any(runs.values()):
            _check_restrictions(claim, present, read, versions)
    return unknown


def _check_commits_of_runs(claim: Claim, present: str, runs: Runs, read: Read) -> set[str]:
    """Check that the commit of every run holds the criterion and the arm of the claim's file, whose
    text is `present`; return the commits that are not known here."""
    unknown: set[str] = set()
    for arm, seed, record in sorted((a, s, r) for a in runs for s, r in runs[a].items()):
        commit = str(record.provenance.git_sha)
        then = _claim_file(claim, commit, read)
        if then is None and read(commit, "README.md") is None:  # which every commit has
            unknown.add(commit)
        elif then is None and arm in claim.older:
            continue
        elif then is None or criterion(then) != criterion(present):
            raise InputError(
                f"claim/{claim.name} is judged by a criterion or a number of seeds that commit "
                f"{commit[:8]}, which ran its seed {seed}, does not hold; what changes after a "
                f"run needs other seeds: {_other_seeds(claim)}"
            )
        elif _arms(then).get(arm) != _arms(present)[arm]:
            raise InputError(
                f"claim/{claim.name}: arm {arm} has other overrides than in commit "
                f"{commit[:8]}, which ran its seed {seed}; {_other_seeds(claim)}"
            )
    return unknown


def _check_earlier_answers(
    claim: Claim,
    present: str,
    runs: Runs,
    rows: Sequence[tuple[str, dict[str, str]]],
    read: Read,
) -> None:
    """Check that no commit holds a result of the same runs under another criterion.

    present: the text of the claim's file. rows: (commit, row) of its tables of runs."""
    names = _names(runs, (row for _, row in rows))
    for commit, row in rows:
        then = _claim_file(claim, commit, read)
        if row["run"] not in names or then is None:
            continue
        if criterion(then) != criterion(present):
            raise InputError(
                f"claim/{claim.name} was answered in commit {commit[:8]} by its seed "
                f"{row['seed']} under another criterion or number of seeds, and a run that "
                f"is made again is no new one: {_other_seeds(claim)}"
            )


def _check_restrictions(
    claim: Claim, present: str, read: Read, versions: Callable[[str], Iterable[str]]
) -> None:
    """Check that the claim's file, whose text is `present`, has every restriction that any of its
    commits has."""
    kept = restrictions(present)
    for commit in versions(f"{FOLDERS[0]}/{claim.name}.yaml"):
        then = _claim_file(claim, commit, read)
        if then is not None and (dropped := restrictions(then) - kept):
            raise InputError(
                f"claim/{claim.name} has lost {min(dropped)}, which commit {commit[:8]} holds; "
                f"give it back, or {_other_seeds(claim)}"
            )


def _other_seeds(claim: Claim) -> str:
    return f"give first_seed: {max(claim.all_seeds()) + 1}"


def _committed_rows(
    claim: Claim, read: Read, versions: Callable[[str], Iterable[str]]
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (commit, row) of every table of the claim's runs that was committed, at either path."""
    for table in (f"results/claims/{claim.name}{end}" for end in TABLES):
        for commit in versions(table):
            for row in csv.DictReader((read(commit, table) or "").splitlines()):
                yield commit, row


def _names(runs: Runs, rows: Iterable[Mapping[str, str]]) -> set[str]:
    """Return the ids that the runs have and had. All ids changed once: a row of the same arm,
    seed, code and machine is of the same run, and has its earlier id. Those of seeds that had been
    judged by another criterion before, and have no record any more, stand in `EARLIER`."""
    of_arms = [(arm, seed, record) for arm in runs for seed, record in runs[arm].items()]
    names = {record.run for _, _, record in of_arms}
    retired = {_earlier_ids()[name] for name in names & _earlier_ids().keys()}

    columns = ("arm", "seed", "code", "machine")
    known = {(arm, str(seed), code_of(each), machine_of(each)) for arm, seed, each in of_arms}
    renamed = {row["run"] for row in rows if tuple(map(row.get, columns)) in known}
    return names | retired | renamed


@functools.cache
def _earlier_ids() -> dict[str, str]:
    """The ids that runs of retired seeds had, by those that the same runs would have now."""
    rows = csv.DictReader(EARLIER.read_text().splitlines())
    return {row["run"]: row["earlier_run"] for row in rows}


def _claim_file(claim: Claim, commit: str, read: Read) -> str | None:
    """The claim's file in a commit; None where it was not there."""
    texts = (read(commit, f"{folder}/{claim.name}.yaml") for folder in FOLDERS)
    return next((text for text in texts if text is not None), None)


@functools.cache
def _arms(text: str) -> dict[str, list[str]]:
    """The overrides of the arms in a claim's file, with the keys of the first claims, in which a
    callback had no name."""
    arms = ((load_yaml(text) or {}).get("claim") or {}).get("arms") or {}
    return {arm: [CALLBACK.sub("callbacks.", x) for x in given] for arm, given in arms.items()}


@functools.cache
def criterion(text: str) -> list[JsonObject]:
    """Return what decides a claim, of its file: seeds, measures and bounds. Seeds are a part:
    who asks for more after a look stops when the result suits him."""
    claim = (load_yaml(text) or {}).get("claim") or {}
    runs = {field: claim.get(field, default) for field, default in RUN_FIELDS.items()}
    tests = claim.get("tests", [])
    return [runs, *({field: test.get(field) for field in CRITERION_FIELDS} for test in tests)]


@functools.cache
def restrictions(text: str) -> frozenset[str]:
    """Return what makes a claim's verdict more careful, of its file, which may be added after its
    runs and not taken away: `undecided`, and the overrides of the arms' `neighbours`."""
    claim = (load_yaml(text) or {}).get("claim") or {}
    beside, arms = claim.get("neighbours") or {}, _arms(text)
    found = {
        f"neighbour {' '.join(arms.get(other, ()))} of {arm}"
        for arm, others in beside.items()
        for other in others
    }
    return frozenset(found | {"undecided"} if claim.get("undecided") else found)
