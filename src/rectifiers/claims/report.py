"""Write the results of claims: `FINDINGS.md`, `QUESTIONS.md` and `REPORT.md` in words,
`CLAIMS.md` with a row for each claim, and for each claim a page and a table of its runs."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from rectifiers.claims.claims import Claim, Comparison, Test, claims
from rectifiers.claims.judge import (
    MOST_SEEDS,
    ClaimResult,
    Description,
    Finding,
    TestResult,
    Verdict,
    best_rate,
    rate_means,
)
from rectifiers.claims.measures import error, has_diverged
from rectifiers.claims.records import runs_of, search_runs
from rectifiers.results.documents import markdown, without_html
from rectifiers.results.frame import SAME_IMAGES, code_of, machine_of
from rectifiers.results.tables import layout
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.console import printable
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import load_yaml

FIGURES = "figures/claims"  # below results/
COMMAND = "python scripts/claims.py run"
NOT_JUDGED = "exploratory"
UNTRAINED = 1e-20  # a learning rate below it moves no weight
FOLDER = Path(__file__).parent
CONTENTS = {"9cc199493aade0c6e1fea908bb89d1a1": "imagenette"}  # what a folder of images holds
MENTION = re.compile(r"\bclaim/(\w+)")
NO_VERDICT = (Verdict.TOO_FEW, Verdict.NOT_RUN)
NO_EVIDENCE = (*NO_VERDICT, Verdict.WITHDRAWN)
ANSWERS = {  # to a question that a claim's statement affirms
    Verdict.SUPPORTED: "Yes",
    Verdict.CONTRADICTED: "No",
    Verdict.NO_EFFECT: "No difference that matters",
}


@dataclass(frozen=True)
class Effect:
    """An effect over n seeds with its 95 % interval, as texts name it; NaN where there is none."""

    n: int
    value: float
    low: float
    high: float
    is_share: bool = False

    @classmethod
    def of(cls, result: TestResult | Description) -> "Effect":
        if isinstance(result, TestResult):
            finding, is_share = result.finding, result.test.statistic == "share"
            return cls(finding.n, finding.effect, finding.low, finding.high, is_share)
        mean = result.mean
        if mean is None or mean.low is None or mean.high is None:
            return cls(result.n(), mean.mean if mean else math.nan, -math.inf, math.inf)
        return cls(mean.n, mean.mean, mean.low, mean.high)

    def text(self, unit: str = "", sign: int = 1) -> str:
        """Return the effect times `sign` with its interval; a share as `6 of 6 seeds` with its
        verb for a unit."""
        if math.isnan(self.value):
            return "-"
        has_interval = math.isfinite(self.low)
        if self.is_share:
            spread = f" (95 % CI {100 * self.low:.0f}-{100 * self.high:.0f} %)"
            return f"{self.value * self.n:.0f} of {self.n} seeds{unit}" + spread * has_interval
        low, high = sorted((sign * self.low, sign * self.high))
        spread = f" ({low:.3g} to {high:.3g})" * has_interval
        return f"{sign * self.value:.3g}{unit}{spread}"

    def __format__(self, spec: str) -> str:
        """Return the text with n. With `the error|points` it says whether the interval lowers or
        raises the error, and by how many points; of a share, with `train`, that 6 of 6 seeds
        train."""
        what, _, unit = spec.partition("|")
        if self.is_share:
            return self.text(f" {what}" * bool(what))
        if not what:
            return f"{self.text()}, n = {self.n}"
        sign = -1 if self.high < 0 else 1
        text = f"{self.text(f' {unit}' * bool(unit), sign)}, n = {self.n}"
        if not math.isfinite(self.low) or self.low <= 0 <= self.high:
            return f"makes no clear difference to {what}: {text}"
        return f"{'lowers' if self.high < 0 else 'raises'} {what} by {text}"


def for_tables(records: Sequence[TrainingRecord]) -> list[TrainingRecord]:
    """Return the claims' runs that stand in TABLES.md, each under its row's experiment."""
    by_name = {claim.name: claim for claim in claims()}
    renamed: dict[str, TrainingRecord] = {}
    for row in (row for table in layout() for row in table["rows"]):
        for claim, arm in row.get("claims", {}).items():
            for record in runs_of(by_name[claim], records)[arm].values():
                choices = {**record.choices, "experiment": row["experiments"][0], "claim": None}
                renamed[record.run] = record.model_copy(update={"choices": choices})
    return list(renamed.values())


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
    for name in ("findings", "questions"):
        rows = answer_rows(FOLDER / f"{name}.yaml", results)
        texts[f"{name.upper()}.md"] = render(name, rows=markdown(rows[0], rows[1:]))
    for result in results:
        texts[f"claims/{result.claim.name}.md"] = claim_page(result, records)
    return texts


def render(name: str, **values: object) -> str:
    """Return the page of a template of this package."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(f"{name}.md.j2").render(values)


