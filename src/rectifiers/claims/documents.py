"""Write the results of claims: `FINDINGS.md` and `REPORT.md` in words, `CLAIMS.md` with a row for
each claim, for each claim a page and a table of its runs, and `docs/lessons.md`."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from rectifiers.claims.archive import arm_hashes, arm_of, owner, runs_of
from rectifiers.claims.claim_page import (
    WHOSE,
    claim_page,
    data_of,
    is_small,
    lengths,
    scale,
)
from rectifiers.claims.claims import Claim, claims
from rectifiers.claims.judge import NO_VERDICT, ClaimResult, Verdict
from rectifiers.claims.measures import error, has_diverged
from rectifiers.results.documents import TEXT, listed, markdown, render, sentence
from rectifiers.results.frame import protocol_exclusion_reason
from rectifiers.results.origin import code_of, machine_of
from rectifiers.results.tables import Row, layout
from rectifiers.runs.record import EnsembleRecord, Member, Record, TrainingRecord
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import load_yaml
from rectifiers.runtime.schema import JsonObject

R = TypeVar("R", TrainingRecord, EnsembleRecord, Member)
ASKED = {  # the first columns of a table of questions, by the keys of its file
    "question": "question",
    "paper": "the paper says",
}
ASKERS = {"paper": "", "ours": " (our question)", "notes": " (a reader's question)"}
ANSWERS = {  # to a question that a claim's statement affirms
    Verdict.SUPPORTED: "Yes",
    Verdict.CONTRADICTED: "No",
    Verdict.NO_EFFECT: "No difference that matters",
}


def for_tables(
    records: Sequence[TrainingRecord], ensembles: Iterable[EnsembleRecord] = ()
) -> list[Record]:
    """Return the claims' runs and ensembles of them that stand in TABLES.md, each under its row's
    experiment."""
    by_name = {claim.name: claim for claim in claims()}
    rows = [row for table in layout() for row in table["rows"]]
    found: dict[str, Record] = {}
    for row in rows:
        for claim, arm in row.get("claims", {}).items():
            for record in runs_of(by_name[claim], records)[arm].values():
                if reason := protocol_exclusion_reason(record):
                    raise InputError(f"run {record.run} of claim/{claim}: {reason}; test it again")
                found[record.run] = _made_for(row, record)

    for row in (row for row in rows if "members" in row):
        arms = sorted(arm_hashes()[claim][arm] for claim, arm in row["members"])
        for whole in ensembles:
            has_one_seed = len({member.seed for member in whole.members}) == 1
            if has_one_seed and sorted(map(arm_of, whole.members)) == arms:
                members = [_made_for(row, member) for member in whole.members]
                found[whole.run] = _made_for(row, whole).model_copy(update={"members": members})
    return list(found.values())


def _made_for(row: Row, run: R) -> R:
    """The same run, or member of an ensemble, made for the row's experiment."""
    choices = {**run.choices, "experiment": row["experiments"][0], "claim": None}
    return run.model_copy(update={"choices": choices})


def runs_csv(claim: Claim, records: Iterable[TrainingRecord]) -> str:
    """Return the runs of a claim as CSV: where each comes from, what the tests measure of it, and
    its error in percent; empty where there is no number, or no test asks the arm for it."""
    from pandas import DataFrame  # here and not above: it takes a second

    names = dict.fromkeys(test.measure_name() for test in claim.tests)
    columns = ["seed", "arm", "run", "code", "machine", *names, "top1_error_pct", "diverged"]
    rows = []
    for arm, runs in runs_of(claim, records).items():
        tests = {test.measure_name(): test for test in claim.tests if arm in test.arms()}
        for seed, record in sorted(runs.items()):
            values = [seed, arm, record.run, code_of(record), machine_of(record)]
            values += [tests[name].value(record) if name in tests else None for name in names]
            is_tested = has_diverged(record) or "center" in record.protocols
            rows.append([*values, error(record) if is_tested else None, has_diverged(record)])
    return DataFrame(rows, columns=columns).to_csv(index=False)


