"""The pages of findings and questions: words from the claims' effects, in rows."""

from pathlib import Path

import pytest
import yaml

from made_up import altered
from made_up_claims import BASE, LOST, runs
from rectifiers.claims.claims import Claim, claims
from rectifiers.claims.judge import ClaimResult, Verdict, answer
from rectifiers.claims.report import FOLDER, Effect, answer_rows, claim_page, pages
from rectifiers.runtime.errors import InputError

DOWN = [b - x for b, x in zip(BASE, (1.0, 1.1, 0.9, 1.0, 1.0), strict=True)]


def row(tmp_path: Path, result: ClaimResult, words: str) -> list[str]:
    path = tmp_path / "rows.yaml"
    entry = {"question": "Which?", "paper": "That.", "find": {result.claim.name: words}}
    path.write_text(yaml.safe_dump([entry]))
    return answer_rows(path, [result])[1]


@pytest.mark.parametrize(
    ("effect", "spec", "text"),
    [
        (Effect(5, -16.9, -19.7, -14.1), "the error|points", "lowers the error by 16.9 points"),
        (Effect(5, 11.4, 10.0, 12.7), "the loss", "raises the loss by 11.4 (10 to 12.7), n = 5"),
        (Effect(5, -0.3, -1.0, 0.4), "it|points", "changes it by -0.3 points (-1 to 0.4), n = 5"),
        (Effect(4, 0.86, 0.81, 0.9), "", "0.86 (0.81 to 0.9), n = 4"),
        (Effect(6, 1.0, 0.541, 1.0, True), "train", "6 of 6 seeds train (95 % CI 54-100 %)"),
    ],
)
def test_words_follow_the_effect_and_its_interval(effect: Effect, spec: str, text: str) -> None:
    assert format(effect, spec).startswith(text)


def test_a_row_has_words_evidence_and_verdict(made_up, tmp_path: Path) -> None:
    result = answer(made_up(), runs(DOWN, BASE))
    question, paper, words, evidence, verdict = row(tmp_path, result, "{answer}: it {0:the error}.")
    assert (question, paper) == ("Which?", "That.")
    assert words == "Yes: it lowers the error by 1 (0.912 to 1.09), n = 5."
    assert evidence.endswith("(figures/claims/made_up.svg)")
    assert verdict == "supported ([made_up](claims/made_up.md))"
    lost = [altered(run, LOST) if run.seed == 0 else run for run in runs(DOWN, BASE)[:1]]
    result = answer(made_up(), [*lost, *runs(DOWN, BASE)[1:]])
    words = row(tmp_path, result, "{t0:it}; {lost} diverged")[2]
    assert words == "lowers it by 1 (0.87 to 1.13), n = 4; 1 of 5 diverged"


def test_claims_without_runs_have_a_verdict_alone(made_up, tmp_path: Path) -> None:
    cells = row(tmp_path, answer(made_up(), []), "{0}")
    assert cells[2:] == ["not run", "-", "not run ([made_up](claims/made_up.md))"]


def test_what_a_row_names_and_is_not_there_is_refused(made_up, tmp_path: Path) -> None:
    result = answer(made_up(), runs(DOWN, BASE))
    with pytest.raises(InputError, match=r"rows.yaml: made_up has no .*d7"):
        row(tmp_path, result, "{d7}")
    with pytest.raises(InputError, match=r"findings.yaml names \w+, which is not a claim"):
        answer_rows(FOLDER / "findings.yaml", [result])


def test_all_claims_have_a_page_and_ten_findings_a_row() -> None:
    texts = pages([answer(claim, []) for claim in claims()])
    assert texts["FINDINGS.md"].count("\n| ") == 1 + 10
    for claim in claims():
        assert texts[f"claims/{claim.name}.md"].startswith(f"# {claim.statement}\n"), claim.name
        assert texts["CLAIMS.md"].count(f"(claims/{claim.name}.md)") == 1
    changed = yaml.safe_load((FOLDER / "changes.yaml").read_text())
    assert changed.keys() <= {claim.name for claim in claims()}


def test_a_withdrawn_claim_keeps_its_numbers(made_up) -> None:
    claim: Claim = made_up(withdrawn="It cannot answer.")
    result = answer(claim, runs(DOWN, BASE))
    assert result.verdict is Verdict.WITHDRAWN
    assert result.tests[0].finding.verdict is Verdict.SUPPORTED
    page = claim_page(result, [])
    assert "**Withdrawn**: It cannot answer." in page
    assert "| -1 (-1.09 to -0.912) |" in page
