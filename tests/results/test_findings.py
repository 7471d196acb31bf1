"""The page of findings: the chosen claims in their order, then all that is inconclusive."""

from dataclasses import replace

import pytest

from rectifiers.results import findings
from rectifiers.results.claims import Answer, answer, claims
from rectifiers.results.verdicts import Verdict, judge
from rectifiers.runtime.errors import InputError


@pytest.fixture
def unrun() -> list[Answer]:
    return [answer(claim, []) for claim in claims()]


def test_the_chosen_claims_stand_in_their_order_with_their_commands(unrun: list[Answer]) -> None:
    page = findings.render_markdown(unrun)
    places = [page.index(f"claims.py run {name}`") for name in findings.chosen()]
    assert places == sorted(places)
    assert len(places) == 10
    assert page.count(": not run.**") == 10
    assert page.endswith("with the power that they had.\n\nNone.\n")


def test_whatever_is_inconclusive_is_on_the_page_once(unrun: list[Answer]) -> None:
    names = [findings.chosen()[0], "biases", "leaky_relu"]
    for each in unrun:
        if each.claim.name in names:
            unrun[unrun.index(each)] = Answer(each.claim, Verdict.INCONCLUSIVE, each.tested)
    page = findings.render_markdown(unrun)
    for name in names:
        assert page.count(f"claims.py run {name}`") == 1
    assert page.index("## Inconclusive") < page.index("claims.py run biases`")


def test_a_difference_stands_behind_the_means_of_its_arms_and_counts_what_diverged(unrun: list[Answer]) -> None:
    asked = next(each for each in unrun if each.claim.name == "cifar_table2")
    tested = asked.tested[0]
    finding = judge([-15.0, -17.0, -16.0, -16.0, -16.0], 5, "mean", tested.test.criterion)
    found = replace(tested, finding=finding, lost=1, measured=[(28.0, 43.0), (30.0, 47.0), (29.0, 45.0)])
    unrun[unrun.index(asked)] = Answer(asked.claim, Verdict.INCONCLUSIVE, [found])
    page = findings.render_markdown(unrun)
    assert "ten views, prelu minus relu (29 and 45): -16 (-16.9 to -15.1), n = 5, 1 run diverged:" in page


def test_a_chosen_claim_that_does_not_exist_is_one_sentence(unrun: list[Answer]) -> None:
    with pytest.raises(InputError, match=r"findings.yaml names figure3, which is not a claim"):
        findings.render_markdown([each for each in unrun if each.claim.name != "figure3"])