def pages(results: Sequence[ClaimResult], records: Sequence[TrainingRecord] = ()) -> dict[str, str]:
    """Return all documents by their path below results/, from the claims and all their records,
    those of searches among them."""
    texts = {"CLAIMS.md": claims_page(results), "REPORT.md": report_page(results, records)}
    texts["FINDINGS.md"] = findings_page(results)
    for result in results:
        texts[f"claims/{result.claim.name}/page.md"] = claim_page(result, records)
    return texts


def lessons_page(results: Sequence[ClaimResult]) -> str:
    """Return docs/lessons.md: where each statement of a reader's notes is kept, and the lessons."""
    names = {result.claim.name for result in results}
    kept = load_yaml((TEXT / "notes.yaml").read_text())
    notes = {
        subject: markdown(
            ["the notes say", "kept by"],
            [[said["statement"], _kept_by(said["kept_by"], names)] for said in statements],
        )
        for subject, statements in kept.items()
    }
    lessons = [_lesson(result) for result in results if result.claim.lesson]
    unkept = sum(not said["kept_by"] for statements in kept.values() for said in statements)
    return render("lessons", notes=notes, lessons=lessons, unkept=unkept)


def _lesson(result: ClaimResult) -> JsonObject:
    """What a lesson's section says."""
    effects = []
    for test in result.tests:
        for shown in (test, test.trained):
            if shown is not None and shown.finding.n:
                compared = f"{shown.comparison.in_words()}, {shown.comparison.compared()}"
                n = shown.counts() if shown is test else str(shown.finding.n)
                effects.append([shown.comparison.says, compared, shown.text(), n])

    return {
        "name": result.claim.name,
        "statement": result.claim.statement,
        "sentence": result.claim.lesson,
        "verdict": result.shown(),
        "part": result.deciding_part(),
        "is_check": result.claim.is_check,
        "setting": scale(result),
        "effects": markdown(["test", "measure: arms", "effect (95 % interval)", "n"], effects),
    }


def _kept_by(keepers: Iterable[str], names: Container[str]) -> str:
    """Links to the claims and pages that keep a statement of the notes."""
    links = []
    for kept in keepers:
        is_page = "/" in kept  # with an anchor, perhaps
        if not is_page and kept not in names:
            raise InputError(f"{kept}, which notes.yaml names, is not a claim")
        path = f"../{kept}" if is_page else f"../results/claims/{kept}/page.md"
        stem = Path(kept.partition("#")[0]).stem if is_page else kept
        links.append(f"[{stem}]({path.removeprefix('../docs/')})")
    return ", ".join(links) or "nothing yet"


def findings_page(results: Sequence[ClaimResult]) -> str:
    """Return FINDINGS.md: a table for the paper's claims, our own questions, and a reader's."""
    tables: dict[str, str] = {}
    entries = load_yaml((TEXT / "findings.yaml").read_text())
    for whose in ("paper", "ours", "notes"):
        chosen = [entry for entry in entries if entry["whose"] == whose]
        head, *rows = answer_rows(chosen, results) if chosen else [[]]
        tables[whose] = markdown(head, rows) if rows else "None.\n"
    return render("findings", **tables)


def answer_rows(entries: Sequence[JsonObject], results: Iterable[ClaimResult]) -> list[list[str]]:
    """Return questions below their head, with a row for each claim that answers; raise an
    InputError where one names a claim, or an effect of one, that is not there."""
    by_name = {result.claim.name: result for result in results}
    asked = [key for key in ASKED if key in entries[0]]
    rows = [[*(ASKED[key] for key in asked), "we find", "evidence", "verdict"]]
    for entry in entries:
        cells = [entry[key] for key in asked]
        for name, words, verdict in answers(entry["find"], by_name):
            evidence = f"{scale(by_name[name])}, [figure](claims/{name}/figure.svg)"
            rows.append([*cells, words or "-", evidence if words else "-", verdict])
            cells = [""] * len(asked)
    return rows


