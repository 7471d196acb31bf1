"""The pages of findings: words from the claims' effects, in rows."""

import re
from dataclasses import replace
from unittest.mock import patch

import pytest
import yaml

from conftest import ROOT
from made_up import altered
from made_up_claims import BASE, LOST, record, runs
from rectifiers.claims.claim_page import claim_page
from rectifiers.claims.claims import Claim, claims
from rectifiers.claims.documents import (
    answer_rows,
    claims_page,
    counts_table,
    independent_groups,
    lessons_page,
    pages,
)
from rectifiers.claims.judge import ClaimResult, Verdict, answer
from rectifiers.claims.readme import readme_rows, readme_tables
from rectifiers.results.documents import TEXT
from rectifiers.runs.record import TrainingRecord
from refusals import refused

RESULTS = ROOT / "results"
DOWN = [b - x for b, x in zip(BASE, (1.0, 1.1, 0.9, 1.0, 1.0), strict=True)]


def row(result: ClaimResult, words: str) -> list[str]:
    entry = {"question": "Which?", "paper": "That.", "find": {result.claim.name: words}}
    return answer_rows([entry], [result])[1]


def test_a_row_has_words_evidence_and_verdict(made_up) -> None:
    result = answer(made_up(), runs(DOWN, BASE))
    question, paper, words, evidence, verdict = row(
        result, "{{ answer }}: it {{ tests[0].changes('the error') }}."
    )
    assert (question, paper) == ("Which?", "That.")
    assert words == "Yes: it lowers the error by 1 (0.912 to 1.09), n = 5."
    assert evidence.endswith("(claims/made_up/figure.svg)")
    assert verdict == "seen here at one length ([made_up](claims/made_up/page.md))"
    lost = [altered(run, LOST) if run.seed == 0 else run for run in runs(DOWN, BASE)[:1]]
    result = answer(made_up(), [*lost, *runs(DOWN, BASE)[1:]])
    words = row(result, "{{ trained[0].changes('it') }}; {{ lost }} diverged")[2]
    assert words == "lowers it by 1 (0.87 to 1.13), n = 4; 1 of 5 diverged"


def test_facts_of_the_runs_stand_beside_verdicts(made_up) -> None:
    widths = {1: 1.5, 2: 2.0}  # by seed
    made = [
        altered(run, {"science.model.width": widths[run.seed], "network.classes": 200})
        if run.seed in widths
        else run
        for run in runs(DOWN, BASE)
    ]
    result = replace(answer(made_up(), runs(DOWN, BASE)), records=made)
    facts = "mlp of 3 layers at width 1, 1.5 or 2, 3 epochs"
    evidence = row(result, "x")[3]
    for text in (evidence, claims_page([result])):
        assert "digits8 (10 classes) at 8 px, digits8 (200 classes) at 8 px" in text
        assert facts in text
    assert "mlp of 3 layers at width 1, 1.5 or 2 (1,000 parameters)" in claim_page(result, made)


@pytest.mark.parametrize(
    "words",
    [
        "{{ tests[9].with_n() }}",
        "{{ luck }}",
        "{{ tests[0].changes() }}",
        "{{ tests[0].seeds('train') }}",  # a difference
        "{{ answer | luck }}",
        "{{ tests[0].__class__.__init__.__globals__ }}",  # nothing beyond a finding
        "{{ answer.__class__.__mro__ }}",
    ],
)
def test_words_that_cannot_be_filled_in_are_refused(made_up, words: str) -> None:
    with refused("cannot be filled in"):
        row(answer(made_up(), runs(DOWN, BASE)), words)


def test_readme_shows_what_is_judged_and_says_what_is_not(made_up) -> None:
    claim = made_up()
    judged = answer(claim, runs(DOWN, BASE))
    empty = answer(claim, [])
    empty = replace(empty, claim=claim.model_copy(update={"name": "empty"}))
    by_name = {"empty": empty, "made_up": judged}
    words = "It {{ tests[0].changes('the error') }}."
    by_name["again"] = replace(judged, claim=claim.model_copy(update={"name": "again"}))
    entry = {"says": "Which?", "find": {"empty": words, "made_up": words, "again": words}}
    (says, seen, where, link), second = readme_rows(entry, by_name)
    assert second[:2] == ["", seen]
    assert (says, seen) == ("Which?", "It lowers the error by 1 (0.912 to 1.09), n = 5.")
    assert "steps" in where
    assert link == "[seen here at one length](results/claims/made_up/page.md)"
    (*_, link), _ = readme_rows({**entry, "exploratory": True}, by_name)
    assert link == "[exploratory](results/claims/made_up/page.md)"  # the words are of no test

    ((_, seen, where, link),) = readme_rows({"says": "Which?", "find": {"empty": words}}, by_name)
    assert not re.search(r"\d", seen + where)
    assert link == "[not run](results/claims/empty/page.md)"

    entry = {"says": "Which?", "here": "That.", "page": "docs/that.md"}
    assert readme_rows(entry, {}) == [["Which?", "That.", "", "[page](docs/that.md)"]]


