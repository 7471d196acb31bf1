"""Claims: statements with their source, the runs that answer them, and a criterion that was written
before the runs.

A claim is a file `conf/experiment/claim/<name>.yaml`: the setting as for any experiment, and under
the key `claim`, which no run reads, what is claimed:

    statement, source       the sentence, and where it is from: a section, a page and its heading, a
                            reader's question
    seeds                   how many, from 0 on; a test of fewer is no verdict
    arms                    by name, what is given on the command line besides the experiment
    first_seed              instead of 0: a criterion that is changed after a run needs other seeds
    search                  how the arms' learning rates are chosen: see `searches.py`
    is_check                true: it follows from theory, so that its runs test this program and are
                            no evidence
    note                    what a reader must know of the setting, such as why it was changed
    tests                   a list; the claim is supported where all are, and contradicted where one
                            is:
        says                the part of the statement that it tests
        measure, with       a function of `measures.py`, and its settings
        of, minus or over   an arm, and the arm that is subtracted, or divided by, seed by seed
        statistic           mean (Student's t), median (exact, by ranks), share (exact, of a yes or
                            no)
        supported, contradicted    where the whole interval has to lie: see `verdicts.Criterion`
        leave_out_diverged  true: pairs in which a run diverged are left out, and counted beside the
                            effect
    descriptions            a list of what the runs show besides, by no criterion and of the runs
                            that did not diverge:
                            says, measure, with, of and minus as above; <claim>/<arm> is an arm of
                            another claim
"""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from rectifiers.results.comparisons import (
    Comparison,
    Description,
    Diverged,
    Test,
    describe,
    description_of,
    test_of,
)
from rectifiers.results.eligibility import known
from rectifiers.results.measures import has_diverged
from rectifiers.results.searches import Found, Search
from rectifiers.results.verdicts import STATISTICS, Finding, Verdict, judge, together
from rectifiers.runs.identity import run_id, without
from rectifiers.runs.record import EnsembleRecord, Record, TrainingRecord
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CONF

PLACE = CONF / "experiment" / "claim"
WHERE_TRAINED = "the same where no run diverged"
OF_A_SEED = ("seed", "data.split_seed")


@dataclass(frozen=True)
class Claim:
    """A claim as configured; without tests it is `not_run` for that reason."""

    name: str
    statement: str
    source: str
    seeds: int = 0
    arms: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tests: Sequence[Test] = ()
    descriptions: Sequence[Comparison] = ()
    note: str = ""
    not_run: str = ""
    first_seed: int = 0
    is_check: bool = False
    search: Search | None = None

    def searched(self) -> dict[str, list[str]]:
        """Return the overrides of the runs that choose its arms' learning rates, by name; none
        without a search."""
        return self.search.arms(self.arms) if self.search else {}

    def all_seeds(self) -> range:
        """Return the seeds that it asks for."""
        return range(self.first_seed, self.first_seed + self.seeds)


@dataclass(frozen=True)
class Tested:
    """A test with what was found; `runs` are those that answered it, `left_out` the pairs that do
    not count.

    measured: of every pair that counted, the measure of `of` and of what it is held against.
    beside: the same without the runs that diverged, where a mean counts them as guessing."""

    test: Test
    finding: Finding
    runs: Sequence[str] = ()
    diverged: Diverged = field(default_factory=Diverged)
    left_out: int = 0
    measured: Sequence[tuple[float, ...]] = ()
    beside: Description | None = None


@dataclass(frozen=True)
class Answer:
    """A claim with its verdict, and the records that it was made from."""

    claim: Claim
    verdict: Verdict
    tested: Sequence[Tested]
    described: Sequence[Description] = ()
    records: Sequence[TrainingRecord] = ()


@functools.cache
def claims() -> tuple[Claim, ...]:
    """Return all claims in the order of their names, those that are not run last.

    Raises:
        InputError: for a file that describes none; the message names file and key.
    """
    run = [
        _claim(path.stem, yaml.safe_load(path.read_text()).get("claim"))
        for path in sorted(PLACE.glob("*.yaml"))
    ]
    left = yaml.safe_load(Path(__file__).with_name("claims_not_run.yaml").read_text())
    arms = {f"{claim.name}/{arm}" for claim in run for arm in claim.arms}
    for claim in run:
        for arm in (arm for each in claim.descriptions for arm in each.arms()):
            if arm not in claim.arms and arm not in arms:
                raise InputError(
                    f"claim/{claim.name} describes an arm {arm}, which no claim has; give "
                    "<claim>/<arm>"
                )
    return (*run, *(Claim(name, **words) for name, words in left.items()))


