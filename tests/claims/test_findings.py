"""The page of findings: the chosen claims in their order, then all that is inconclusive or
contradicted, and what is not run."""

from dataclasses import replace

import pytest

from rectifiers.claims.claims import claims
from rectifiers.claims.judge import ClaimResult, Verdict, answer, judge
from rectifiers.claims.report import chosen, findings_page
from rectifiers.runtime.errors import InputError

FIRST = next(iter(chosen()))


@pytest.fixture
def unrun() -> dict[str, ClaimResult]:
    return {claim.name: answer(claim, []) for claim in claims()}


def test_chosen_claims_come_first_and_all_others_once(unrun: dict[str, ClaimResult]) -> None:
    page = findings_page(list(unrun.values()))
    first, _, rest = page.partition("## Inconclusive")
    places = [first.index(f"claims.py run {name}`") for name in chosen()]
    assert places == sorted(places)
    below = first.index("`fisher_output_start`")
    assert first.index("run fisher_large_trained`") < below < first.index("run std_001`")
    assert rest.count("None.") == 2
    named = {name for top, names in chosen().items() for name in (top, *names)}
    for name in unrun.keys() - named:
        claim = unrun[name].claim
        reason = claim.not_run or f"`python scripts/claims.py run {name}`"
        assert rest.count(f"- {claim.statement}: {reason}\n") == 1, name


@pytest.mark.parametrize("verdict", [Verdict.INCONCLUSIVE, Verdict.CONTRADICTED])
def test_a_claim_of_either_verdict_has_one_line(
    unrun: dict[str, ClaimResult], verdict: Verdict
) -> None:
    for name in (FIRST, "tanh_slower"):
        (test, *_) = unrun[name].tests
        values = [-1.0, -1.1, -0.9, -1.0, -1.0]
        finding = judge(values, 5, "mean", test.test.criterion)
        unrun[name] = ClaimResult(unrun[name].claim, verdict, [replace(test, finding=finding)])
    page = findings_page(list(unrun.values()))
    section = page.partition(f"## {verdict.capitalize()}\n\n")[2].partition("\n\n")[0]
    (line,) = section.splitlines()
    assert line.startswith(f"- **{unrun['tanh_slower'].claim.statement}: {verdict}.** ")
    assert "tanh minus relu: -1 (-1.09 to -0.912)" in line
    assert page.count(f"`python scripts/claims.py run {FIRST}`") == 1


def test_an_unknown_chosen_claim_is_named(unrun: dict[str, ClaimResult]) -> None:
    del unrun["figure3"]
    with pytest.raises(InputError, match=r"findings.yaml names figure3, which is not a claim"):
        findings_page(list(unrun.values()))
