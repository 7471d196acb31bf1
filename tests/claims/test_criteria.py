"""A run counts for a claim whose criterion its commit holds; a later criterion needs other
seeds."""

import csv
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from conftest import compose_config
from made_up import altered, training
from made_up_claims import DESCRIBED
from rectifiers.claims.claims import PLACE, claims
from rectifiers.claims.criteria import EARLIER, check_criteria, criterion, restrictions
from rectifiers.results.origin import machine_of
from rectifiers.runs.identity import run_id, science
from refusals import refused

CLAIM = next(claim for claim in claims() if claim.name == "mean_response")
TEXT = (PLACE / "mean_response.yaml").read_text()


def committed(**files: str | None) -> Callable[[str, str], str | None]:
    """Return a history of commits by their names, each with its text of the claim's file; all have
    a README."""
    return lambda commit, path: (
        ("read me" if path == "README.md" else files[commit]) if commit in files else None
    )


def runs(**commits: int) -> Any:
    keys = ("provenance.git_sha", "science.seed")
    made = [altered(training(), dict(zip(keys, item, strict=True))) for item in commits.items()]
    return {"prelu": {each.seed: each for each in made}}


def test_rewording_a_claim_keeps_its_criterion() -> None:
    reworded = TEXT.replace("says: ", "says: that ").replace(
        "statement: ", "statement: It is said that "
    )
    assert reworded != TEXT
    assert criterion(reworded) == criterion(TEXT)
    from_zero = TEXT.replace("  first_seed: 20\n", "")
    assert criterion(from_zero.replace("seeds: 20", "seeds: 20\n  first_seed: 0")) == criterion(
        from_zero
    )
    assert check_criteria([(CLAIM, runs(old=0, new=1))], committed(old=reworded, new=TEXT)) == set()


@pytest.mark.parametrize(
    "then",
    [
        TEXT.replace("below: -0.05", "below: -0.04"),
        TEXT.replace("  seeds: 20", "  seeds: 18"),  # two more were asked for after a look
        TEXT.replace("first_seed: 20", "first_seed: 3"),
        None,
    ],
)
def test_a_run_older_than_its_criterion_is_refused(then: str | None) -> None:
    assert then != TEXT
    with refused(r"claim/mean_response .*commit old,.* seed 3, .*first_seed: 40"):
        check_criteria([(CLAIM, runs(old=3, new=1))], committed(old=then, new=TEXT))


def test_arm_chosen_after_its_runs_is_refused() -> None:
    then = TEXT.replace("activation=prelu", "activation=prelu, activation.init=0.1")
    assert then != TEXT
    assert criterion(then) == criterion(TEXT)
    with refused(r"claim/mean_response: arm prelu .* commit old.*first_seed: 40"):
        check_criteria([(CLAIM, runs(old=3, new=1))], committed(old=then, new=TEXT))


@pytest.mark.parametrize(
    ("given", "dropped"),
    [
        ("undecided: its rates differ", "undecided"),
        ("neighbours: {relu: [prelu]}", "neighbour activation=prelu.* of relu"),
    ],
)
def test_what_makes_a_verdict_careful_is_not_taken_away(given: str, dropped: str) -> None:
    careful = TEXT.replace("  seeds: 20", f"  {given}\n  seeds: 20")
    assert criterion(careful) == criterion(TEXT)
    assert restrictions(TEXT) == set() < restrictions(careful)

    def versions(path: str) -> list[str]:
        return ["new", "between"] if path == "conf/claim/mean_response.yaml" else []

    texts = committed(old=TEXT, between=careful, new=TEXT)
    with refused(rf"claim/mean_response has lost {dropped}.*, which commit between holds"):
        check_criteria([(CLAIM, runs(old=3))], texts, versions)
    assert check_criteria([(CLAIM, {"prelu": {}})], texts, versions) == set()  # before any run
    added = committed(old=TEXT, between=TEXT, new=TEXT)
    assert check_criteria([(CLAIM, runs(old=3))], added, versions) == set()


def test_older_arm_may_precede_its_claim() -> None:
    older = CLAIM.model_copy(update={"older": ("prelu",)})
    elsewhere = committed(old=None, new=TEXT)
    assert check_criteria([(older, runs(old=3, new=1))], elsewhere) == set()
    then = TEXT.replace("below: -0.05", "below: -0.04")  # the claim stood, with another criterion
    with refused("commit old"):
        check_criteria([(older, runs(old=3, new=1))], committed(old=then, new=TEXT))
    relu = {"relu": runs(old=3)["prelu"]}
    with refused("commit old"):
        check_criteria([(older, relu)], elsewhere)


