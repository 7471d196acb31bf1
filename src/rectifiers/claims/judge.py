"""From the records of a claim to its verdict: an effect, its interval over seeds, and a criterion
that stood in the configuration before the runs."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import fmean, median

from rectifiers.claims.archive import Runs, arm_of, neighbouring_runs, runs_of
from rectifiers.claims.claims import Claim, claims
from rectifiers.claims.comparisons import EQUIVALENCE_LEVEL, FEWEST, LEVEL, Comparison, Region, Test
from rectifiers.claims.measures import has_diverged
from rectifiers.results.frame import length_of
from rectifiers.results.statistics import interval_of, mean_of
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.errors import InputError

LARGEST_LOG = 700  # of a float
WITHOUT_DIVERGED = "the same where no run diverged"


class Verdict(StrEnum):
    """What the runs say of a claim, in the order of CLAIMS.md."""

    CONTRADICTED = "contradicted"
    INCONCLUSIVE = "inconclusive"
    NO_EFFECT = "no effect that matters"
    SUPPORTED = "supported"
    TOO_FEW = "too few runs"
    NOT_RUN = "not run"
    EXPLORATORY = "exploratory"  # of a comparison without a criterion

    @property
    def shown(self) -> str:
        """What pages print: below the paper's scale a verdict speaks of what was seen here."""
        return SHOWN.get(self, self.value)


SHOWN = {
    Verdict.CONTRADICTED: "opposite seen here",
    Verdict.INCONCLUSIVE: "not clear here",
    Verdict.NO_EFFECT: "no difference that matters here",
    Verdict.SUPPORTED: "seen here",
}
NO_VERDICT = (Verdict.TOO_FEW, Verdict.NOT_RUN)


@dataclass(frozen=True)
class Finding:
    """An effect over `n` seeds (NaN where there is none) with its 95 % interval.

    narrow: the 90 % interval, which decides on equivalence. is_share: whether the effect is a share
    of the seeds. is_bound: whether of a seed only a lower bound is known. rate_step: what one step
    of the learning rate changes, where that is more than the effect."""

    verdict: Verdict
    n: int = 0
    effect: float = math.nan
    low: float = -math.inf
    high: float = math.inf
    narrow: tuple[float, float] = (-math.inf, math.inf)
    is_share: bool = False
    is_bound: bool = False
    rate_step: str = ""

    def text(self, unit: str = "", sign: int = 1) -> str:
        """Return the effect times `sign` with its interval; a share as `6 of 6 seeds` with its
        verb for a unit."""
        if math.isnan(self.effect):
            return "-"
        has_interval = math.isfinite(self.low)
        if self.is_share:
            spread = f" (95 % CI {100 * self.low:.0f}-{100 * self.high:.0f} %)"
            share = f"{self.effect * self.n:.0f} of {self.n} seeds{unit}"
            return share + spread if has_interval else share
        low, high = sorted((sign * self.low, sign * self.high))
        spread = f" ({low:.3g} to {high:.3g})" if has_interval else ""
        least = "at least " if self.is_bound else ""
        return f"{least}{sign * self.effect:.3g}{unit}{spread}"

    def with_n(self) -> str:
        """Return the effect with its interval and n."""
        return self.text() if self.is_share else f"{self.text()}, n = {self.n}"

    def seeds(self, verb: str) -> str:
        """Return a share with what the seeds do, as in `6 of 6 seeds train`."""
        if not self.is_share:
            raise TypeError("this effect is no share of seeds")
        return self.text(f" {verb}")

    def changes(self, what: str, unit: str = "") -> str:
        """Return whether `what` is lowered or raised, as far as the interval says so, and by how
        much."""
        if self.is_share:
            raise TypeError("this effect is a share of seeds")
        if self.verdict in NO_VERDICT:
            return "has too few runs" if self.n else "has not run"
        sign = -1 if self.high < 0 else 1
        text = f"{self.text(f' {unit}' if unit else '', sign)}, n = {self.n}"
        if self.rate_step:
            return f"makes no clear difference to {what}: {text} ({self.rate_step})"
        if self.low > 0 or self.high < 0:
            return f"{'lowers' if self.high < 0 else 'raises'} {what} by {text}"
        return f"makes no clear difference to {what}: {text}"