def answer_rows(path: Path, results: Iterable[ClaimResult]) -> list[list[str]]:
    """Return the questions of a file with what the claims answer, below their head; raise an
    InputError where it names a claim, or an effect of one, that is not there."""
    entries = load_yaml(path.read_text())
    by_name = {result.claim.name: result for result in results}
    has_paper = "paper" in entries[0]
    rows = [["question", *["the paper says"] * has_paper, "we find", "evidence", "verdict"]]
    for entry in entries:
        words, evidence, verdicts, texts = [], [], [], entry["find"]
        if unknown := texts.keys() - by_name.keys():
            raise InputError(f"{path.name} names {unknown.pop()}, which is not a claim")
        for name in sorted(texts, key=lambda name: by_name[name].verdict in NO_VERDICT):
            result = by_name[name]
            verdicts.append(_linked(result))
            if result.verdict in NO_VERDICT:
                continue
            words.append(_in_words(texts[name], result, path))
            evidence.append(f"{scale(result)}, [figure]({FIGURES}/{name}.svg)")
        paper = [entry["paper"]] if has_paper else []
        cells = ("<br>".join(lines) for lines in (words or ["not run"], evidence or ["-"]))
        rows.append([entry["question"], *paper, *cells, "<br>".join(verdicts)])
    return rows


def _linked(result: ClaimResult) -> str:
    part = _part(result)
    return f"{result.verdict} ([{result.claim.name}](claims/{result.claim.name}.md){part})"


def _deciding(result: ClaimResult) -> list[TestResult]:
    """The tests that give a claim a verdict that the others do not have."""
    tests = [test for test in result.tests if test.finding.verdict is result.verdict]
    return tests if len(tests) < len(result.tests) and result.verdict not in NO_EVIDENCE else []


def _part(result: ClaimResult) -> str:
    tests = _deciding(result)
    return f", {len(tests)} of {len(result.tests)} tests" if tests else ""


def reason(result: ClaimResult) -> str:
    """Return what follows a claim's verdict on its page: why, where its tests do not all say so."""
    claim, tests = result.claim, _deciding(result)
    if claim.withdrawn or claim.not_run:
        return f": {claim.withdrawn or claim.not_run}"
    if result.verdict is Verdict.NOT_RUN:
        return ": no run of its tests is committed; the command below makes the runs"
    if result.verdict is Verdict.TOO_FEW:
        runs = min(test.finding.n for test in result.tests)
        return f": there are runs of {runs} of the {claim.seeds} seeds that a verdict needs"
    says = "; ".join(test.test.says for test in tests)
    return f" in {len(tests)} of {len(result.tests)} tests: {says}" if tests else ""


def _in_words(text: str, result: ClaimResult, path: Path) -> str:
    try:
        return text.format(*map(Effect.of, result.tests), **facts(result))
    except (KeyError, IndexError) as missing:
        raise InputError(f"{path.name}: {result.claim.name} has no {{{missing}}}") from missing


