"""The page of findings: the chosen claims in their order, then all that is inconclusive or
contradicted."""

import re
from dataclasses import replace

import pytest

from rectifiers.claims.claims import claims
from rectifiers.claims.judge import ClaimResult, Verdict, answer, judge
from rectifiers.claims.report import chosen, findings_page
from rectifiers.runtime.errors import InputError


@pytest.fixture
def unrun() -> list[ClaimResult]:
    return [answer(claim, []) for claim in claims()]


def test_chosen_claims_stand_in_order_with_their_commands(
    unrun: list[ClaimResult],
) -> None:
    page = findings_page(unrun)
    places = [page.index(f"claims.py run {name}`") for name in list(chosen())]
    assert places == sorted(places)
    assert len(places) == 10
    assert [line.partition(".")[0] for line in page.splitlines() if line[:1].isdigit()] == [
        str(1 + i) for i in range(10)
    ]
    assert "## Inconclusive\n\nNone.\n\n## Contradicted\n\nNone.\n" in page
    first = page.partition("## Inconclusive")[0]
    left = [each for each in unrun if not re.search(f"[ `]{each.claim.name}`", first)]
    lines = page.partition("still to be run, or cannot be.\n\n")[2].splitlines()
    assert len(lines) == len(left)
    assert (
        "- PReLU beats ReLU on Fashion-MNIST: cifar_table2 asks the same of natural images, "
        "and no runs of " in page
    )
    assert all(
        f": `python scripts/claims.py run {each.claim.name}`" in page
        for each in left
        if not each.claim.not_run
    )
    below = "    - **At the start PReLU pushes the off-diagonals of the output"
    assert page.index("run fisher_large_trained") < page.index(below) < page.index("run std_001")


def test_whatever_is_inconclusive_is_on_the_page_once(unrun: list[ClaimResult]) -> None:
    names = [next(iter(chosen())), "biases", "leaky_relu"]
    for each in unrun:
        if each.claim.name in names:
            unrun[unrun.index(each)] = ClaimResult(each.claim, Verdict.INCONCLUSIVE, each.tests)
    page = findings_page(unrun)
    first, *others = names
    assert page.count(f"`python scripts/claims.py run {first}`") == 1
    assert f"`{first}`" not in page
    for name in others:
        assert page.count(f" `{name}`") == 1
        assert (
            page.index("## Inconclusive") < page.index(f"`{name}`") < page.index("## Contradicted")
        )
    assert (
        "give a lower error than biases of 0: inconclusive.** Lower top-1 error, small minus zero: "
        in page
    )


def test_whatever_else_is_contradicted_has_a_line(unrun: list[ClaimResult]) -> None:
    for each in unrun:
        if each.claim.name in (next(iter(chosen())), "tanh_slower"):
            (tested, *_) = each.tests
            found = replace(
                tested,
                finding=judge([-1.0, -1.1, -0.9, -1.0, -1.0], 5, "mean", tested.test.criterion),
            )
            unrun[unrun.index(each)] = ClaimResult(each.claim, Verdict.CONTRADICTED, [found])
    lines = (
        findings_page(unrun).partition("## Contradicted\n\n")[2].partition("\n\n")[0].splitlines()
    )
    assert len(lines) == 1
    assert lines[0].startswith(
        "- **Tanh trains more slowly than ReLU, each at its own best learning rate: "
        "contradicted.** "
    )
    assert "tanh minus relu: -1 (-1.09 to -0.912)" in lines[0]


def test_an_unknown_chosen_claim_is_named(unrun: list[ClaimResult]) -> None:
    with pytest.raises(InputError, match=r"findings.yaml names figure3, which is not a claim"):
        findings_page([each for each in unrun if each.claim.name != "figure3"])
