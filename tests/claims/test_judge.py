"""Verdicts on numbers whose truth is known, and how often they are wrong."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from made_up import altered, result, training
from made_up_claims import BASE, LOST, record, runs
from rectifiers.claims import archive
from rectifiers.claims.claim_page import claim_page
from rectifiers.claims.claims import claims
from rectifiers.claims.comparisons import FEWEST
from rectifiers.claims.comparisons import Test as Criterion  # which pytest would collect
from rectifiers.claims.judge import (
    Verdict,
    _test_result,
    answer,
    combine_verdicts,
    judge,
)
from rectifiers.results.statistics import mean_of, t_interval
from rectifiers.runs.record import TrainingRecord
from refusals import refused


def criterion(supported: dict, contradicted: dict, **more: Any) -> Criterion:
    regions = {"supported": supported, "contradicted": contradicted}
    measured: dict[str, Any] = {"measure": "reached", "with": {"below": 1}}
    return Criterion(says="x", of="a", **measured, **regions, **more)


LOWER = criterion({"below": -0.2}, {"above": 0})
SAME = criterion({"within": [-0.6, 0.6]}, {"outside": [-0.6, 0.6]})
MOST = criterion({"above": 0.5}, {"below": 0.5}, statistic="share")
MEDIAN = criterion({"above": 0}, {"below": 0}, statistic="median")
SPREAD = (-0.3, -0.1, 0.0, 0.1, 0.3)


def around(centre: float) -> list[float]:
    return [centre + each for each in SPREAD]


S, N, C = Verdict.SUPPORTED, Verdict.INCONCLUSIVE, Verdict.CONTRADICTED


@pytest.mark.parametrize(("centre", "verdict"), [(-1.0, S), (-0.3, N), (0.0, N), (0.1, N), (1, C)])
def test_direction_is_judged_by_its_interval(centre: float, verdict: Verdict) -> None:
    found, mean = judge(around(centre), 5, LOWER), mean_of(around(centre))
    assert found.verdict == verdict
    assert (found.n, found.effect) == (5, pytest.approx(centre))
    assert (found.low, found.high) == pytest.approx((mean.low, mean.high))


def test_effect_may_be_too_small_to_matter() -> None:
    small = [-0.1, -0.11, -0.09, -0.1, -0.1]
    difference = criterion({"below": -0.2}, {"above": 0}, minus="b")
    ratio = criterion({"above": 1.2}, {"below": 1}, over="b")
    for values, test, verdict in (
        (small, LOWER, N),  # the level of one arm
        (small, difference, Verdict.NO_EFFECT),
        ([1.15, 1.16, 1.14, 1.15, 1.15], ratio, Verdict.NO_EFFECT),
        ([1.24, 1.25, 1.23, 1.24, 1.24], ratio, S),
        (around(-0.1), difference, N),
    ):
        assert judge(values, 5, test).verdict is verdict
    not_worse = criterion({"below": 0.6}, {"above": 0.6}, minus="b")
    assert not_worse.negligible() is None  # that there is no effect supports it


@pytest.mark.parametrize(("centre", "verdict"), [(0, S), (0.5, N), (-0.8, N), (2, C), (-2, C)])
def test_equivalence_is_two_one_sided_tests(centre: float, verdict: Verdict) -> None:
    assert judge(around(centre), 5, SAME).verdict == verdict


def test_equivalence_uses_the_interval_of_90_percent() -> None:
    values = around(0.37)
    ninety, ninety_five = t_interval(values, 0.90), t_interval(values, 0.95)
    assert ninety[1] < 0.6 < ninety_five[1]
    found = judge(values, 5, SAME)
    assert (found.verdict, found.high) == (Verdict.SUPPORTED, ninety_five[1])


@pytest.mark.parametrize(("values", "verdict"), [([1] * 6, S), ([0] * 6, C), ([1] * 5 + [0], N)])
def test_a_share_is_judged_by_its_exact_interval(values: list[float], verdict: Verdict) -> None:
    found = judge(values, 6, MOST)
    assert found.verdict is verdict
    exact = binomtest(sum(values), 6).proportion_ci(0.95, "exact")
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high))


def test_ties_make_no_median_significant() -> None:
    assert judge([0.0] * 6, 6, MEDIAN).verdict is Verdict.INCONCLUSIVE
    assert judge([13.0] * 6, 6, MEDIAN).verdict is Verdict.SUPPORTED
    assert judge([-1.0] * 6, 6, MEDIAN).verdict is Verdict.CONTRADICTED


@pytest.mark.parametrize("statistic", ["mean", "median"])
def test_ratios_that_reach_a_bound_are_inconclusive(statistic: str) -> None:
    for bound in (3.0, 10.0, 1 / 3):  # exp(log(3)) is above 3
        test = criterion({"above": bound}, {"below": bound}, over="b", statistic=statistic)
        assert judge([bound] * 6, 6, test).verdict is Verdict.INCONCLUSIVE
        assert judge([bound * 1.01] * 6, 6, test).verdict is Verdict.SUPPORTED


def test_ratio_without_a_finite_logarithm_is_no_effect() -> None:
    ratio = criterion({"above": 1.2}, {"below": 1}, over="b")
    for measured in ((1e300, 1e-300), (1e-300, 1e300), (0.0, 1.0), (1.0, 0.0), (-2.0, -1.0)):
        assert ratio.effect(measured) is None
    assert ratio.effect((3.0, 2.0)) == 1.5


def test_arms_are_tested_alike() -> None:
    claim = next(claim for claim in claims() if claim.name == "uniform_weights")
    made = {arm: {0: training(protocols={"center": result(45, 50)})} for arm in claim.arms}
    assert _test_result(claim.tests[0], 1, made, {}).finding.n == 1
    other = result(45, 50) | {"settings": {"scale_px": 9}}
    made["uniform"] = {0: training(protocols={"center": other})}
    with refused("tested by center with several settings"):
        _test_result(claim.tests[0], 1, made, {})


@pytest.mark.parametrize("statistic", sorted(FEWEST))
def test_too_few_seeds_are_no_verdict(statistic: str) -> None:
    fewest, test = FEWEST[statistic], MOST.model_copy(update={"statistic": statistic})
    assert judge([], 6, test).verdict is Verdict.NOT_RUN
    few = judge([1.0] * (fewest - 1), fewest - 1, test)
    assert (few.verdict, few.n, few.low) == (Verdict.TOO_FEW, fewest - 1, -math.inf)
    # one that was planned is missing
    assert judge([1.0] * 9, 10, test).verdict is Verdict.TOO_FEW


def test_claim_is_supported_by_all_its_tests() -> None:
    few, no = Verdict.TOO_FEW, Verdict.NOT_RUN
    table = [([S, S], S), ([S, N], N), ([S, N, C], C), ([N, few], few), ([S, no], few)]
    table += [([C, few], C), ([C, no, S], C)]  # whatever the others would show
    for parts, whole in (*table, ([no, no], no)):
        assert combine_verdicts(parts) is whole


DOWN = [x - 1 for x in BASE]
ERROR = {"says": "x", "measure": "error", "of": "better", "minus": "worse"}


@pytest.mark.parametrize(
    ("changed", "epochs", "words"),
    [
        ({}, 3, "seen here at one length"),
        ({}, 2, "seen here"),  # one arm trains for less
        ({"of": "worse", "minus": "better"}, 3, "opposite seen here at one length"),
        ({"measure": "mean_over"}, 3, "seen here"),  # a loss
        ({"measure": "final"}, 3, "seen here at one length"),
        (
            {"supported": {"below": 0.6}, "contradicted": {"above": 0.6}},
            3,
            "seen here",
        ),  # not higher
        ({"supported": {"within": [-2, 1]}, "contradicted": {"outside": [-2, 1]}}, 3, "seen here"),
        ({"supported": {"below": -0.9}}, 3, "not clear here"),
    ],
)
def test_a_lower_error_at_one_length_is_named(
    made_up, monkeypatch, changed: dict, epochs: int, words: str
) -> None:
    regions = {"supported": {"below": -0.2}, "contradicted": {"above": 0}}
    keys = {"final": {"key": "val/top1_error_pct"}, "mean_over": {"epochs": 2}}
    with_key = {"with": keys[changed["measure"]]} if "measure" in changed else {}
    given = ERROR | regions | changed | with_key
    claim = made_up(tests=[given])
    better = [
        record("better", seed, x - 1 + x / 50, losses=(1.0, 0.5, 0.1))
        for seed, x in enumerate(BASE)
    ]
    better = [altered(run, {"science.trainer.max_epochs": epochs}) for run in better]
    worse = runs([], BASE)
    arms = {"better": archive.arm_of(better[0]), "worse": archive.arm_of(worse[0])}
    monkeypatch.setattr(archive, "arm_hashes", lambda: {"made_up": arms})
    found = answer(claim, better + worse)
    assert found.shown() == words
    page = claim_page(found, better + worse)
    assert ("At one length" in page) is words.endswith("length")


def test_what_has_not_run_is_said_beside_what_decides(made_up) -> None:
    later = ERROR | {
        "of": "another",
        "minus": "better",
        "supported": {"below": -1},
        "contradicted": {"above": 0},
    }
    opposite = later | {"of": "worse"}
    arms = {"better": ["optim.lr=1"], "worse": [], "another": ["optim.lr=3"]}
    found = answer(made_up(arms=arms, tests=[opposite, later]), runs(DOWN, BASE))
    assert found.verdict is Verdict.CONTRADICTED
    assert found.deciding_part() == "1 of 2 tests; 1 without a verdict"
    assert found.tests[1].finding.changes("it") == "has not run"
    some = [record("another", seed, 1.0) for seed in range(2)]
    found = answer(made_up(arms=arms, tests=[opposite, later]), [*runs(DOWN, BASE), *some])
    assert found.tests[1].finding.changes("it") == "has too few runs"


def test_longer_runs_beside_do_not_hide_one_length(made_up, monkeypatch) -> None:
    regions = {"supported": {"below": -0.2}, "contradicted": {"above": 0}}
    short, longer = ERROR | regions, ERROR | regions | {"of": "another"}
    arms = {"better": ["optim.lr=1"], "worse": [], "another": ["optim.lr=3"]}
    claim = made_up(arms=arms, tests=[short, longer])
    made = [record("another", seed, x - 1) for seed, x in enumerate(BASE)]
    made = [altered(run, {"science.trainer.max_epochs": 2}) for run in made]
    hashes = {**archive.arm_hashes()["made_up"], "another": archive.arm_of(made[0])}
    monkeypatch.setattr(archive, "arm_hashes", lambda: {"made_up": hashes})
    found = answer(claim, [*runs(DOWN, BASE), *made])
    assert found.shown() == "seen here at one length"


DRAWS = 4000


def share_of(verdict: Verdict, test: Criterion, values: np.ndarray) -> float:
    verdicts = [judge(list(map(float, row)), len(row), test).verdict for row in values]
    return verdicts.count(verdict) / len(verdicts)


@pytest.mark.process
def test_false_verdicts_are_as_rare_as_stated() -> None:
    """At the worst place, the bound itself. A share of 4,000 has a standard deviation of 0.0025
    (0.0034 at 5 %), and each tolerance is four of them."""
    draw = np.random.default_rng(0)
    at_bound, at_margin = draw.normal(-0.2, 1, (DRAWS, 5)), draw.normal(0.6, 0.05, (DRAWS, 10))
    skewed = draw.exponential(1, (DRAWS, 6)) - math.log(2)  # of median 0, and far from normal
    fair = draw.integers(0, 2, (DRAWS, 6))
    for verdict, test, values, share, tolerance in (
        (S, LOWER, at_bound, LOWER.chance(), 0.01),
        (C, LOWER, at_bound + 0.2, 0.025, 0.01),
        (S, SAME, at_margin, SAME.chance(), 0.014),
        (S, MEDIAN, skewed, 1 / 64, 0.008),
        (S, MOST, fair, 1 / 64, 0.008),
    ):
        found = share_of(verdict, test, values)
        assert found == pytest.approx(share, abs=tolerance)
    assert (LOWER.chance(), SAME.chance()) == pytest.approx((0.025, 0.05))


def test_a_change_of_a_difference_needs_both_differences(made_up) -> None:
    """Arms gain 3 and 1 points: the gain shrinks by 2."""
    arms: dict[str, list[str]] = {arm: [] for arm in ("long", "long_relu", "short", "short_relu")}
    change = {
        "says": "the same",
        "measure": "error",
        "of": "long",
        "minus": "long_relu",
        "since": ["short", "short_relu"],
        "supported": {"within": [-0.5, 0.5]},
        "contradicted": {"outside": [-0.5, 0.5]},
    }
    errors = {"long": 19.0, "long_relu": 20.0, "short": 22.0, "short_relu": 25.0}
    beside_long = {"arm_seeds": {"long_at_low": [0, 1]}, "neighbours": {"long": ["long_at_low"]}}
    claim = made_up(arms={**arms, "long_at_low": []}, tests=[change], **beside_long)
    whole = [record("long_at_low", seed, 90.0) for seed in range(2)]  # is no step of a change
    whole += [
        record(arm, seed, error + 0.01 * seed * (arm == "long"))
        for arm, error in errors.items()
        for seed in range(5)
    ]
    test = answer(claim, whole).tests[0]
    assert test.finding.effect == pytest.approx(2.02)
    assert test.finding.verdict == "contradicted"
    without = [run for run in whole if run.science["optim"]["lr"] != float(len("short"))]
    assert answer(claim, without).verdict == "not run"


GRID = {
    "arms": {
        "better": ["activation=prelu", "optim.lr=1"],
        "worse": ["optim.lr=2"],
        "better_low": ["activation=prelu", "optim.lr=0.5"],
        "better_higher": ["activation=prelu", "optim.lr=2"],
        "worse_low": ["optim.lr=1"],
    },
    "arm_seeds": {"better_low": [0, 1], "better_higher": [0, 1], "worse_low": [0, 1]},
    "neighbours": {"better": ["better_low", "better_higher"], "worse": ["worse_low"]},
}


def beside(arm: str, errors: list[float], change: float) -> list[TrainingRecord]:
    return [record(arm, seed, errors[seed] + change) for seed in range(2)]


@pytest.mark.parametrize(
    ("low", "higher", "worse_low", "verdict"),
    [
        (0.9, 0.5, 0.1, S),
        (0.9, 1.1, 0.1, N),  # the larger of two
        (-1.1, 0.5, 0.1, N),
        (0.9, 0.5, 1.1, N),  # of the other arm
        (None, 0.5, 0.1, S),  # a divergence is no step
        (9.0, 9.0, None, N),  # nothing is known of the other arm
        (None, None, None, S),
    ],
)
def test_an_effect_below_a_rate_step_is_inconclusive(
    made_up, low: float | None, higher: float, worse_low: float | None, verdict: Verdict
) -> None:
    down = [x - 1 for x in BASE]
    described = [{"says": "x", "measure": "error", "of": "better", "minus": "worse"}]
    claim = made_up(**GRID, descriptions=described)
    made = runs(down, BASE)
    changes = {"better_low": low, "better_higher": higher, "worse_low": worse_low}
    for arm, change in changes.items():
        errors = BASE if arm.startswith("worse") else down
        steps = beside(arm, errors, change or 0)
        made += steps if change is not None else [altered(run, LOST) for run in steps]

    found = answer(claim, made)
    assert found.verdict is verdict
    (test,), (description,) = found.tests, found.descriptions
    assert test.finding.effect == pytest.approx(-1)
    assert description.finding.verdict is Verdict.EXPLORATORY
    is_below = verdict is N
    for finding in (test.finding, description.finding):
        assert bool(finding.rate_step) is is_below
        assert finding.changes("it").startswith("makes no clear" if is_below else "lowers")
    assert (" points, more than the effect" in claim_page(found, made)) is is_below
    few = answer(claim, [run for run in made if run.seed < 3])
    assert few.verdict is Verdict.TOO_FEW


@pytest.mark.parametrize(("step", "verdict"), [(0.5, S), (0.7, N)])
@pytest.mark.parametrize("of", ["better", "worse"])
def test_a_rate_step_is_held_against_a_margin(made_up, of: str, step: float, verdict) -> None:
    same = {
        **{"says": "x", "measure": "error", "of": "better", "minus": "worse"},
        **{"supported": {"within": [-0.6, 0.9]}, "contradicted": {"outside": [-0.6, 0.9]}},
    }
    noise = [x + e for x, e in zip(BASE, (0.1, -0.1, 0.0, 0.1, -0.1), strict=True)]
    steps = {"better_higher": 0.1, "worse_low": 0.1}
    steps[{"better": "better_higher", "worse": "worse_low"}[of]] = step
    made = runs(noise, BASE)
    made += beside("better_higher", noise, steps["better_higher"])
    made += beside("worse_low", BASE, steps["worse_low"])
    assert answer(made_up(**GRID, tests=[same]), made).verdict is verdict
    differs = same | {"supported": {"below": -1.5}, "contradicted": {"above": -0.6}}
    contradicted = Verdict.CONTRADICTED if verdict is S else N
    assert answer(made_up(**GRID, tests=[differs]), made).verdict is contradicted
    no_effect = Verdict.NO_EFFECT if verdict is S else N
    bounds = {"supported": {"below": -0.6}, "contradicted": {"above": 0.6}}
    assert answer(made_up(**GRID, tests=[same | bounds]), made).verdict is no_effect


def test_claims_share_the_neighbours_of_an_arm(made_up, monkeypatch) -> None:
    made = runs([x - 1 for x in BASE], BASE)
    made += beside("better_low", [x - 1 for x in BASE], 3.0) + beside("worse_low", BASE, 0.1)
    owner = made_up(**GRID)
    sharing = owner.model_copy(update={"name": "sharing", "neighbours": {}, "arm_seeds": {}})
    hashes = archive.arm_hashes()["made_up"]
    monkeypatch.setattr(archive, "arm_hashes", lambda: {"made_up": hashes, "sharing": hashes})
    for known, verdict in (((sharing,), S), ((owner, sharing), N)):
        monkeypatch.setattr(archive, "claims", lambda known=known: known)
        assert answer(sharing, made).verdict is verdict

    other = sharing.model_copy(update={"neighbours": {"better": ("better_higher",)}})
    monkeypatch.setattr(archive, "claims", lambda: (owner, other))  # both count
    assert answer(other, made).verdict is N

    # another claim's new arm, whose hash is still to be written, does not matter
    monkeypatch.setattr(archive, "claims", lambda: (owner, sharing))
    fewer = {arm: hash_ for arm, hash_ in hashes.items() if arm != "better_low"}
    monkeypatch.setattr(archive, "arm_hashes", lambda: {"made_up": fewer, "sharing": hashes})
    assert answer(sharing, made).verdict is S
