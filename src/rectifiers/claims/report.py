"""What the claims' records say, for readers: `results/CLAIMS.md`, `results/FINDINGS.md`, a table of
the runs of each claim, and a figure of each."""

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

import yaml

from rectifiers.claims.claims import Claim, Comparison, claims
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
from rectifiers.claims.measures import MEASURES, error, has_diverged
from rectifiers.claims.records import runs_of, search_runs
from rectifiers.results.documents import Table
from rectifiers.results.frame import SAME_IMAGES, code_of, machine_of
from rectifiers.results.tables import layout
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.errors import InputError

FIGURES = "figures/claims"  # below results/
COMMAND = "python scripts/claims.py run"
NOT_JUDGED = "described, not judged"
CHOSEN = Path(__file__).with_name("findings.yaml")
HEAD = """# Findings

Made by `make claims` from the committed records; do not edit. First ten findings, then everything else that is
inconclusive, contradicted or not run. [CLAIMS.md](CLAIMS.md) has every claim with its source, arms, learning rates,
criterion and what the words mean; `python scripts/claims.py run <name>` runs one. An effect is a mean over seeds with
its 95 % interval, a median or a share; before a difference of means stand those of its two arms. Beside an inconclusive
test stands how many seeds would decide at the observed effect and spread, and the verdict that they would give; "-" where
none would. All of it is small: a verdict speaks of its data and network, not of ImageNet.
"""  # noqa: E501


def for_tables(records: Sequence[TrainingRecord]) -> list[TrainingRecord]:
    """Return the claims' runs that stand in TABLES.md, each under the experiment that it is at
    another size."""
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
    its error in percent.

    A measure is left empty where it does not exist, or where no test asks the arm for it.
    """
    names = list(dict.fromkeys(test.measure_name() for test in claim.tests))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["seed", "arm", "run", "code", "machine", *names, "top1_error_pct", "diverged"])
    for arm, runs in runs_of(claim, records).items():
        tests = {test.measure_name(): test for test in claim.tests if arm in test.arms()}
        for seed, record in sorted(runs.items()):
            values = {n: MEASURES[t.measure](record, **t.settings) for n, t in tests.items()}
            is_tested = has_diverged(record) or "center" in record.protocols
            row = [seed, arm, record.run, code_of(record), machine_of(record)]
            row += [*map(values.get, names), error(record) if is_tested else None]
            writer.writerow([*row, has_diverged(record)])
    return text.getvalue()


def claims_page(results: Sequence[ClaimResult], records: Sequence[TrainingRecord] = ()) -> str:
    """Return CLAIMS.md; how many verdicts would be chance is a part of it.

    records: all that were made for claims, those of the searches among them.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    evidence = [result for result in results if not result.claim.is_check]
    judged = [r for r in evidence if r.verdict not in (Verdict.TOO_FEW, Verdict.NOT_RUN)]
    counts = (f"{sum(r.verdict is verdict for r in evidence)} {verdict}" for verdict in Verdict)
    searches = search_table([result.claim for result in results], records)
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    return environment.get_template("claims.md.j2").render(
        evidence=evidence,
        checks=[result.claim for result in results if result.claim.is_check],
        counts=", ".join(counts),
        judged=judged,
        spent=time_spent(records),
        supported=sum(max(t.test.criterion.chance() for t in r.tests) for r in judged),
        contradicted=sum(0.025 * len(result.tests) for result in judged),
        tables=[*tables(results), *([searches] if searches.rows else [])],
        drawn=[result.claim for result in in_order(results) if has_figure(result)],
        folder=FIGURES,
    )


def time_spent(runs: Sequence[TrainingRecord]) -> str:
    """Return how long runs took in one sentence; nothing where there are none."""
    if not runs:
        return ""
    hours: dict[str, float] = defaultdict(float)
    for run in runs:
        hours[str(run.choices.get("data"))] += run.wall_s / 3600
    by_data = ", ".join(f"{spent:.1f} on {data}" for data, spent in sorted(hours.items()))
    return (
        f"{len(runs):,} runs, with those of the searches, took {sum(hours.values()):.1f} hours by "
        f"the wall clock, in one thread each and mostly beside other work: {by_data}; without runs "
        "that were made twice, first designs that are not kept, and those of the measurement of "
        "rounding and the benchmark."
    )


def in_order(results: Sequence[ClaimResult]) -> list[ClaimResult]:
    """Return the contradicted first, then what is inconclusive, and those without a verdict
    last."""
    return sorted(results, key=lambda r: (list(Verdict).index(r.verdict), r.claim.name))


def has_figure(result: ClaimResult) -> bool:
    """Return whether there is something to draw."""
    return any(test.measured for test in result.tests)


