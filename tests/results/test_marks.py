"""Which records are older than a change that CHANGELOG.md marks."""

import subprocess
from pathlib import Path

import pytest

from rectifiers.results.marks import MARK, Origin, Run, ages, marks


class Repository:
    """A small one, whose commits are a line of CHANGELOG.md each."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.git("init", "--quiet")

    def git(self, *arguments: str) -> str | None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        done = subprocess.run(
            ["git", *who, *arguments], cwd=self.place, capture_output=True, text=True
        )
        return done.stdout.strip() if done.returncode == 0 else None

    def commit(self, title: str, *lines: str) -> str:
        (self.place / "CHANGELOG.md").write_text("\n".join(lines) + "\n")
        self.git("add", ".")
        assert self.git("commit", "--allow-empty", "--quiet", "-m", title) is not None
        return str(self.git("rev-parse", "HEAD"))


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


@pytest.mark.process
def test_a_record_is_older_than_the_marks_that_came_after_its_commit(
    repository: Repository,
) -> None:
    run: Run = repository.git
    first = repository.commit("Begin", "a")
    moved = repository.commit("Move a number", "a", f"{MARK} b")
    between = repository.commit("Say nothing", "a", f"{MARK} b", "c")
    repository.commit("Move another", "a", f"{MARK} b", "c", f"- {MARK} d")
    last = repository.commit("Say it in other words", "a", f"{MARK} B", f"{MARK} D", "c")
    assert [mark.title for mark in marks(run)] == ["Move a number", "Move another"]
    found = ages(
        [
            Origin(name, commit)
            for name, commit in zip("abcd", (first, moved, between, last), strict=True)
        ],
        run,
    )
    assert {tuple(mark.title for mark in later): names for later, names in found.older.items()} == {
        ("Move a number", "Move another"): ["a"],
        ("Move another",): ["b", "c"],
    }
    assert found.unknown == []
    assert f"- than {moved[:8]} (Move a number), and than 1 later: a" in str(found)


@pytest.mark.process
def test_code_of_no_commit_in_the_history_is_unknown_unless_another_record_has_it(
    repository: Repository,
) -> None:
    run: Run = repository.git
    first = repository.commit("Begin", "a")
    repository.commit("Move a number", f"{MARK} b")
    lost = "0" * 40
    found = ages(
        [
            Origin("kept", first, "c0de"),
            Origin("rebased", lost, "c0de"),
            Origin("lost", lost, "other"),
        ],
        run,
    )
    assert list(found.older.values()) == [["kept", "rebased"]]
    assert found.unknown == ["lost (commit 00000000)"]


def test_without_a_history_nothing_is_said() -> None:
    found = ages([Origin("a", "0" * 40)], lambda *arguments: None)
    assert (found.older, found.unknown, str(found)) == ({}, [], "")
