"""The pages of findings and questions: words from the claims' effects, in rows."""

import re
from pathlib import Path

import yaml

from conftest import ROOT
from made_up import altered
from made_up_claims import BASE, LOST, runs
from rectifiers.claims.claims import Claim, claims
from rectifiers.claims.judge import ClaimResult, Verdict, answer
from rectifiers.claims.page import FOLDER, claim_page
from rectifiers.claims.report import answer_rows, pages

RESULTS = ROOT / "results"
DOWN = [b - x for b, x in zip(BASE, (1.0, 1.1, 0.9, 1.0, 1.0), strict=True)]


def row(tmp_path: Path, result: ClaimResult, words: str) -> list[str]:
    path = tmp_path / "rows.yaml"
    entry = {"question": "Which?", "paper": "That.", "find": {result.claim.name: words}}
    path.write_text(yaml.safe_dump([entry]))
    return answer_rows(path, [result])[1]


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


def test_all_claims_have_a_page() -> None:
    texts = pages([answer(claim, []) for claim in claims()])
    assert len(re.findall(r"^\| \w", texts["FINDINGS.md"], re.M)) == 1 + 10
    for claim in claims():
        assert texts[f"claims/{claim.name}.md"].startswith(f"# {claim.statement}\n"), claim.name
        assert texts["CLAIMS.md"].count(f"(claims/{claim.name}.md)") == 1
    changed = yaml.safe_load((FOLDER / "changes.yaml").read_text())
    assert changed.keys() <= {claim.name for claim in claims()}


def test_report_has_negative_results_first() -> None:
    negative, positive = (RESULTS / "REPORT.md").read_text().split("### Supported")
    rows = (RESULTS / "FINDINGS.md").read_text()
    for name in re.findall(r"contradicted \(\[(\w+)\]", rows):
        assert f"[{name}]" in negative.partition("## Results")[2], name
    assert "## What was easy" in positive


def test_a_withdrawn_claim_keeps_its_numbers(made_up) -> None:
    claim: Claim = made_up(withdrawn="It cannot answer.")
    result = answer(claim, runs(DOWN, BASE))
    assert result.verdict is Verdict.WITHDRAWN
    assert result.tests[0].finding.verdict is Verdict.SUPPORTED
    page = claim_page(result, [])
    assert "**Withdrawn**: It cannot answer." in page
    assert "| -1 points (-1.09 to -0.912) |" in page