def report_page(results: Sequence[ClaimResult], records: Sequence[TrainingRecord]) -> str:
    """Return REPORT.md: of each finding its first experiment and all that contradict, by verdict,
    the negative first; and what all runs took."""
    path = FOLDER / "findings.yaml"
    by_name = {result.claim.name: result for result in results}
    lines, shown = {}, []
    for entry in load_yaml(path.read_text()):
        run = [by_name[n] for n in entry["find"] if by_name[n].verdict not in NO_VERDICT]
        shown += run[:1] + [r for r in run[1:] if r.verdict is Verdict.CONTRADICTED]
        for name in (result.claim.name for result in run):
            words = _in_words(entry["find"][name], by_name[name], path)
            lines[name] = f"{entry['question']} {words} ([{name}](claims/{name}.md))"
    groups: dict[Verdict, list[str]] = {}
    for result in in_order(shown):
        groups.setdefault(result.verdict, []).append(lines[result.claim.name])
    machines = (record.provenance.machine for record in records)
    names = sorted(
        {machine.cpu if machine.device == "cpu" else machine.device for machine in machines}
    )
    data = Counter(map(_data, records))
    return render(
        "report",
        verdict=lambda name: _linked(by_name[name]) if name in by_name else "not a claim",
        groups=groups,
        counts=_counts([result for result in results if not result.claim.is_check]),
        runs=f"{len(records):,}",
        hours=f"{sum(record.wall_s for record in records) / 3600:.0f}",
        machines=" and ".join(names),
        data=", ".join(f"{name} {count:,}" for name, count in data.most_common()),
    )


def facts(result: ClaimResult) -> dict[str, Effect | str]:
    """Return what a text may name beside the tests' effects: `d0` the first description, `t0` the
    first test where no run diverged, `lost` how many of its runs did, `answer` the verdict as a
    reply."""
    named: dict[str, Effect | str] = {"answer": ANSWERS.get(result.verdict, "Undecided")}
    first = result.tests[0]
    named["lost"] = ", ".join(f"{n} of {first.seeds}" for n in first.diverged.values() if n)
    named |= {f"d{i}": Effect.of(d) for i, d in enumerate(result.descriptions)}
    trained = ((i, test.trained) for i, test in enumerate(result.tests))
    return named | {f"t{i}": Effect.of(d) for i, d in trained if d is not None}


def claims_page(results: Sequence[ClaimResult]) -> str:
    """Return CLAIMS.md: a row for each claim, and how many verdicts would be chance."""
    evidence = [r for r in results if not r.claim.is_check]
    judged = [r for r in evidence if r.verdict not in NO_EVIDENCE]
    head = ("verdict", "claim", "statement", "test: effect (95 % interval)", "n", "data")
    return render(
        "claims",
        count=len(evidence),
        counts=_counts(evidence),
        judged=len(judged),
        supported=sum(max(t.test.criterion.chance() for t in r.tests) for r in judged),
        contradicted=sum(0.025 * len(result.tests) for result in judged),
        checks=[result.claim.name for result in results if result.claim.is_check],
        rows=markdown(head, map(_claim_row, in_order(results))),
    )


def _counts(results: Sequence[ClaimResult]) -> str:
    return ", ".join(f"{sum(r.verdict is v for r in results)} {v}" for v in Verdict)


def _claim_row(result: ClaimResult) -> list[str]:
    claim = result.claim
    effects = [f"{test.test.says}: {_effect(test, test.test)}" for test in result.tests]
    n = dict.fromkeys(map(counts, result.tests))
    part = _part(result).removeprefix(", ")
    cells = [str(result.verdict) + " (a check)" * claim.is_check + f" ({part})" * bool(part)]
    cells += [f"[{claim.name}](claims/{claim.name}.md)", claim.statement]
    is_run = bool(result.records)
    return [*cells, *("<br>".join(x) if is_run else "-" for x in (effects, n)), scale(result)]


