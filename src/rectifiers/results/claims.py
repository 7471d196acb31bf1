"""Claims: statements with their source, the runs that answer them, and a criterion that was written before the runs.

A claim is a file `conf/experiment/claim/<name>.yaml`: the setting as for any experiment, and under the key `claim`,
which no run reads, what is claimed:

    statement, source       the sentence, and the paper's section or the notes that it is of
    seeds                   how many, from 0 on; a test of fewer is no verdict
    arms                    by name, what is given on the command line besides the experiment
    cpu_s                   by arm, seconds of one core that a run took
    first_seed              instead of 0: a criterion that is changed after a run needs other seeds
    search                  how the arms' learning rates are chosen: see `searches.py`
    is_check                true: it follows from theory, so that its runs test this program and are no evidence
    note                    what a reader must know of the setting, such as why it was changed
    tests                   a list; the claim is supported where all are, and contradicted where one is:
        says                the part of the statement that it tests
        measure, with       a function of `measures.py`, and its settings
        of, minus or over   an arm, and the arm that is subtracted, or divided by, seed by seed
        statistic           mean (Student's t), median (exact, by ranks), share (exact, of a yes or no)
        supported, contradicted    where the whole interval has to lie: see `verdicts.Criterion`
        leave_out_diverged  true: pairs in which a run diverged are left out, and counted beside the effect
"""

import functools
import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from rectifiers.results.eligibility import known
from rectifiers.results.measures import MEASURES, has_diverged
from rectifiers.results.numerical_floor import NumericalFloor
from rectifiers.results.searches import Search
from rectifiers.results.verdicts import STATISTICS, Criterion, Finding, Region, Verdict, judge, together
from rectifiers.runs.identity import run_id, without
from rectifiers.runs.record import EnsembleRecord, Record, TrainingRecord
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CONF

PLACE = CONF / "experiment" / "claim"
OF_A_SEED = ("seed", "data.split_seed")
YES_OR_NO = ("reached", "diverged")  # the measures that are 1 or 0
SIDES = {"supported": ("above", "below", "within"), "contradicted": ("above", "below", "outside")}


@dataclass(frozen=True)
class Test:
    """One part of a claim; `over` makes ratios of what `minus` makes differences of."""

    says: str
    measure: str
    of: str
    criterion: Criterion
    settings: Mapping[str, Any] = field(default_factory=dict)
    minus: str | None = None
    over: str | None = None
    statistic: str = "mean"
    leave_out_diverged: bool = False

    def arms(self) -> list[str]:
        """Return the arm that is tested, and the one that it is held against."""
        return [arm for arm in (self.of, self.minus or self.over) if arm]

    def compared(self) -> str:
        """Return the arm with what it is compared with, as in `prelu minus relu`."""
        return (
            f"{self.of} minus {self.minus}" if self.minus else f"{self.of} over {self.over}" if self.over else self.of
        )

    def is_in_points(self) -> bool:
        """Return whether the effect is an error in percent, or a difference of errors in points."""
        of_error = self.measure == "error" or str(self.settings.get("key")).endswith("top1_error_pct")
        return of_error and self.measure not in ("reached", "epochs_to") and not self.over

    def measure_name(self) -> str:
        """Return the measure with its settings, as in `reached(below=0.5)`."""
        given = ", ".join(f"{key}={value}" for key, value in self.settings.items())
        return f"{self.measure}({given})" if given else self.measure


@dataclass(frozen=True)
class Claim:
    """A claim as configured; without tests it is `not_run` for that reason."""

    name: str
    statement: str
    source: str
    seeds: int = 0
    arms: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tests: Sequence[Test] = ()
    cpu_s: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    not_run: str = ""
    first_seed: int = 0
    is_check: bool = False
    search: Search | None = None

    def searched(self) -> dict[str, list[str]]:
        """Return the overrides of the runs that choose its arms' learning rates, by name; none without a search."""
        return self.search.arms(self.arms) if self.search else {}

    def all_seeds(self) -> range:
        """Return the seeds that it asks for."""
        return range(self.first_seed, self.first_seed + self.seeds)

    def seconds(self) -> float:
        """Return the seconds of one core that all its runs take."""
        return self.seeds * sum(self.cpu_s.values())


@dataclass(frozen=True)
class Tested:
    """A test with what was found; `runs` are those that answered it, `lost` of them diverged, `left_out` in pairs.

    measured: of every pair that counted, the measure of `of` and of what it is held against.
    """

    test: Test
    finding: Finding
    runs: Sequence[str] = ()
    lost: int = 0
    left_out: int = 0
    measured: Sequence[tuple[float, ...]] = ()