def test_readme_leaves_out_what_no_control_ran_for(made_up) -> None:
    claim = made_up(arms={"better": ["activation=prelu"], "worse": []})
    made = runs(DOWN, BASE)
    found = answer(claim, made)
    texts = {"paper": [{"says": "Which?", "find": {"made_up": "It is."}}], "found": []}
    controls = [altered(run, {"choices.activation": "identity"}) for run in made[:5]]
    for records, is_shown in (
        (made, False),
        ([*made, *controls[:4]], False),  # too few for an interval
        ([*made, *controls], True),
    ):
        with patch("rectifiers.claims.readme.load_yaml", return_value=texts):
            assert ("Which?" in readme_tables([found], records)["paper"]) is is_shown
            alike = answer(made_up(), made)  # compares no activations
            assert "Which?" in readme_tables([alike], records)["paper"]


@pytest.mark.parametrize(
    ("runs_of_claims", "groups"),
    [([], 0), (["ab", "cd"], 2), (["ab", "bc", "d"], 2), (["ab", "cd", "bc"], 1), (["a", "a"], 1)],
)
def test_claims_that_share_runs_count_as_one(made_up, runs_of_claims, groups: int) -> None:
    made = {name: record("better", seed, 5.0) for seed, name in enumerate("abcd")}
    results = [
        ClaimResult(made_up(), Verdict.SUPPORTED, records=[made[name] for name in names])
        for names in runs_of_claims
    ]
    assert independent_groups(results) == groups


def test_page_says_where_machines_differ_within_a_seed(made_up) -> None:
    elsewhere = {"provenance.machine.cpu": "another"}
    assert "different processors" not in claim_page(answer(made_up(), runs(DOWN, BASE)), [])
    made = [
        altered(run, elsewhere) if run.seed == 0 and run.science["optim"]["lr"] == 5 else run
        for run in runs(DOWN, BASE)
    ]
    assert "In 1 of 5 seeds the arms ran on different" in claim_page(answer(made_up(), made), [])
    instructions = {"provenance.machine.instructions": "AVX2"}
    known = [altered(run, instructions) if run.seed == 0 else run for run in runs(DOWN, BASE)]
    half = [altered(run, instructions) if i == 0 else run for i, run in enumerate(known)]
    assert "different processors" not in claim_page(answer(made_up(), half), [])  # older records


def test_all_claims_have_a_page() -> None:
    results = [answer(claim, []) for claim in claims()]
    texts, lessons = pages(results), lessons_page(results)
    questions = yaml.safe_load((TEXT / "findings.yaml").read_text())
    heads = len({question["whose"] for question in questions})
    assert len(re.findall(r"^\| \w", texts["FINDINGS.md"], re.M)) == heads + len(questions)
    for claim in claims():
        assert texts[f"claims/{claim.name}/page.md"].startswith(f"# {claim.statement}\n"), (
            claim.name
        )
        assert texts["CLAIMS.md"].count(f"(claims/{claim.name}/page.md)") == (not claim.lesson)
        assert lessons.count(f"\n### {claim.statement}\n") == bool(claim.lesson)
    changed = yaml.safe_load((TEXT / "changes.yaml").read_text())
    assert changed.keys() <= {claim.name for claim in claims()}


