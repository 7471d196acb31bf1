"""A run counts for a claim whose criterion its commit holds; a later criterion needs other seeds."""

from collections.abc import Callable
from typing import Any

import pytest

from made_up import altered, training
from rectifiers.results.claims import PLACE, claims
from rectifiers.results.criteria import check, criterion
from rectifiers.runtime.errors import InputError

CLAIM = next(claim for claim in claims() if claim.name == "table2")
TEXT = (PLACE / "table2.yaml").read_text()


def committed(**files: str | None) -> Callable[[str, str], str | None]:
    """Return a history of commits by their names, each with its text of the claim's file; all have a README."""
    return lambda commit, path: ("read me" if path == "README.md" else files[commit]) if commit in files else None


def runs(**commits: int) -> Any:
    made = {
        commit: altered(training(), {"provenance.git_sha": commit, "science.seed": seed})
        for commit, seed in commits.items()
    }
    return {"prelu": {each.seed: each for each in made.values()}}


def test_the_criterion_of_the_commit_has_to_be_the_present_one_whatever_its_words() -> None:
    reworded = TEXT.replace("says: ", "says: that ").replace("statement: ", "statement: It is said that ")
    assert reworded != TEXT
    assert criterion(reworded) == criterion(TEXT)
    from_zero = TEXT.replace("  first_seed: 20\n", "")
    assert criterion(from_zero.replace("seeds: 20", "seeds: 20\n  first_seed: 0")) == criterion(from_zero)
    assert check([(CLAIM, runs(old=0, new=1))], committed(old=reworded, new=TEXT)) == set()


@pytest.mark.parametrize(
    "then",
    [
        TEXT.replace("below: -0.2", "below: -0.1"),
        TEXT.replace("of: prelu", "of: relu"),
        TEXT.replace("  seeds: 20", "  seeds: 18"),  # two more were asked for after a look
        TEXT.replace("  seeds: 20", "  seeds: 22"),
        TEXT.replace("first_seed: 20", "first_seed: 3"),
        None,
    ],
)
def test_a_run_that_is_older_than_its_criterion_is_one_sentence(then: str | None) -> None:
    assert then != TEXT
    sentence = (
        r"claim/table2 is judged by a criterion or a number of seeds that commit old, which ran its seed 3, does not "
        r"hold; .*first_seed: 40"
    )
    with pytest.raises(InputError, match=sentence):
        check([(CLAIM, runs(old=3, new=1))], committed(old=then, new=TEXT))


def test_commits_that_are_not_known_are_named() -> None:
    assert check([(CLAIM, runs(gone=0, new=1))], committed(new=TEXT)) == {"gone"}