def tables(results: Sequence[ClaimResult]) -> list[Table]:
    """Return the tables of verdicts, of checks, of arms, and of what was not run."""
    verdicts: list[Sequence[str]] = []
    checks: list[Sequence[str]] = []
    arms: list[Sequence[str]] = []
    not_run: list[Sequence[str]] = []
    for result in in_order(results):
        claim = result.claim
        if not claim.tests:
            not_run.append([claim.name, claim.statement, claim.source, claim.not_run])
            continue
        start = [str(result.verdict), claim.name, claim.statement, claim.source]
        end = [scale(result), f"`{COMMAND} {claim.name}`"]
        for test in result.tests:
            lines = checks if claim.is_check else verdicts
            words = f"{test.test.says}: {test.test.measure_name()}, {compared(test)}"
            words += "" if test.test.statistic == "mean" else f" ({test.test.statistic})"
            cells = [words, counts(test), effect_of(test.finding), str(test.test.criterion)]
            lines.append([*start, *cells, verdict_of(test.finding), *end])
            if test.trained:
                lines.append(_description_line(test.trained))
            start, end = [""] * 4, [""] * 2
        verdicts += map(_description_line, result.descriptions)
        name, note = claim.name, claim.note
        for arm, overrides in claim.arms.items():
            arms.append([name, arm, f"`{' '.join(overrides) or '-'}`", note])
            name = note = ""
    head = ["verdict", "claim", "statement", "source", "tested", "n", "effect (95 %)"]
    head += ["criterion", "found", "scale", "command"]
    arm_head = ("claim", "arm", "besides `claim=<claim>`", "note")
    return [
        Table("Verdicts", 2, head, verdicts),
        Table("Checks", 2, head, checks),
        Table("Arms", 2, arm_head, arms),
        Table("Not run", 2, ("claim", "statement", "source", "why"), not_run),
    ]


def _description_line(description: Description) -> Sequence[str]:
    comparison = description.comparison
    arms = with_means(comparison, description.measured)
    words = f"{comparison.says}: {comparison.measure_name()}, {arms}"
    numbers = [str(description.n()), mean_of_description(description)]
    return [*[""] * 4, words, *numbers, "-", NOT_JUDGED, "", ""]


def search_table(all_claims: Sequence[Claim], records: Sequence[TrainingRecord]) -> Table:
    """Return the table of the arms' learning rates with what chose them."""
    lines = []
    for claim in all_claims:
        if (search := claim.search) is None:
            continue
        runs = search_runs(claim, records)
        for arm in search.with_others(claim.arms):
            means = rate_means(search, arm, runs)
            best = best_rate(search, arm, runs)
            cells = [claim.name, arm, search.measured_by(), str(len(search.seeds))]
            cells.append(", ".join(f"{rate:g}: {_mean(mean)}" for rate, mean in means.items()))
            lines.append([*cells, "-" if best is None else f"{best[1]:g}"])
    head = ("claim", "arm", "chosen by", "seeds", "mean by learning rate", "chosen")
    return Table("Searches of learning rates", 2, head, lines)


def _mean(mean: float | None) -> str:
    return "not run" if mean is None else "diverged" if mean == math.inf else f"{mean:.3g}"


def chosen() -> dict[str, list[str]]:
    """Return the claims that FINDINGS.md begins with, each with those that stand below it."""
    return yaml.safe_load(CHOSEN.read_text())


def findings_page(results: Sequence[ClaimResult]) -> str:
    """Return FINDINGS.md: the chosen claims, then all others that are inconclusive, contradicted,
    or not run.

    Raises:
        InputError: where a chosen claim does not exist.
    """
    others = {result.claim.name: result for result in in_order(results)}
    parts, first = [HEAD], chosen()
    for name in {name for first_name, below in first.items() for name in (first_name, *below)}:
        if name not in others:
            raise InputError(f"{CHOSEN.name} names {name}, which is not a claim of conf/claim")
    for i, (name, below) in enumerate(first.items(), start=1):
        lines = [finding_line(f"{i}.", others.pop(name), f"{COMMAND} ")]
        lines += [f"    {finding_line('-', others.pop(other))}" for other in below]
        parts.append("\n".join(lines) + "\n")
    for verdict in (Verdict.INCONCLUSIVE, Verdict.CONTRADICTED):
        lines = [finding_line("-", r) for r in others.values() if r.verdict is verdict]
        parts.append(f"## {verdict.capitalize()}\n\n" + ("\n".join(lines) or "None.") + "\n")
    parts.append("## Not run\n\nWhat is still to be run, or cannot be.\n")
    lines = []
    for claim in (r.claim for r in others.values() if r.verdict is Verdict.NOT_RUN):
        lines.append(f"- {claim.statement}: {claim.not_run or f'`{COMMAND} {claim.name}`'}\n")
    return "\n".join([*parts, "".join(lines) or "None.\n"])