def anchors(page: str) -> set[str]:
    """Return the slugs of a page's headings, as GitHub makes them."""
    prose = re.sub(r"^ *```.*?^ *```$", "", page, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_notes_statements_are_kept_by_what_there_is() -> None:
    notes = yaml.safe_load((TEXT / "notes.yaml").read_text())
    names = {claim.name for claim in claims()}
    keepers = {keeper for said in notes.values() for one in said for keeper in one["kept_by"]}
    assert {name for name in keepers if "/" not in name} <= names
    for keeper in keepers - names:
        page, _, anchor = keeper.partition("#")
        assert not anchor or anchor in anchors((ROOT / page).read_text()), keeper
        assert (ROOT / page).is_file(), keeper
    assert {claim.name for claim in claims() if claim.lesson} <= keepers


def test_report_has_negative_results_first() -> None:
    negative, _, positive = (RESULTS / "REPORT.md").read_text().partition("### Seen here")
    rows = (RESULTS / "FINDINGS.md").read_text()
    names = re.findall(r"opposite seen here(?: at one length)? \(\[(\w+)\]", rows)
    assert names
    for name in names:
        assert f"[{name}]" in negative.partition("## Results")[2], name
    assert "## What was easy" in positive


def test_undecided_claim_is_not_clear_at_any_interval(made_up) -> None:
    result = answer(made_up(undecided="Its rates differ."), runs(DOWN, BASE))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.tests[0].finding.verdict is Verdict.SUPPORTED
    assert "**Not clear here**: Its rates differ." in claim_page(result, [])
    assert answer(made_up(undecided="Its rates differ."), []).verdict is Verdict.NOT_RUN


def without_activation(errors: list[float], px: int = 8, arm: str = "none") -> list[TrainingRecord]:
    changes = {"choices.activation": "identity", "science.data.crop_px": px}
    return [altered(record(arm, seed, x), changes) for seed, x in enumerate(errors)]


@pytest.mark.parametrize(
    ("better", "measure", "px", "is_said"),
    [
        ("activation=prelu", "error", None, True),
        ("activation=prelu", "error", 8, False),  # another claim's runs will do
        ("activation=prelu", "error", 16, True),  # but not at another setting
        ("activation=prelu", "final", None, False),
        ("init=xavier", "error", None, False),
    ],
)
def test_page_says_where_no_activation_lacks(made_up, better, measure, px, is_said) -> None:
    claim: Claim = made_up(arms={"better": [better], "worse": []})
    test = claim.tests[0].model_copy(update={"measure": measure})
    result = answer(claim.model_copy(update={"tests": (test,)}), runs(DOWN, BASE))
    elsewhere = without_activation(BASE, px) if px else []
    page = claim_page(result, [*runs(DOWN, BASE), *elsewhere])
    assert ("No activation not run here" in page) is is_said
    assert "No activation not run here" not in claim_page(answer(result.claim, []), elsewhere)


@pytest.mark.parametrize(
    ("above", "is_trainability", "gains_nothing"),
    [(3.0, False, False), (0.0, False, True), (-2.0, True, True)],
)
def test_a_page_says_what_no_activation_leaves(
    made_up, above, is_trainability, gains_nothing
) -> None:
    result = answer(made_up(), runs(DOWN, BASE))
    noise = (0.1, -0.1, 0.0, 0.1, -0.1)
    identity = without_activation([x + above + e for x, e in zip(BASE, noise, strict=True)])
    page = claim_page(result, [*runs(DOWN, BASE), *identity])
    assert ("trainability only" in page) is is_trainability
    assert ("worse gains nothing over no activation here" in page) is gains_nothing
    few = claim_page(result, [*runs(DOWN, BASE), *identity[:4]])
    assert "trainability only" not in few
    assert "gains nothing" not in few


def test_no_activation_counts_at_its_best_rate_alone(made_up) -> None:
    arms = {"better": ["optim.lr=1"], "worse": [], "none": [], "none_at_half": ["optim.lr=0.5"]}
    result = answer(made_up(arms=arms, neighbours={"none": ["none_at_half"]}), runs(DOWN, BASE))
    best = without_activation([x + 3 for x in BASE])
    for others in ([x + 3 for x in BASE], [x - 3 for x in BASE]):
        at_half = without_activation(others, arm="none_at_half")
        page = claim_page(result, [*runs(DOWN, BASE), *best, *at_half])
        assert "trainability only" not in page
        assert "gains nothing" not in page


def test_claims_are_counted_by_size_and_without_lessons(made_up) -> None:
    small, papers = made_up(), made_up(whose="paper")
    lesson = made_up(lesson="Small networks learn fast.")
    large = [
        altered(run, {"science.data.crop_px": 32, "choices.data": "cifar10"})
        for run in runs(DOWN, BASE)
    ]
    results = [
        answer(small, runs(DOWN, BASE)),
        answer(lesson, runs(DOWN, BASE)),
        ClaimResult(papers, Verdict.CONTRADICTED, records=large),
        ClaimResult(papers, Verdict.CONTRADICTED, records=large),
    ]
    with patch("rectifiers.claims.readme.load_yaml", return_value={"paper": [], "found": []}):
        count = readme_tables(results, [])["count"]
    words = "All 2 claims of the paper on images of 32 px and more: 2 opposite seen here. Many "
    assert count.startswith(words)
    assert "the 2 with a verdict fall into 1 groups" in count
    lines = counts_table(results).splitlines()
    assert lines[0] == "| images | whose claim | opposite seen here | seen here at one length |"
    assert lines[2:] == [
        "| 32 px and more | the paper's | 2 |  |",
        "| 16 px and less | our own |  | 1 |",
    ]