def judge(values: Sequence[float], planned: int, test: Test) -> Finding:
    """Return the finding from one finite effect per seed; those of ratios in logarithms.

    planned: the seeds that the configuration asks for. Fewer are no verdict, which prevents
    optional stopping."""
    if not values:
        return Finding(Verdict.NOT_RUN)
    n, statistic, is_share = len(values), test.statistic, test.statistic == "share"
    # a ratio that reaches a bound exactly does so in logarithms, too
    scale, in_units = _scales(test)
    numbers = list(map(scale, values))
    effect = in_units(median(numbers) if statistic == "median" else fmean(numbers))
    if n < max(planned, FEWEST[statistic]):
        return Finding(Verdict.TOO_FEW, n, effect, is_share=is_share)

    wide = interval_of(numbers, statistic, LEVEL)
    narrow = interval_of(numbers, statistic, EQUIVALENCE_LEVEL)
    negligible, verdict = test.negligible(), Verdict.INCONCLUSIVE
    decides = narrow if test.supported.side == "within" else wide
    if test.supported.scaled(scale).holds(decides):
        verdict = Verdict.SUPPORTED
    elif test.contradicted.scaled(scale).holds(wide):
        verdict = Verdict.CONTRADICTED
    elif negligible is not None and negligible.scaled(scale).holds(narrow):
        verdict = Verdict.NO_EFFECT

    low, high, left, right = map(in_units, (*wide, *narrow))
    return Finding(verdict, n, effect, low, high, (left, right), is_share)


def _scales(comparison: Comparison) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """The scale on which effects are averaged, that of logarithms for ratios, and its inverse."""
    return (math.log, _exp) if comparison.over else (float, float)


def _exp(number: float) -> float:
    return math.inf if number > LARGEST_LOG else math.exp(number)


def combine_verdicts(verdicts: Sequence[Verdict]) -> Verdict:
    """Return a claim's verdict: supported where all tests are, contradicted where one is, whether
    or not the others have run."""
    if Verdict.CONTRADICTED in verdicts:
        return Verdict.CONTRADICTED
    if set(verdicts) == {Verdict.NOT_RUN}:
        return Verdict.NOT_RUN
    if {Verdict.NOT_RUN, Verdict.TOO_FEW} & set(verdicts):
        return Verdict.TOO_FEW
    return min(verdicts, key=list(Verdict).index)


Pairs = Sequence[Sequence[TrainingRecord]]  # per seed the records of all arms
Neighbours = Mapping[str, Sequence[Mapping[int, TrainingRecord]]]  # by an arm's hash, and by seed


@dataclass(frozen=True)
class Description:
    """A comparison with its finding. measured: of every pair that counts, the measure of `of` and
    of what it is compared with."""

    comparison: Comparison
    finding: Finding
    measured: Sequence[tuple[float, ...]] = ()

    def text(self) -> str:
        """Return the effect with its unit and interval."""
        unit = self.comparison.unit()
        is_named = unit and not self.finding.is_share
        return self.finding.text(f" {unit}" if is_named else "")


@dataclass(frozen=True)
class TestResult(Description):
    """A test with its finding.

    diverged: how many runs of each arm did, of `seeds`. left_out: the pairs that do not count.
    trained: the same without the runs that diverged, where a mean counts them as guessing."""

    comparison: Test
    diverged: Mapping[str, int] = field(default_factory=dict)
    seeds: int = 0
    left_out: int = 0
    trained: Description | None = None

    def counts(self) -> str:
        """Return the seeds, how many runs of each arm diverged, and what is left out."""
        if not any(self.diverged.values()):
            return str(self.finding.n)
        by_arm = ", ".join(f"{arm} {n} of {self.seeds}" for arm, n in self.diverged.items())
        left_out = f"; pairs left out: {self.left_out}" if self.left_out else ""
        return f"{self.finding.n} (diverged: {by_arm}{left_out})"