def finding_line(marker: str, result: ClaimResult, command: str = "") -> str:
    """Return a claim in one line: its sentence, its verdict, the effects of the tests, and where
    they are from."""
    claim, parts = result.claim, []
    for test in result.tests:
        own = verdict_of(test.finding)
        words = f"{test.test.says}, {compared(test)}: {effect_of(test.finding)}, n = {counts(test)}"
        words += f": {own}".removeprefix(f": {result.verdict}")
        if trained := test.trained:
            arms = with_means(trained.comparison, trained.measured)
            mean = f"{mean_of_description(trained)}, n = {trained.n()}"
            words += f" [{trained.comparison.says}, {arms}: {mean}: {NOT_JUDGED}]"
        parts.append(words)
    words = "; ".join([*parts, scale(result, short=True)])
    figure = f"[figure]({FIGURES}/{claim.name}.svg), " if has_figure(result) else ""
    first = f"{marker} **{claim.statement}: {result.verdict}.** {words[0].upper()}{words[1:]}"
    return f"{first}; {figure}`{command}{claim.name}`"


def scale(result: ClaimResult, short: bool = False) -> str:
    """Return data, network and length of a claim's runs; `short` in few words."""
    runs = result.records
    if not runs:
        return "-"
    data = sorted({str(run.choices.get("data")) for run in runs})
    epochs = sorted({run.science["optim"]["epochs"] for run in runs})
    length = f"{' or '.join(map(str, epochs))} epoch{'s' * (epochs != [1])}"
    sizes = [(f"{run.choices.get('model')} of {run.network.depth} layers", run) for run in runs]
    if short:
        return ", ".join([*data, *sorted({network for network, _ in sizes}), length])
    networks = sorted({f"{n}, {run.network.parameters:,} parameters" for n, run in sizes})
    network = ", ".join(networks) if len(networks) < 3 else f"{len(networks)} networks"
    images = ", ".join(sorted({f"{run.images.train:,}" for run in runs}))
    same = [SAME_IMAGES] if any(run.images.test is None for run in runs) else []
    return ", ".join([*data, network, f"{length} of {images} images", *same])


def compared(result: TestResult) -> str:
    """Return what is compared, with the means of the arms whose difference is meant: how good
    either is."""
    is_mean = result.test.statistic == "mean"
    return with_means(result.test, result.measured if is_mean else [])


def with_means(comparison: Comparison, measured: Sequence[tuple[float, ...]]) -> str:
    """Return what is compared, with the means of two arms whose difference is meant."""
    if not (comparison.minus and measured):
        return comparison.compared()
    one, other = map(fmean, zip(*measured, strict=True))
    return f"{comparison.compared()} ({one:.3g} and {other:.3g})"


def counts(result: TestResult) -> str:
    """Return the seeds of a test, how many runs of each arm diverged, and what is left out."""
    if not any(result.diverged.values()):
        return str(result.finding.n)
    by_arm = ", ".join(f"{arm} {n} of {result.seeds}" for arm, n in result.diverged.items())
    left_out = f"; pairs left out: {result.left_out}" if result.left_out else ""
    return f"{result.finding.n} (diverged: {by_arm}{left_out})"


def mean_of_description(description: Description) -> str:
    """Return the mean of a description with its interval, as far as it has them."""
    mean = description.mean
    if mean is None:
        return "-"
    spread = "" if mean.low is None else f" ({mean.low:.3g} to {mean.high:.3g})"
    return f"{mean.mean:.3g}{spread}"


def effect_of(finding: Finding) -> str:
    """Return an effect with its interval, as far as it has them."""
    effect = "-" if math.isnan(finding.effect) else f"{finding.effect:.3g}"
    if math.isfinite(finding.low):
        effect += f" ({finding.low:.3g} to {finding.high:.3g})"
    return effect


def verdict_of(finding: Finding) -> str:
    """Return a verdict; beside an inconclusive one how many seeds would decide."""
    if finding.verdict is not Verdict.INCONCLUSIVE:
        return str(finding.verdict)
    if finding.would_be is Verdict.INCONCLUSIVE:
        return f"{finding.verdict} (seeds to decide: -)"
    needed = f"{finding.needed:,}" if finding.needed else f"more than {MOST_SEEDS:,}"
    return f"{finding.verdict} (seeds to decide: {needed}, {finding.would_be})"