@dataclass(frozen=True)
class Answer:
    """A claim with its verdict, and the records that it was made from."""

    claim: Claim
    verdict: Verdict
    tested: Sequence[Tested]
    records: Sequence[TrainingRecord] = ()


@functools.cache
def claims() -> tuple[Claim, ...]:
    """Return all claims in the order of their names, those that are not run last.

    Raises:
        InputError: for a file that describes none; the message names file and key.
    """
    run = [_claim(path.stem, yaml.safe_load(path.read_text()).get("claim")) for path in sorted(PLACE.glob("*.yaml"))]
    left = yaml.safe_load(Path(__file__).with_name("claims_not_run.yaml").read_text())
    return (*run, *(Claim(name, **words) for name, words in left.items()))


def _claim(name: str, described: Any) -> Claim:
    if not isinstance(described, dict):
        raise InputError(f"claim/{name} has no key claim; say there what it claims")
    try:
        tests = [_test(name, dict(test)) for test in described.pop("tests")]
        search = Search.of(name, described.pop("search")) if "search" in described else None
        claim = Claim(name, tests=tests, search=search, **described)
    except (TypeError, KeyError, ValueError) as error:
        raise InputError(f"claim/{name} is not whole ({error}); see results/claims.py for its keys") from error
    for arm in (arm for test in tests for arm in test.arms()):
        if arm not in list(claim.arms):
            raise InputError(f"claim/{name} tests an arm {arm}, which it does not have; give one of its arms")
    if not tests:
        raise InputError(f"claim/{name} has no tests; give one or more")
    fewest = max(STATISTICS[test.statistic].fewest for test in tests)
    if type(claim.first_seed) is not int or claim.first_seed < 0:
        raise InputError(f"claim/{name} has first_seed={claim.first_seed}; give a whole number from 0 on")
    if not isinstance(claim.seeds, int) or claim.seeds < fewest:
        raise InputError(f"claim/{name} has {claim.seeds} seeds, too few for an interval; give {fewest} or more")
    return claim


def _test(name: str, given: dict[str, Any]) -> Test:
    none = 0.0 if given.get("minus") else 1.0 if given.get("over") else None
    supported, contradicted = (_region(name, key, given.pop(key)) for key in SIDES)
    criterion = Criterion(supported, contradicted, none)
    test = Test(**{"settings" if key == "with" else key: value for key, value in given.items()}, criterion=criterion)
    if test.measure not in MEASURES or test.statistic not in STATISTICS or (test.minus and test.over):
        raise InputError(
            f"claim/{name}: measure={test.measure}, statistic={test.statistic} cannot be used; give one of "
            f"{', '.join(MEASURES)}, one of {', '.join(STATISTICS)}, and either minus or over"
        )
    try:
        inspect.signature(MEASURES[test.measure]).bind({}, **test.settings)
    except TypeError as error:
        raise InputError(f"claim/{name}: with={test.settings} does not fit {test.measure} ({error})") from error
    if test.statistic == "share" and (test.measure not in YES_OR_NO or test.minus or test.over):
        raise InputError(
            f"claim/{name}: statistic=share is of a yes or no of one arm; give one of {', '.join(YES_OR_NO)}, without "
            "minus and over"
        )
    shared = [(max(a, c), min(b, d)) for a, b in criterion.supported.spans() for c, d in criterion.contradicted.spans()]
    if any(low < high for low, high in shared):
        raise InputError(f"claim/{name}: what is {criterion} can be both; give regions that share nothing")
    if test.over and any(bound <= 0 for bound in criterion.bounds()):
        raise InputError(f"claim/{name}: a ratio is above 0, and its bounds are {criterion}; give such as are")
    return test


def _region(name: str, key: str, region: Any) -> Region:
    """The region of {above: 0.5}, {within: [-1, 1]}."""
    if not isinstance(region, dict) or len(region) != 1 or not set(region) <= set(SIDES[key]):
        raise InputError(f"claim/{name}: {key}={region} is not usable; give one of: {', '.join(SIDES[key])}")
    ((side, bound),) = region.items()
    bounds = bound if isinstance(bound, list) else [bound]
    wanted = 2 if side in ("within", "outside") else 1
    if len(bounds) != wanted or not all(map(_is_finite, bounds)) or sorted(bounds) != bounds:
        raise InputError(f"claim/{name}: {key}={region} is not usable; give {wanted} ascending number(s)")
    return Region(side, tuple(bounds))


def _is_finite(bound: Any) -> bool:
    return isinstance(bound, int | float) and not isinstance(bound, bool) and math.isfinite(bound)


def arm_hash(science: dict[str, Any]) -> str:
    """Return what a run of a claim is, whatever its seed."""
    return run_id(without(science, OF_A_SEED))