def claim_page(result: ClaimResult, records: Sequence[TrainingRecord]) -> str:
    """Return a claim's own page: its statement, tests, arms, searches, and changes."""
    head = ("test", "measure: arms", "n", "effect (95 % interval)", "criterion", "finding")
    lines = []
    for test in result.tests:
        lines.append(_test_line(test, _criterion(test.test), verdict_of(test.finding)))
        lines += [_test_line(test.trained)] if test.trained and test.trained.n() else []
    lines += map(_test_line, result.descriptions)
    changes = load_yaml((FOLDER / "changes.yaml").read_text())
    return render(
        "claim",
        result=result,
        claim=result.claim,
        reason=reason(result),
        source=_with_links(result.claim.source),
        note=_with_links(result.claim.note),
        folder=f"../{FIGURES}",
        has_figure=has_figure(result),
        command=f"{COMMAND} {result.claim.name}",
        setting=without_html(printable(scale(result, short=False))),
        tests=markdown(head, lines) if lines else "",
        arms=_arms(result.claim, records),
        changes=changes.get(result.claim.name, []),
    )


def _test_line(
    result: TestResult | Description, criterion: str = "-", finding: str = NOT_JUDGED
) -> list[str]:
    if isinstance(result, TestResult):
        comparison: Comparison = result.test
        statistic, n, narrow = result.test.statistic, counts(result), _narrow(result)
    else:
        comparison, statistic, n, narrow = result.comparison, "mean", str(result.n()), ""
    words = f"{comparison.in_words()}: {comparison.compared()}"
    if statistic != "mean":
        words += f" ({statistic} {'of' if statistic == 'share' else 'over'} seeds)"
    elif comparison.minus and result.measured:
        one, other = map(fmean, zip(*result.measured, strict=True))
        words += f" ({one:.3g} and {other:.3g})"
    return [comparison.says, words, n, _effect(result, comparison) + narrow, criterion, finding]


def _effect(result: TestResult | Description, comparison: Comparison) -> str:
    effect, unit = Effect.of(result), comparison.unit()
    return effect.text(f" {unit}" * bool(unit) * (not effect.is_share))


def _narrow(result: TestResult) -> str:
    """The 90 % interval, where it is what decides; else nothing."""
    is_within = result.test.supported.side == "within"
    verdicts = (Verdict.NO_EFFECT, Verdict.INCONCLUSIVE, *[Verdict.SUPPORTED] * is_within)
    if result.finding.verdict not in verdicts or not (is_within or _negligible(result.test)):
        return ""
    low, high = result.finding.narrow
    return f"<br>90 % interval: {low:.3g} to {high:.3g}"


def _negligible(test: Test) -> tuple[float, ...]:
    """The bounds of the effects too small to matter; empty without such."""
    region = (test.criterion.in_logs() if test.over else test.criterion).negligible()
    bounds = region.bounds if region else ()
    return tuple(map(math.exp, bounds)) if test.over else bounds


def _criterion(test: Test) -> str:
    """The criterion in words: of a share in percent, and with the effects too small to matter."""
    if test.statistic == "share":
        criterion = test.criterion
        regions = (("supported", criterion.supported), ("contradicted", criterion.contradicted))
        return ", ".join(f"{name} {x.side} {100 * x.bounds[0]:g} %" for name, x in regions)
    bounds = " to ".join(f"{bound:.3g}" for bound in _negligible(test))
    return str(test.criterion) + f", no effect that matters within {bounds}" * bool(bounds)


def _with_links(text: str) -> str:
    """Return a text with links where it mentions a claim, as in `claim/table2`."""
    names = {claim.name for claim in claims()}
    return MENTION.sub(lambda m: f"[{m[1]}]({m[1]}.md)" if m[1] in names else m[0], text)