def describe(comparison: Comparison, pairs: Pairs) -> Description:
    """Return what a comparison gives over the pairs of which no run diverged, judged by nothing.

    pairs: of each seed the records of the comparison's arms."""
    trained = _trained(pairs)
    measured, effects = _measured(comparison, trained)
    if not effects:
        return Description(comparison, Finding(Verdict.EXPLORATORY))
    scale, in_units = _scales(comparison)
    mean = mean_of([scale(effect) for effect in effects])
    effect, low, high = map(in_units, (mean.mean, mean.low, mean.high))
    is_bound = any(map(comparison.is_bound, trained))
    finding = Finding(Verdict.EXPLORATORY, mean.n, effect, low, high, is_bound=is_bound)
    return Description(comparison, finding, measured)


def _trained(pairs: Pairs) -> Pairs:
    """The pairs of which no run diverged."""
    return [pair for pair in pairs if not any(map(has_diverged, pair))]


def _measured(comparison: Comparison, pairs: Pairs) -> tuple[list[tuple[float, ...]], list[float]]:
    """The measures of every pair that has them, and the effects that follow."""
    measured = [values for p in pairs if (values := comparison.measured(p)) is not None]
    effects = [effect for m in measured if (effect := comparison.effect(m)) is not None]
    return measured, effects


@dataclass(frozen=True)
class ClaimResult:
    """A claim with its verdict, and the records that it was made from.

    one_length: whether a test that decides finds one of two errors lower, by runs of one length
    alone: a lower error may then be no more than faster training."""

    claim: Claim
    verdict: Verdict
    tests: Sequence[TestResult] = ()
    descriptions: Sequence[Description] = ()
    records: Sequence[TrainingRecord] = ()
    one_length: bool = False

    def shown(self) -> str:
        """Return the verdict as pages print it."""
        return f"{self.verdict.shown} at one length" if self.one_length else self.verdict.shown

    def deciding_tests(self) -> list[TestResult]:
        """Return the tests that give the claim a verdict which the others do not have."""
        tests = [test for test in self.tests if test.finding.verdict is self.verdict]
        decide = self.verdict not in NO_VERDICT and not self.claim.undecided
        return tests if decide and len(tests) < len(self.tests) else []

    def deciding_part(self) -> str:
        """Return how many tests give the verdict, as in `1 of 2 tests`; empty where all do."""
        if not (tests := self.deciding_tests()):
            return ""
        missing = sum(test.finding.verdict in NO_VERDICT for test in self.tests)
        words = f"{len(tests)} of {len(self.tests)} tests"
        return f"{words}; {missing} without a verdict" if missing else words


def answer(claim: Claim, records: Iterable[TrainingRecord]) -> ClaimResult:
    """Return the claim's verdict on records that answer claims."""
    records = list(records)
    runs = runs_of(claim, records)
    beside = neighbouring_runs(records)
    tests = [_test_result(test, claim.seeds, runs, beside) for test in claim.tests]
    descriptions = []
    for comparison in claim.descriptions:
        pairs = _pairs([_arm(name, runs, records) for name in comparison.arms()])
        found = describe(comparison, pairs)
        finding = _beside_rate_step(comparison, found.finding, pairs, beside)
        descriptions.append(replace(found, finding=finding))
    used = {record.run: record for arm in runs.values() for record in arm.values()}
    verdict = combine_verdicts([result.finding.verdict for result in tests])
    if claim.undecided and verdict not in NO_VERDICT:
        verdict = Verdict.INCONCLUSIVE
    decides = [result for result in tests if result.finding.verdict is verdict]
    one_length = any(_says_lower_error_at_one_length(result, runs) for result in decides)
    return ClaimResult(claim, verdict, tests, descriptions, list(used.values()), one_length)


def _says_lower_error_at_one_length(result: TestResult, runs: Runs) -> bool:
    """Whether a test finds one of two errors lower, and all its runs train for as many steps."""
    test, finding = result.comparison, result.finding
    if finding.verdict not in (Verdict.SUPPORTED, Verdict.CONTRADICTED) or not test.is_of_errors():
        return False
    region = _region(finding.verdict, test)
    lengths = {length_of(run) for arm in test.arms() for run in runs[arm].values()}
    return region is not None and not region.holds((0, 0)) and len(lengths) == 1


def _arm(name: str, runs: Runs, records: Sequence[TrainingRecord]) -> Mapping[int, TrainingRecord]:
    """The runs of one of a claim's arms, or of `<claim>/<arm>`, by seed."""
    if name in runs:
        return runs[name]
    other, _, arm = name.partition("/")
    return runs_of(next(claim for claim in claims() if claim.name == other), records)[arm]


