"""Claims on records made up so that the truth is known, and the claims of conf/."""

import math
from typing import Any

import pytest
import yaml

from conftest import compose_config
from made_up import LAYER, altered, epoch, training
from made_up_claims import BASE, DESCRIBED, LOST, record, runs, science
from rectifiers.claims import archive as claim_records
from rectifiers.claims import judge
from rectifiers.claims.archive import arm_hashes, claim_exclusion_reason
from rectifiers.claims.claims import claims
from rectifiers.claims.documents import claims_page, in_order
from rectifiers.claims.judge import answer
from rectifiers.claims.measures import MEASURES
from rectifiers.results.paper import table_1_slopes
from rectifiers.runs import identity
from rectifiers.runs.identity import arm_hash
from refusals import refused

(TEST,) = yaml.safe_load(DESCRIBED)["tests"]


def test_arms_are_paired_by_seed(made_up: Any) -> None:
    change = [-1.0, -1.2, -0.9, -1.1, -1.0]
    better = [b + c for b, c in zip(BASE, change, strict=True)]
    found = answer(made_up(), reversed(runs(better, BASE)))
    assert found.verdict == "supported"
    assert found.tests[0].finding.effect == pytest.approx(sum(change) / 5)


def test_planned_seeds_alone_count_in_both_arms(made_up: Any) -> None:
    claim = made_up()
    whole = runs([b - 1 for b in BASE], BASE)
    assert answer(claim, []).verdict == "not run"
    assert answer(claim, whole[1:]).verdict == "too few runs"
    assert answer(claim, whole[:-1]).verdict == "too few runs"
    assert answer(claim, whole[1:]).tests[0].finding.n == 4
    elsewhere = [record("better", 5, 99.0), record("worse", 5, 1.0)]
    assert answer(claim, [*whole, *elsewhere]).tests[0].finding.effect == pytest.approx(-1)


def test_a_diverged_run_has_the_error_of_guessing(made_up: Any) -> None:
    whole = runs([b - 1 for b in BASE], BASE)
    whole[0] = altered(whole[0], LOST)
    found = answer(made_up(), whole)
    assert found.verdict == "inconclusive"  # one of five at 90 % makes the interval wide
    assert found.tests[0].finding.effect == pytest.approx((90 - 5 - 4) / 5)
    assert found.tests[0].diverged == {"better": 1, "worse": 0}
    whole[:5] = [altered(run, LOST) for run in whole[:5]]
    assert answer(made_up(), whole).verdict == "contradicted"


def test_an_arm_of_descriptions_may_have_fewer_seeds(made_up: Any) -> None:
    described = [{"says": "another", "measure": "error", "of": "third", "minus": "worse"}]
    arms = {"better": ["optim.lr=1"], "worse": [], "third": []}
    claim = made_up(arms=arms, descriptions=described, arm_seeds={"third": [1, 3]})
    whole = [*runs(BASE, BASE), *(record("third", seed, 8.0) for seed in range(5))]
    assert answer(claim, whole).descriptions[0].finding.n == 2
    assert list(claim.seeds_of("worse")) == [0, 1, 2, 3, 4]
    search = {"rates": [0.1, 0.2], "seeds": [1000]}
    searched = made_up(
        arms=arms, descriptions=described, arm_seeds={"third": [1]}, search=search
    ).searched()
    assert set(searched) == {
        f"{arm} at {rate}" for arm in ("better", "worse") for rate in (0.1, 0.2)
    }
    with refused("tests need all seeds of worse"):
        made_up(arm_seeds={"worse": [0]})


def test_descriptions_leave_diverged_runs_out(made_up: Any, monkeypatch) -> None:
    described = [
        {"says": "its own", "measure": "final", "of": "better"},
        {"says": "another's", "measure": "error", "of": "other/another", "minus": "worse"},
    ]
    whole = [*runs(BASE, BASE), *(record("another", seed, 8.0) for seed in range(5))]
    whole[-1] = altered(whole[-1], LOST)
    without = answer(made_up(), whole)
    claim = made_up(descriptions=described)
    other = claim.model_copy(update={"name": "other", "arms": {"another": ()}})
    known = claim_records.arm_hashes() | {"other": {"another": arm_hash(science("another", 0))}}
    monkeypatch.setattr(claim_records, "arm_hashes", lambda: known)
    monkeypatch.setattr(judge, "claims", lambda: (claim, other))
    own, another = answer(claim, iter(whole)).descriptions
    assert (own.finding.effect, own.finding.n) == (pytest.approx(0.4), 5)
    expected = pytest.approx(8 - (5 + 7 + 6 + 9) / 4)
    assert (another.finding.effect, another.finding.n) == (expected, 4)
    assert answer(claim, whole).verdict == without.verdict