def _arms(claim: Claim, records: Sequence[TrainingRecord]) -> str:
    """The table of the arms, with what their searches measured at each learning rate."""
    if not claim.arms:
        return ""
    search, head = claim.search, ["arm", "overrides"]
    arms = search.with_others(claim.arms) if search else claim.arms
    rows = [
        [arm if arm in claim.arms else f"{arm} (search only)", f"`{' '.join(overrides)}`"]
        if overrides
        else [arm, "none"]
        for arm, overrides in arms.items()
    ]
    if search:
        runs = search_runs(claim, records)
        count = len(search.seeds)
        seeds = f"mean of {count} seeds" if count > 1 else "one seed"
        by = f"{search.measured_by()} by learning rate, {seeds}"
        head += [by, "best learning rate"]
        for arm, row in zip(arms, rows, strict=True):
            means, best = rate_means(search, arm, runs), best_rate(search, arm, runs)
            row.append(", ".join(f"{rate:g}: {_mean(mean)}" for rate, mean in means.items()))
            row.append(f"{best[1]:g}" if best else "-")
    return markdown(head, rows)


def _mean(mean: float | None) -> str:
    return "not run" if mean is None else "diverged" if mean == math.inf else f"{mean:.3g}"


def in_order(results: Sequence[ClaimResult]) -> list[ClaimResult]:
    """Return the contradicted first, then what is inconclusive, and those without a verdict
    last."""
    return sorted(results, key=lambda r: (list(Verdict).index(r.verdict), r.claim.name))


def has_figure(result: ClaimResult) -> bool:
    return any(test.measured for test in result.tests)


def scale(result: ClaimResult, short: bool = True) -> str:
    """Return data, network and length of a claim's runs; `short` in few words."""
    runs = result.records
    if not runs:
        return "-"
    data = sorted({f"{_data(run)} at {run.science['data']['crop_px']} px" for run in runs})
    epochs = sorted({run.science["optim"]["epochs"] for run in runs})
    length = f"{_or(epochs)} epoch{'s' * (epochs != [1])}"
    rates = {run.science["optim"]["lr"] for run in runs}
    is_untrained = max(rates) < UNTRAINED
    by_model: dict[str, list[TrainingRecord]] = {}
    for run in runs:
        by_model.setdefault(str(run.choices.get("model")), []).append(run)
    networks = []
    for model, own in sorted(by_model.items()):
        networks.append(f"{model} of {_or(run.network.depth for run in own)} layers")
        if not short:
            networks[-1] += f" ({_or(run.network.parameters for run in own)} parameters)"
    if short:
        return ", ".join([*data, *networks, "untrained" if is_untrained else length])
    images = ", ".join(sorted({f"{run.images.train:,}" for run in runs}))
    same = [SAME_IMAGES] if any(run.images.test is None for run in runs) else []
    length += f" of {images} images"
    if is_untrained:
        length = f"untrained ({length} at a learning rate of {max(rates):g})"
    return ", ".join([*data, *networks, length, *same])


def _data(run: TrainingRecord) -> str:
    """The option of data; of a folder, what it holds."""
    return CONTENTS.get(str(run.provenance.data), str(run.choices.get("data")))


def _or(numbers: Iterable[int]) -> str:
    """The distinct numbers in order, as in `4, 11 or 30`."""
    *first, last = (f"{number:,}" for number in sorted(set(numbers)))
    return f"{', '.join(first)} or {last}" if first else last


def counts(result: TestResult) -> str:
    """Return the seeds of a test, how many runs of each arm diverged, and what is left out."""
    if not any(result.diverged.values()):
        return str(result.finding.n)
    by_arm = ", ".join(f"{arm} {n} of {result.seeds}" for arm, n in result.diverged.items())
    left_out = f"; pairs left out: {result.left_out}" if result.left_out else ""
    return f"{result.finding.n} (diverged: {by_arm}{left_out})"


def verdict_of(finding: Finding) -> str:
    """Return a verdict; beside an inconclusive one with how many seeds there would be another."""
    if finding.verdict is not Verdict.INCONCLUSIVE:
        return str(finding.verdict)
    if finding.would_be is Verdict.INCONCLUSIVE:
        return f"{finding.verdict} (with any number of seeds)"
    needed = f"{finding.needed:,}" if finding.needed else f"more than {MOST_SEEDS:,}"
    return f"{finding.verdict} (with {needed} seeds: {finding.would_be})"
