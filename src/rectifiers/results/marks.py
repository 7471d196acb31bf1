"""Which committed records are older than a change that can move a number.

CHANGELOG.md marks such a change **[number]**. A mark is dated by the commit that wrote it first; a
later one that only rewords it is none. Whether a mark concerns a record, nobody can compute: which
ones came after it is listed."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rectifiers.results import claim_records
from rectifiers.results.benchmark import card, entries
from rectifiers.results.eligibility import CLAIM
from rectifiers.runs import record as records
from rectifiers.runs.record import Record
from rectifiers.runtime.files import CHECKOUT, git

MARK, CHANGELOG = "**[number]**", "CHANGELOG.md"
BETWEEN = "\x1e"  # commits, in what git prints
WITHOUT_COMMIT = (
    "initialization.json",
    "residual.json",
    "numerical_floor.csv",
)  # they are as old as their last commit
Run = Callable[..., str | None]  # git's arguments -> what it prints, None where it fails


@dataclass(frozen=True)
class Mark:
    """A commit that marked a change."""

    commit: str
    title: str

    def __str__(self) -> str:
        return f"{self.commit[:8]} ({self.title})"


@dataclass(frozen=True)
class Origin:
    """What made a committed number: `of` names it in words, `code` is the fingerprint of the
    source, where known."""

    of: str
    commit: str
    code: str | None = None


@dataclass(frozen=True)
class Age:
    """Origins by the marks that came after them, oldest first, and those whose code is in no commit
    of the history."""

    older: dict[tuple[Mark, ...], list[str]]
    unknown: list[str]

    def __str__(self) -> str:
        said = []
        if self.older:
            said.append(
                "Older than changes that CHANGELOG.md marks [number]; its entries say whether "
                "a change concerns them:"
            )
        for later, names in self.older.items():
            more = f", and than {len(later) - 1} later" if len(later) > 1 else ""
            said.append(f"- than {later[0]}{more}: {', '.join(names)}")
        if self.unknown:
            said.append(f"Of code that is in no commit of this history: {', '.join(self.unknown)}")
        return "\n".join(said)


def run_git(*arguments: str) -> str | None:
    """Return what git prints in the checkout, None where it fails."""
    return git(*arguments, at=CHECKOUT) if CHECKOUT else None


def marks(run: Run = run_git) -> list[Mark]:
    """Return the commits that marked a change that can move a number, oldest first."""
    found: list[Mark] = []
    known: set[str] = set()
    history = (
        run("log", "--reverse", "--unified=0", "-p", f"--format={BETWEEN}%H %s", "--", CHANGELOG)
        or ""
    )
    for text in history.split(BETWEEN)[1:]:
        head, *lines = text.splitlines()
        added, removed = (
            [line[1:] for line in lines if line.startswith(sign) and MARK in line] for sign in "+-"
        )
        if len(added) > len(removed) and not known.issuperset(added):
            commit, _, title = head.partition(" ")
            found.append(Mark(commit, title))
        known.update(added)
    return found


def ages(origins: Sequence[Origin], run: Run = run_git) -> Age:
    """Return which marks came after each origin.

    A commit that is not in the history, as after a rebase, is as old as one of the origins with the
    same code. Without the whole history nothing can be said, and nothing is."""
    if run("rev-parse", "--is-shallow-repository") != "false":
        return Age({}, [])
    every = marks(run)
    in_history = functools.cache(
        lambda commit: run("merge-base", "--is-ancestor", commit, "HEAD") is not None
    )
    commits = functools.cache(
        lambda commit: set((run("rev-list", f"{commit}..HEAD") or "").split())
    )
    by_code = {each.code: each.commit for each in origins if each.code and in_history(each.commit)}
    older: dict[tuple[Mark, ...], list[str]] = {}
    unknown: list[str] = []
    for each in origins:
        commit = each.commit if in_history(each.commit) else by_code.get(each.code or "")
        if commit is None:
            unknown.append(f"{each.of} (commit {each.commit[:8]})")
        elif later := tuple(mark for mark in every if mark.commit in commits(commit)):
            older.setdefault(later, []).append(each.of)
    named = {
        later: sorted(set(names))
        for later, names in sorted(older.items(), key=lambda item: -len(item[0]))
    }
    return Age(named, sorted(set(unknown)))


def origins(results: Path, run: Run = run_git) -> list[Origin]:
    """Return what made the records, results, cards and measurements in `results`."""
    found = [_of(record) for record in claim_records.load(results / "claims")]
    found += [_of(records.load(path)) for path in sorted((results / "records").glob("*.json"))]
    for name, entry in entries.load_all(results / "benchmark").items():
        found += [
            Origin(f"benchmark/{name}", str(each.git_sha), each.code) for each in entry.origins
        ]
    for path in sorted((results / "cards").glob("*.json")):
        own = card.load(path)
        found.append(Origin(f"cards/{path.stem}", str(own.git_sha), own.code))
    found += [
        Origin(name, run("log", "-1", "--format=%H", "--", str(results / name)) or "HEAD")
        for name in WITHOUT_COMMIT
    ]
    return found


def _of(record: Record) -> Origin:
    choices = record.choices
    name = str(choices.get("experiment"))
    return Origin(
        name if name.startswith(CLAIM) else f"{name} on {choices.get('data')}",
        str(record.provenance.git_sha),
        record.provenance.code,
    )