def test_missing_measures_allow_no_verdict_unless_left_out(made_up: Any) -> None:
    strict = TEST | {"measure": "images_per_second", "leave_out_diverged": False}
    lenient = strict | {"leave_out_diverged": True}
    whole = [record("better", s, BASE[s], images_per_second=1.0) for s in range(5)]
    whole += [record("worse", s, BASE[s], images_per_second=2.0) for s in range(5)]
    lost = record("better", 5, 0.0, **LOST)
    whole += [lost, record("worse", 5, 0.0)]
    assert answer(made_up(seeds=6, tests=[strict]), whole).verdict == "too few runs"
    found = answer(made_up(seeds=6, tests=[lenient]), whole)
    assert (found.verdict, found.tests[0].left_out, found.tests[0].finding.n) == ("supported", 1, 5)
    never_run = [*whole[:4], *whole[5:]]
    assert answer(made_up(seeds=6, tests=[lenient]), never_run).verdict == "too few runs"
    silent = [*whole[:-2], record("better", 5, 0.0, images_per_second=None), whole[-1]]
    assert answer(made_up(seeds=6, tests=[lenient]), silent).verdict == "too few runs"


def with_slopes(means: dict[str, float]) -> Any:
    spread = {"std": 0, "min": -1, "max": 1, "channels": 1}
    slopes = {layer: {"mean": mean, **spread} for layer, mean in means.items()}
    report = [LAYER | {"layer": layer} for layer in means]
    return training(init_report=report, slopes=slopes)


def test_measures_of_a_record() -> None:
    whole = record("better", 0, 5.0)
    lost = altered(whole, LOST | {"history": whole.history[:1]})
    none = record("better", 0, 5.0, [None, None, None])
    guess, error = math.log(10), {"key": "val/top1_error_pct"}
    for measure, run, settings, expected in (
        ("error", whole, {}, 5),
        ("error", lost, {}, 90),
        ("final", whole, {}, 0.4),
        ("final", lost, {}, guess),
        ("final", none, {}, guess),
        ("final", lost, error, 90),
        ("final", lost, {"key": "fisher/cross"}, None),  # of which guessing says nothing
        ("mean_over", whole, {"epochs": 2}, 1.5),
        ("mean_over", lost, {"epochs": 2}, (2 + guess) / 2),
        ("reached", whole, {"below": 0.5}, 1),
        ("reached", lost, {"below": 0.5}, 0),
        ("reached", none, {"below": 9}, 0),
        ("diverged", whole, {}, 0),
        ("diverged", lost, {}, 1),
    ):
        assert MEASURES[measure](run, **settings) == pytest.approx(expected), (measure, settings)


def test_measures_of_responses() -> None:
    row = {"response_mean/a": 3.0, "response_std/a": 4.0, "dead_units/a": 1}
    row |= {"response_mean/b": -0.5, "response_std/b": 1.0, "dead_units/b": 4}
    layers = [LAYER | {"layer": n, "shape": [5, 9]} for n in "ab"]
    out = LAYER | {"layer": "out", "shape": [10, 5], "activation_after": None}
    rows = [epoch(i + 1, **row) for i in range(3)]
    changes = {"history": rows, "init_report": [*layers, out]}
    heard = altered(record("better", 0, 5.0), changes)
    assert MEASURES["dead_share"](heard) == 0.5
    assert MEASURES["mean_response"](heard) == pytest.approx((0.75 + 0.5) / 2)
    assert MEASURES["signal_kept"](heard) == pytest.approx(math.sqrt(1.25) / 5)
    silent = altered(heard, {"history": [each | {"response_std/b": 0.0} for each in rows]})
    assert MEASURES["mean_response"](silent) is MEASURES["signal_kept"](silent) is None
    assert MEASURES["dead_share"](altered(heard, LOST | {"history": rows})) is None