def _claim(name: str, described: Any) -> Claim:
    if not isinstance(described, dict):
        raise InputError(f"claim/{name} has no key claim; say there what it claims")
    try:
        tests = [test_of(name, dict(test)) for test in described.pop("tests")]
        descriptions = [
            description_of(name, dict(each)) for each in described.pop("descriptions", [])
        ]
        search = Search.of(name, described.pop("search")) if "search" in described else None
        claim = Claim(name, tests=tests, descriptions=descriptions, search=search, **described)
    except (TypeError, KeyError, ValueError) as error:
        raise InputError(
            f"claim/{name} is not whole ({error}); see results/claims.py for its keys"
        ) from error
    for arm in (arm for test in tests for arm in test.arms()):
        if arm not in list(claim.arms):
            raise InputError(
                f"claim/{name} tests an arm {arm}, which it does not have; give one of its arms"
            )
    if not tests:
        raise InputError(f"claim/{name} has no tests; give one or more")
    fewest = max(STATISTICS[test.statistic].fewest for test in tests)
    if type(claim.first_seed) is not int or claim.first_seed < 0:
        raise InputError(
            f"claim/{name} has first_seed={claim.first_seed}; give a whole number from 0 on"
        )
    if not isinstance(claim.seeds, int) or claim.seeds < fewest:
        raise InputError(
            f"claim/{name} has {claim.seeds} seeds, too few for an interval; give {fewest} or more"
        )
    return claim


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
        raise InputError(
            f"claim/{claim.name} has arms that are not known; call python scripts/report.py "
            "experiments"
        )
    by_hash: dict[str, dict[int, TrainingRecord]] = {}
    for record in found:
        if record.seed in claim.all_seeds():
            by_hash.setdefault(arm_hash(record.science), {})[record.seed] = record
    return {arm: by_hash.get(hashes[arm], {}) for arm in claim.arms}


def search_runs(claim: Claim, found: Iterable[TrainingRecord]) -> Found:
    """Return the runs that choose the claim's learning rates, by the names of `Claim.searched` and
    seed."""
    hashes = known()["claims"].get(claim.name, {})
    by_hash: dict[str, dict[int, TrainingRecord]] = {}
    for record in found:
        if claim.search and record.seed in claim.search.seeds:
            by_hash.setdefault(arm_hash(record.science), {})[record.seed] = record
    return {name: by_hash.get(hashes[name], {}) for name in claim.searched() if name in hashes}


def answer(claim: Claim, found: Iterable[TrainingRecord]) -> Answer:
    """Return the claim's verdict on records that answer claims."""
    if not claim.tests:
        return Answer(claim, Verdict.NOT_RUN, ())
    found = list(found)
    runs = runs_of(claim, found)
    tested = [_tested(test, claim.seeds, runs) for test in claim.tests]
    used = {record.run: record for arm in runs.values() for record in arm.values()}
    described = [_described(each, runs, found) for each in claim.descriptions]
    return Answer(
        claim,
        together([each.finding.verdict for each in tested]),
        tested,
        described,
        list(used.values()),
    )


def _described(comparison: Comparison, runs: Runs, found: Sequence[TrainingRecord]) -> Description:
    return describe(comparison, _pairs([_arm(name, runs, found) for name in comparison.arms()]))


def _arm(name: str, runs: Runs, found: Sequence[TrainingRecord]) -> Mapping[int, TrainingRecord]:
    """The runs of one of a claim's arms, or of `<claim>/<arm>`, by seed."""
    if name in runs:
        return runs[name]
    claim, _, arm = name.partition("/")
    (other,) = (each for each in claims() if each.name == claim)
    return runs_of(other, found)[arm]


def _pairs(arms: Sequence[Mapping[int, TrainingRecord]]) -> list[list[TrainingRecord]]:
    """The records of every seed that all arms have."""
    return [
        [arm[seed] for arm in arms] for seed in sorted(arms[0]) if all(seed in arm for arm in arms)
    ]


def _tested(test: Test, planned: int, runs: Runs) -> Tested:
    pairs = _pairs([runs[arm] for arm in test.arms()])
    counted = [
        pair for pair in pairs if not (test.leave_out_diverged and any(map(has_diverged, pair)))
    ]
    measured = [each for pair in counted if (each := test.measured(pair)) is not None]
    effects = [effect for each in measured if (effect := test.effect(each)) is not None]
    values = list(map(math.log, effects)) if test.over else effects
    left_out = len(pairs) - len(counted)
    criterion = test.criterion.in_logs() if test.over else test.criterion
    finding = judge(values, planned - left_out, test.statistic, criterion)
    if pairs and finding.verdict is Verdict.NOT_RUN:
        finding = Finding(Verdict.TOO_FEW)
    if test.over and values:
        effect, low, high = map(_exp, (finding.effect, finding.low, finding.high))
        finding = replace(finding, effect=effect, low=low, high=high)
    used = [record.run for arm in zip(*pairs, strict=True) for record in arm]
    trained = None
    diverged = Diverged.of(test, pairs)
    counts_guesses = diverged and not test.leave_out_diverged
    if counts_guesses and test.statistic == "mean" and not test.over:
        trained = describe(replace(test, says=WHERE_TRAINED), pairs)
    return Tested(test, finding, used, diverged, left_out, measured, trained)


def _exp(value: float) -> float:
    return math.inf if value > 700 else math.exp(value)