def answers(
    texts: Mapping[str, str], by_name: Mapping[str, ClaimResult]
) -> list[tuple[str, str, str]]:
    """Return name, words and verdict of each claim; those without a verdict have no words, and
    come last."""
    if unknown := texts.keys() - by_name.keys():
        raise InputError(f"{unknown.pop()}, which a page's words name, is not a claim")
    rows = []
    for name in sorted(texts, key=lambda name: by_name[name].verdict in NO_VERDICT):
        result = by_name[name]
        is_judged = result.verdict not in NO_VERDICT
        words = _in_words(texts[name], result) if is_judged else ""
        rows.append((name, words, _linked(result)))
    return rows


def conclusions(results: Iterable[ClaimResult]) -> dict[str, str]:
    """Return by the title of a table in TABLES.md the paper's conclusion, and beside it what each
    claim finds, with its verdict."""
    path = TEXT / "conclusions.yaml"
    by_name = {result.claim.name: result for result in results}
    texts = {}
    for entry in load_yaml(path.read_text()):
        found = []
        for name, words, verdict in answers(entry["find"], by_name):
            facts = f", {scale(by_name[name])}" if words else ""
            found.append(f"{words or 'Not judged yet'}: {verdict}{facts}")
        ours = ". ".join(found) or entry.get("ours") or "No claim tests this"
        texts[entry["question"]] = f"**The paper:** {entry['paper']} **Ours:** {ours}."
    return texts


def _linked(result: ClaimResult) -> str:
    name, part = result.claim.name, result.deciding_part()
    where = f", {part}" if part else ""
    return f"{result.shown()} ([{name}](claims/{name}/page.md){where})"


def _in_words(text: str, result: ClaimResult) -> str:
    """Return a text with the findings that it names (results/text/findings.yaml says how)."""
    first = result.tests[0]
    lost = [f"{n} of {first.seeds}" for n in first.diverged.values() if n]
    return sentence(
        text,
        tests=[test.finding for test in result.tests],
        trained=[test.trained and test.trained.finding for test in result.tests],
        descriptions=[description.finding for description in result.descriptions],
        lost=", ".join(lost),
        answer=ANSWERS.get(result.verdict, "Undecided"),
        length=lengths(result.records),
    )


def report_page(results: Sequence[ClaimResult], records: Sequence[TrainingRecord]) -> str:
    """Return REPORT.md: of each finding its first experiment and all that contradict, by verdict,
    the negative first; and what all runs took."""
    path = TEXT / "findings.yaml"
    by_name = {result.claim.name: result for result in results}
    lines: dict[str, str] = {}  # by claim; where two questions name one, the first
    for entry in load_yaml(path.read_text()):
        run = [by_name[n] for n in entry["find"] if by_name[n].verdict not in NO_VERDICT]
        later = [result for result in run[1:] if result.verdict is Verdict.CONTRADICTED]
        for result in [*run[:1], *later]:
            name = result.claim.name
            words = _in_words(entry["find"][name], result)
            asked = entry["question"] + ASKERS[entry["whose"]]
            part = f" ({result.deciding_part()})" if result.deciding_part() else ""
            where = f"[{name}](claims/{name}/page.md){part}: {scale(result)}"
            lines.setdefault(name, f"{asked} {words} {where}.")

    groups: dict[str, list[str]] = {}
    for result in in_order([by_name[name] for name in lines]):
        groups.setdefault(result.shown(), []).append(lines[result.claim.name])
    return render(
        "report",
        verdict=lambda name: _linked(by_name[name]) if name in by_name else "not a claim",
        our_runs=lambda name: _our_runs(by_name[name]) if name in by_name else "-",
        groups=groups,
        counts=counts_table(results),
        **_effort(records),
    )