def test_measures_of_slopes() -> None:
    slopes = with_slopes({"conv1": 0.5, "conv2": 0.3, "conv10": 0.1, "fc1": 0.7})
    assert MEASURES["slope_trend"](slopes) == -1
    assert MEASURES["slope_trend"](slopes, every=True) == pytest.approx(0.2)  # 0.5, 0.3, 0.1, 0.7
    assert MEASURES["mean_slope"](slopes) == pytest.approx(0.4)
    assert MEASURES["slope_of_first"](slopes) == pytest.approx(0.5 - 0.2)
    assert MEASURES["slope_before_pooling"](slopes) is None  # no stage of several layers
    # one layer of the paper's names
    assert MEASURES["paper_correlation"](slopes, shared=True) is None
    whole = record("better", 0, 5.0)
    assert MEASURES["mean_slope"](whole) is MEASURES["slope_trend"](whole) is None


def test_slopes_are_compared_with_table_1() -> None:
    wise, shared = table_1_slopes(shared=False), table_1_slopes(shared=True)
    papers = {layer: value for layer, value in wise.items() if layer.startswith("conv")}
    correlation, whole = MEASURES["paper_correlation"], with_slopes(papers)
    assert correlation(whole, shared=False) == pytest.approx(1)
    assert 0 < correlation(whole, shared=True) < 1
    against = with_slopes({layer: -value for layer, value in papers.items()})
    assert correlation(against, shared=False) == pytest.approx(-1)
    stages = (
        0.464 - (0.321 + 0.204 + 0.294) / 3,
        0.198 - (0.196 + 0.152 + 0.145 + 0.124 + 0.134) / 5,
    )
    assert MEASURES["slope_before_pooling"](whole) == pytest.approx(sum(stages) / 2)
    rest = sum(list(papers.values())[1:]) / 10
    assert MEASURES["slope_of_first"](whole) == pytest.approx(0.596 - rest)
    every = with_slopes(shared | {"fc2": 0.6})
    assert correlation(every, shared=True) == pytest.approx(1)
    assert correlation(every, shared=True, every=True) < 0.9


def test_ratios_are_means_of_logarithms(made_up: Any) -> None:
    test = {key: value for key, value in TEST.items() if key != "minus"} | {"over": "worse"}
    ratio = test | {"supported": {"below": 0.5}, "contradicted": {"above": 1}}
    assert made_up(tests=[ratio]).tests[0].effect([-1.0, 2.0]) is None
    found = answer(made_up(tests=[ratio]), runs([1.0, 2.0, 1.0, 2.0, 1.0], [4.0, 8, 4, 8, 4]))
    assert found.verdict == "supported"
    finding = found.tests[0].finding
    assert (finding.effect, finding.high) == pytest.approx((0.25, 0.25))
    within = test | {"supported": {"within": [0.2, 0.3]}, "contradicted": {"outside": [0.2, 0.3]}}
    assert answer(made_up(tests=[within]), runs([1.0] * 5, [4.0] * 5)).verdict == "supported"


UNUSABLE = [
    ({"arms": {"better": []}}, "an arm worse"),
    ({"seeds": 4}, "give 5"),
    ({"first_seed": -1}, "first_seed=-1"),
    ({"tests": []}, "tests="),
    ({"statemnt": "x"}, "statemnt"),
    ({"neighbours": {"better": ["worse_low"]}}, "neighbours names an arm worse_low"),
    ({"neighbours": {"worst": ["worse"]}}, "neighbours names an arm worst"),
    (
        {
            "arms": {"better": ["optim.lr=1"], "worse": ["init=xavier", "optim.lr=2"]},
            "neighbours": {"better": ["worse"]},
        },
        "worse differs from better in more than optim.lr",
    ),
    ({"descriptions": [{"says": "x", "measure": "luck", "of": "better"}]}, "measure=luck"),
]
UNUSABLE_TESTS = [
    ({"supported": {"within": [1, -1]}}, "2 ascending"),
    ({"supported": {"outside": [-1, 1]}}, "above, below, within"),
    ({"supported": {"within": [1, float("inf")]}}, "supported"),
    ({"supported": {"below": -0.2}, "contradicted": {"above": -5}}, "share nothing"),
    ({"statistic": "mode"}, "statistic=mode.*'share'"),
    ({"over": "better"}, "minus or over"),
    ({"minus": None, "over": "worse"}, "a ratio is above 0"),
    ({"with": {"protocl": "full"}}, "protocl"),
    ({"statistic": "share"}, "give one of reached, diverged"),
    ({"measure": "diverged", "statistic": "share"}, "of one arm"),
]
UNUSABLE += [({"tests": [TEST | change]}, named) for change, named in UNUSABLE_TESTS]