def claim_exclusion_reason(record: Record) -> str | None:
    """Return why a record answers no claim, or None."""
    if isinstance(record, EnsembleRecord) or record.choices.get("debug") is not None:
        return "it is of no claim"
    arms = {arm for claim in known()["claims"].values() for arm in claim.values()}
    if arm_hash(record.science) not in arms:
        return "its configuration is no claim's"
    if record.science["data"].get("split_seed", record.seed) != record.seed:
        return "its images are split by another seed than its own"
    return None if record.provenance.git_dirty is False else "its code was not committed"


Runs = Mapping[str, Mapping[int, TrainingRecord]]  # by arm and seed


def runs_of(claim: Claim, found: Iterable[TrainingRecord]) -> Runs:
    """Return the claim's runs; those of the seeds that it asks for."""
    hashes = known()["claims"].get(claim.name, {})
    if not hashes.keys() >= set(claim.arms):
        raise InputError(f"claim/{claim.name} has arms that are not known; call python scripts/report.py experiments")
    by_hash: dict[str, dict[int, TrainingRecord]] = {}
    for record in found:
        if record.seed in claim.all_seeds():
            by_hash.setdefault(arm_hash(record.science), {})[record.seed] = record
    return {arm: by_hash.get(hashes[arm], {}) for arm in claim.arms}


def search_runs(claim: Claim, found: Iterable[TrainingRecord]) -> dict[str, TrainingRecord]:
    """Return the runs that choose the claim's learning rates, by the names of `Claim.searched`."""
    hashes, names = known()["claims"].get(claim.name, {}), claim.searched()
    by_hash = {hashes[name]: name for name in names if name in hashes}
    seed = claim.search.seed if claim.search else None
    return {
        by_hash[run]: record for record in found if record.seed == seed and (run := arm_hash(record.science)) in by_hash
    }


def answer(claim: Claim, found: Iterable[TrainingRecord], floor: NumericalFloor | None = None) -> Answer:
    """Return the claim's verdict on records that answer claims.

    floor: what an effect in points has to be clear of.
    """
    if not claim.tests:
        return Answer(claim, Verdict.NOT_RUN, ())
    runs = runs_of(claim, found)
    tested = [_tested(test, claim.seeds, runs, floor) for test in claim.tests]
    used = {record.run: record for arm in runs.values() for record in arm.values()}
    return Answer(claim, together([each.finding.verdict for each in tested]), tested, list(used.values()))


def _tested(test: Test, planned: int, runs: Runs, floor: NumericalFloor | None) -> Tested:
    arms = [runs[arm] for arm in test.arms()]
    seeds = [seed for seed in sorted(arms[0]) if all(seed in arm for arm in arms)]
    pairs = [[arm[seed] for arm in arms] for seed in seeds]
    counted = [pair for pair in pairs if not (test.leave_out_diverged and any(map(has_diverged, pair)))]
    measured = [each for pair in counted if (each := _measured(test, pair)) is not None]
    values = [value for each in measured if (value := _value(test, each)) is not None]
    left_out = len(pairs) - len(counted)
    by_rounding = 0.0
    if floor and values and test.is_in_points():
        data, protocol = str(counted[0][0].choices.get("data")), test.settings.get("protocol", "center")
        by_rounding = floor.half_width(data, protocol, len(values), len(arms))
    criterion = test.criterion.in_logs() if test.over else test.criterion
    finding = judge(values, planned - left_out, test.statistic, criterion, by_rounding)
    if seeds and finding.verdict is Verdict.NOT_RUN:
        finding = Finding(Verdict.TOO_FEW)
    if test.over and values:
        effect, low, high = map(_exp, (finding.effect, finding.low, finding.high))
        finding = replace(finding, effect=effect, low=low, high=high)
    used = [arm[seed] for arm in arms for seed in seeds]
    return Tested(test, finding, [run.run for run in used], sum(map(has_diverged, used)), left_out, measured)


def _exp(value: float) -> float:
    return math.inf if value > 700 else math.exp(value)


def _measured(test: Test, pair: Sequence[TrainingRecord]) -> tuple[float, ...] | None:
    """The measure of each record of one seed, or None where it does not exist in one of them."""
    found = [MEASURES[test.measure](record, **test.settings) for record in pair]
    measured = tuple(value for value in found if value is not None and math.isfinite(value))
    return measured if len(measured) == len(found) else None


def _value(test: Test, measured: Sequence[float]) -> float | None:
    """One seed's number; None for a ratio that has no logarithm."""
    own, *others = measured
    if not others:
        return own
    if test.over:
        return math.log(own / others[0]) if own > 0 and others[0] > 0 else None
    return own - others[0]