def _our_runs(result: ClaimResult) -> str:
    """What a verdict's runs are: data, network, length, and n."""
    counts = dict.fromkeys(str(test.finding.n) for test in result.tests)
    return f"{scale(result)}, n = {' or '.join(counts)}" if result.records else "-"


def _effort(records: Iterable[TrainingRecord]) -> dict[str, str]:
    """What REPORT.md says of the runs that are no lessons: their number, hours, machines, data."""
    lessons = {claim.name for claim in claims() if claim.lesson}
    runs = [record for record in records if owner(record) not in lessons]
    hours: dict[str, float] = {}
    for run in runs:
        machine = run.provenance.machine
        name = machine.cpu if machine.device == "cpu" else machine.device
        hours[name] = hours.get(name, 0) + run.wall_s / 3600

    data = Counter(map(data_of, runs))
    return {
        "runs": f"{len(runs):,}",
        "hours": listed([f"{name} {took:.1f} hours" for name, took in sorted(hours.items())]),
        "data": ", ".join(f"{name} {count:,}" for name, count in data.most_common()),
    }


def claims_page(results: Sequence[ClaimResult]) -> str:
    """Return CLAIMS.md: a row for each claim, and how many verdicts would be chance."""
    evidence = [result for result in results if not result.claim.lesson]
    judged = [r for r in evidence if r.verdict not in NO_VERDICT]
    head = ("claim", "verdict", "statement", "predicted: measured (95 % interval)", "n", "data")
    return render(
        "claims",
        count=len(evidence),
        counts=counts_table(results),
        judged=len(judged),
        groups=independent_groups(judged),
        supported=sum(max(t.comparison.chance() for t in r.tests) for r in judged),
        contradicted=sum(0.025 * len(result.tests) for result in judged),
        rows=markdown(head, map(_claim_row, in_order(evidence))),
    )


def counts_table(results: Iterable[ClaimResult]) -> str:
    """Return how many claims have each verdict, by the size of their images and whose they are."""
    evidence = [result for result in results if not result.claim.lesson]
    counted: Counter[tuple[bool, str, str]] = Counter(
        (is_small(each), each.claim.whose, each.shown()) for each in evidence
    )
    shown = words_of(evidence)
    rows = []
    for small, images in ((False, "32 px and more"), (True, "16 px and less")):
        for whose, words in WHOSE.items():
            numbers = [counted[small, whose, verdict] for verdict in shown]
            if any(numbers):
                rows.append([images, words, *(str(number or "") for number in numbers)])
    return markdown(["images", "whose claim", *shown], rows)


def words_of(results: Iterable[ClaimResult]) -> list[str]:
    """Return the verdicts of claims as pages print them, in the order of CLAIMS.md."""
    order = {(list(Verdict).index(r.verdict), r.one_length): r.shown() for r in results}
    return [words for _, words in sorted(order.items())]


def independent_groups(results: Iterable[ClaimResult]) -> int:
    """Return into how many groups claims fall that have no run in common."""
    groups: list[set[str]] = []
    for result in results:
        runs = {record.run for record in result.records}
        shared = [group for group in groups if group & runs]
        groups = [group for group in groups if not group & runs] + [runs.union(*shared)]
    return len(groups)


def _claim_row(result: ClaimResult) -> list[str]:
    claim, part = result.claim, result.deciding_part()
    verdict = f"{result.shown()} ({part})" if part else result.shown()
    effects = n = "-"
    if result.records:
        effects = "<br>".join(f"{test.comparison.says}: {test.text()}" for test in result.tests)
        n = "<br>".join(dict.fromkeys(test.counts() for test in result.tests))
    link = f"[{claim.name}](claims/{claim.name}/page.md)"
    return [link, verdict, claim.statement, effects, n, scale(result)]


def in_order(results: Sequence[ClaimResult]) -> list[ClaimResult]:
    """Return the contradicted first, then what is inconclusive, and those without a verdict
    last."""
    order = list(Verdict)
    return sorted(results, key=lambda r: (order.index(r.verdict), r.one_length, r.claim.name))