@pytest.mark.parametrize(("change", "named"), UNUSABLE)
def test_unusable_claim_is_named(made_up: Any, change: dict[str, Any], named: str) -> None:
    with refused(rf"claim/made_up.*{named}"):
        made_up(**change)


def test_new_claim_must_be_noted(made_up: Any, monkeypatch) -> None:
    claim = made_up()
    monkeypatch.setattr(claim_records, "arm_hashes", dict)
    with refused(r"claim/made_up has arms that.*call .*report.py claims"):
        answer(claim, [])


def test_records_of_other_settings_answer_nothing(made_up: Any) -> None:
    made_up()
    good = record("better", 1, 5.0)
    assert claim_exclusion_reason(good) is None
    other_split = altered(good, {"science.data.split_seed": 0})
    for bad, why in (
        (altered(good, {"science": science("neither", 1)}), "no claim's"),
        (other_split, "another seed"),
        (altered(good, {"provenance.git_dirty": True}), "not committed"),
        (altered(good, {"provenance.git_dirty": None}), "not committed"),  # of no checkout
        (altered(good, {"choices.debug": "smoke"}), "of no claim"),
    ):
        assert why in str(claim_exclusion_reason(bad))


def test_weights_of_any_seed_make_one_arm() -> None:
    scratch = science("better", 0)

    def started(content: str, seed: int) -> dict[str, Any]:
        init = scratch["init"] | {"from_weights_content": content}
        return science("better", seed) | {"init": init}

    first = arm_hash(started("abc", 0))
    assert first == arm_hash(started("def", 1)) != arm_hash(scratch)
    assert started("abc", 0)["init"]["from_weights_content"] == "abc"  # which stays as it is
    awaiting = compose_config("init.from_weights=runs/abc")
    awaited = arm_hash(identity.science(awaiting))
    known = awaiting.replaced({"init.from_weights_content": "abc"})
    assert (
        awaited == arm_hash(identity.science(known)) != arm_hash(identity.science(compose_config()))
    )


def test_an_arm_starts_from_an_arm_of_its_claim(made_up: Any) -> None:
    arms = {"better": ["init.from_weights=worse"], "worse": []}
    assert made_up(arms=arms).arms["better"] == ("init.from_weights=worse",)
    with refused("names an arm third, which it does not have"):
        made_up(arms=arms | {"better": ["init.from_weights=third"]})


def test_claims_are_ordered_by_verdict(made_up: Any) -> None:
    claim, whole = made_up(), runs([b - 1 for b in BASE], BASE)
    mixed = [b + c for b, c in zip(BASE, (-1, 1, 0.5, -0.5, 0.1), strict=True)]
    worse = runs([b + 1 for b in BASE], BASE)
    made = (whole, [], runs(BASE, BASE), runs(mixed, BASE), worse)
    answers = [answer(claim, records) for records in made]
    order = ["contradicted", "inconclusive", "no effect that matters", "supported", "not run"]
    assert [each.verdict for each in in_order(answers)] == order
    assert "at most 0.1 of them would" in claims_page(answers)  # 4 at 2.5 %


def test_the_claims_of_conf_are_complete() -> None:
    runnable = [claim for claim in claims() if claim.tests]
    assert len(runnable) >= 30
    for claim in runnable:
        assert set(arm_hashes()[claim.name]) == {*claim.arms, *claim.searched()}, (
            "run scripts/report.py claims"
        )
        assert claim.statement[-1] != "."
        used = {arm for test in claim.tests for arm in test.arms()}
        used |= {arm for described in claim.descriptions for arm in described.arms()}
        assert set(claim.arms) <= used, claim.name