def _pairs(arms: Sequence[Mapping[int, TrainingRecord]]) -> Pairs:
    """The records of every seed that all arms have."""
    seeds = (seed for seed in sorted(arms[0]) if all(seed in arm for arm in arms))
    return [[arm[seed] for arm in arms] for seed in seeds]


def _test_result(test: Test, planned: int, runs: Runs, beside: Neighbours) -> TestResult:
    pairs = _pairs([runs[arm] for arm in test.arms()])
    _check_protocols(test, [record for pair in pairs for record in pair])
    counted = _trained(pairs) if test.leave_out_diverged else pairs
    left_out = len(pairs) - len(counted)
    measured, values = _measured(test, counted)
    finding = judge(values, planned - left_out, test)
    if pairs and not values:
        finding = Finding(Verdict.TOO_FEW)
    finding = replace(finding, is_bound=any(map(test.is_bound, counted)))
    finding = _beside_rate_step(test, finding, pairs, beside)

    lost = {arm: sum(has_diverged(pair[i]) for pair in pairs) for i, arm in enumerate(test.arms())}
    trained = None
    counts_guesses = any(lost.values()) and not test.leave_out_diverged
    if counts_guesses and test.statistic == "mean" and not test.over:
        trained = describe(test.model_copy(update={"says": WITHOUT_DIVERGED}), pairs)
    return TestResult(test, finding, measured, lost, len(pairs), left_out, trained)


def _beside_rate_step(
    comparison: Comparison, finding: Finding, pairs: Pairs, beside: Neighbours
) -> Finding:
    """Return the finding on the difference of two arms; it is inconclusive if one step of the grid
    of learning rates changes an arm by more, of those arms whose neighbours have runs.

    A step changes an arm by the larger of the two differences from its neighbours, of the same
    measure and over the seeds that they share; runs that diverged measure no step."""
    is_difference = comparison.minus is not None and comparison.since is None
    if not is_difference or not finding.n or finding.verdict in NO_VERDICT:
        return finding

    steps = {}
    for arm, runs in zip(comparison.arms(), zip(*pairs, strict=True), strict=True):
        own = {run.seed: run for run in runs}
        to_neighbour = comparison.model_copy(update={"of": "neighbour", "minus": arm})
        of_arm = [
            describe(to_neighbour, _pairs([other, own])).finding
            for other in beside.get(arm_of(runs[0]), ())
        ]
        if sizes := [abs(found.effect) for found in of_arm if found.n]:
            steps[arm] = max(sizes)

    arm = max(steps, key=lambda arm: steps[arm], default="")
    if not steps or steps[arm] <= _size(comparison, finding):
        return finding
    unit = f" {comparison.unit()}" if comparison.unit() else ""
    words = f"one step of the learning rate changes {arm} by {steps[arm]:.3g}{unit}"
    is_judged = finding.verdict is not Verdict.EXPLORATORY
    verdict = Verdict.INCONCLUSIVE if is_judged else finding.verdict
    return replace(finding, verdict=verdict, rate_step=words)


def _size(comparison: Comparison, finding: Finding) -> float:
    """The effect without its sign; where no effect at all would have given the verdict, at least
    the margin."""
    size = abs(finding.effect)
    if not isinstance(comparison, Test):
        return size
    region = _region(finding.verdict, comparison)
    if region is None or not region.holds((0, 0)):
        return size
    return max(size, min(map(abs, region.bounds)))


def _region(verdict: Verdict, test: Test) -> Region | None:
    """Where the interval of a test with this verdict lies, as far as its criterion says."""
    regions = {
        Verdict.SUPPORTED: test.supported,
        Verdict.CONTRADICTED: test.contradicted,
        Verdict.NO_EFFECT: test.negligible(),
    }
    return regions.get(verdict)


def _check_protocols(test: Test, records: Sequence[TrainingRecord]) -> None:
    for name in test.protocols():
        tested = [record.protocols[name] for record in records if name in record.protocols]
        if any(result.settings != tested[0].settings for result in tested):
            raise InputError(
                f"the runs of {test.compared()} were tested by {name} with several settings; test "
                "them again with the same"
            )