def test_a_test_of_older_arms_alone_is_refused(made_up) -> None:
    assert made_up(older=["worse"]).older == ("worse",)
    with refused("'lower error' has only arms that are older"):
        made_up(older=["worse", "better"])
    with refused("older arms names an arm third"):
        made_up(older=["third"])


@pytest.mark.parametrize(
    "arms",
    [
        {"of": "better", "minus": "better"},
        {"of": "better", "minus": "worse", "since": ["third", "third"]},  # cancels a new arm
        {"of": "third", "minus": "worse", "since": ["third", "better"]},
    ],
)
def test_arm_that_cancels_is_refused(made_up, arms) -> None:
    (test,) = yaml.safe_load(DESCRIBED)["tests"]
    named = {"better": [], "worse": [], "third": ["optim.lr=3"]}
    with refused("names an arm twice"):
        made_up(arms=named, older=["better", "worse"], tests=[{**test, **arms}])


@pytest.mark.parametrize("folder", ["conf/claim", "conf/experiment/claim"])
def test_criterion_is_read_at_both_paths(folder: str) -> None:
    texts = {"README.md": "read me", f"{folder}/mean_response.yaml": TEXT}
    made = [(CLAIM, runs(old=3))]
    assert check_criteria(made, lambda commit, path: texts.get(path)) == set()
    texts[f"{folder}/mean_response.yaml"] = TEXT.replace("below: -0.05", "below: -0.04")
    with refused("commit old"):
        check_criteria(made, lambda commit, path: texts.get(path))


def test_commits_that_are_not_known_are_named() -> None:
    assert check_criteria([(CLAIM, runs(gone=0, new=1))], committed(new=TEXT)) == {"gone"}


@pytest.mark.parametrize("table", ["/runs.csv", ".csv"])
def test_a_rerun_seed_cannot_answer_a_new_criterion(table: str) -> None:
    made = runs(new=21)
    name = made["prelu"][21].run
    changed = TEXT.replace("below: -0.05", "below: -0.04")

    def history(rows: str, then: str = changed) -> Callable[[str, str], str | None]:
        texts = {("before", "csv"): rows, ("before", "yaml"): then}
        texts |= {("new", "csv"): rows, ("new", "yaml"): TEXT}
        return lambda commit, path: (
            "read me" if path == "README.md" else texts[commit, path.rpartition(".")[2]]
        )

    def versions(path: str) -> list[str]:
        return ["new", "before"] if path == f"results/claims/mean_response{table}" else []

    def row(run: str, code: str, seed: int = 21) -> str:
        return f'seed,arm,run,code,machine\n{seed},prelu,{run},{code},"{machine}"\n'

    machine, earlier = machine_of(made["prelu"][21]), "0" * 12
    answered, others = row(name, "older"), row(earlier, "older")
    with refused(r"answered in commit before by its seed 21 under"):
        check_criteria([(CLAIM, made)], history(answered), versions)
    # all ids changed once: the run of this code had another one, under which it was answered before
    renamed = answered.replace(name, earlier) + row(earlier, "c0de").splitlines()[1]
    with refused(r"answered in commit before by its seed 21 under"):
        check_criteria([(CLAIM, made)], history(renamed), versions)
    # the seed of another setting
    assert check_criteria([(CLAIM, made)], history(others), versions) == set()
    reworded = TEXT.replace("says: ", "says: that ")
    assert check_criteria([(CLAIM, made)], history(answered, reworded), versions) == set()


def test_retired_seed_is_known_by_earlier_id() -> None:
    """A seed without a record any more: its run would have another id now."""
    rows = csv.DictReader(EARLIER.read_text().splitlines())
    kept = next(row for row in rows if row["claim"] == CLAIM.name and row["arm"] == "prelu")
    seed, earlier = int(kept["seed"]), kept["earlier_run"]
    typed = (f"claim={CLAIM.name}", *CLAIM.arms["prelu"], f"seed={seed}")
    assert run_id(science(compose_config(*typed))) == kept["run"]
    again = runs(new=seed)["prelu"][seed].model_copy(update={"run": kept["run"]})
    changed = TEXT.replace("below: -0.05", "below: -0.04")

    def read(commit: str, path: str) -> str:
        table = f"seed,arm,run,code,machine\n{seed},prelu,{earlier},older,another\n"
        return table if path.endswith(".csv") else TEXT if commit == "new" else changed

    def versions(path: str) -> list[str]:
        return [] if path.endswith("runs.csv") else ["before"]

    with refused(rf"answered in commit before by its seed {seed} under"):
        check_criteria([(CLAIM, {"prelu": {seed: again}})], read, versions)
