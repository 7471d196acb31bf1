"""The question to a language model: every function trains, runs are kept, the page judges them."""

import importlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import ROOT, load_script
from rectifiers import PReLU
from refusals import refused

LOSSES = {"none": 2.0, "0": 1.5, "0.25": 1.4, "0.5": 1.3, "0.75": 1.35, "1": 1.45, "learned": 1.2}
BEST = 8e-3


@pytest.fixture
def page(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT / "studies")
    module = importlib.import_module("language_model_page")
    monkeypatch.setattr(module, "RUNS", tmp_path / "language_model.jsonl")
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    return module


@pytest.fixture
def study(page, monkeypatch, tmp_path):
    module = load_script("studies/language_model")
    monkeypatch.setattr(module, "RUNS", page.RUNS)
    monkeypatch.setattr(module, "TEXT", tmp_path / "text.txt")
    module.TEXT.write_bytes(bytes(range(256)) * 50)
    return module


def a_run(arm: str, steps: int, rate: float, seed: int, loss: float | None, **more: Any) -> Any:
    run = {"arm": arm, "steps": steps, "rate": rate, "seed": seed, "text": "text", "seconds": 1.0}
    slopes = [0.6, 0.5, 0.4, 0.3, 0.2, 0.1] if arm == "learned" else []
    run |= {"slopes": slopes, "folded": slopes, "steep": [0.0] * len(slopes)}
    return run | {"val": loss, "test": loss if seed < 1000 else None} | more


def runs(page, loss: Callable[[str, int], float] = lambda arm, steps: LOSSES[arm]) -> list[Any]:
    """A whole study: a rate is the best of three by 0.001; seeds differ a little."""
    result = []
    for steps in (page.SHORT, page.MIDDLE):
        for arm in page.ARMS:
            for rate in (BEST, *page.neighbours(BEST, steps)):
                shown = loss(arm, steps) + (0 if rate == BEST else 0.001)
                result += [a_run(arm, steps, rate, seed, shown) for seed in page.SEARCHED]
    for steps, seeds in page.SEEDS.items():
        for arm in page.arms_of(result, steps):
            for seed in seeds:
                noise = 1e-4 * math.sin(seed + len(arm))
                result.append(a_run(arm, steps, BEST, seed, loss(arm, steps) + noise))
    return result


def test_functions_are_squared_rectifiers(study) -> None:
    y = torch.tensor([[-2.0, 3.0]])
    values = {arm: study.activation(arm, 2)(y).tolist() for arm in study.protocol.ARMS}
    assert values["none"] == [[-2.0, 3.0]]
    assert values["0"] == [[0.0, 9.0]]
    assert values["0.5"] == [[1.0, 9.0]]
    assert values["learned"] == values["0.25"]


def test_model_does_not_read_later_bytes(study) -> None:
    torch.manual_seed(0)
    model = study.LanguageModel("learned")
    assert sum(isinstance(m, PReLU) and m.num_parameters > 1 for m in model.modules()) == 6
    tokens = torch.randint(256, (2, study.CONTEXT))
    changed = tokens.clone()
    changed[:, 40] += 1
    is_equal = (model(tokens) - model(changed % 256)).abs().amax((0, 2)) < 1e-6
    assert is_equal[:40].all()
    assert not is_equal[40:].any()


def test_initialize_knows_the_ends_of_branches(study) -> None:
    report = study.initialize(study.LanguageModel("0.5"), torch.randint(256, (4, study.CONTEXT)))
    ends = [row.share for row in report.layers if "out_proj" in row.layer or "mlp.2" in row.layer]
    assert ends == pytest.approx([1 / 12] * 12)
    assert not report.warnings


@pytest.mark.parametrize("arm", ["none", "learned"])
def test_training_lowers_the_loss(study, monkeypatch, arm: str) -> None:
    monkeypatch.setattr(study.protocol, "WARMUP", 2)
    text = study.Text()
    first, last = (study.train(text, arm, steps, 4e-3, 1000) for steps in (1, 20))
    assert last["val"] < first["val"] - 0.5
    assert last["test"] is None, "searches do not look at the test text"
    assert len(last["slopes"]) == len(last["folded"]) == (6 if arm == "learned" else 0)
    assert study.train(text, arm, 1, 4e-3, 0)["test"] is not None


def test_slopes_above_one_are_folded(study, monkeypatch) -> None:
    initial = 4.0
    monkeypatch.setattr(study.protocol, "INITIAL", initial)
    run = study.train(study.Text(), "learned", 1, 1e-9, 1000)
    assert run["slopes"] == pytest.approx([initial] * 6)
    assert run["folded"] == pytest.approx([1 / initial] * 6)
    assert run["steep"] == [1.0] * 6


def test_grid_of_rates_meets_itself(page) -> None:
    for steps in (page.SHORT, page.MIDDLE):
        for place in range(-8, 9, page.STRIDES[steps]):
            lower, higher = page.neighbours(page.rate_at(place), steps)
            assert page.neighbours(lower, steps)[1] == page.rate_at(place)
            assert page.neighbours(higher, steps)[0] == page.rate_at(place)


def test_diverged_run_has_no_loss(study) -> None:
    run = study.train(study.Text(), "1", 30, 1e30, 0)
    assert run["val"] is run["test"] is None
    assert json.loads(json.dumps(run, allow_nan=False)) == run


def test_text_shorter_than_a_batch_is_refused(study) -> None:
    study.TEXT.write_bytes(b"a" * 10_399)
    with refused(r"give a text of at least 10,400"):
        study.Text()
    study.TEXT.write_bytes(b"a" * 10_400)
    study.train(study.Text(), "none", 1, 1e-3, 0)
    study.TEXT.unlink()
    with refused(r"text\.txt is not there"):
        study.Text()


def kept(study, losses: Callable[[str, int, float], float | None], monkeypatch) -> list[Any]:
    """Let every run have these losses, and return what is trained from now on."""
    trained: list[Any] = []

    def train(text, arm: str, steps: int, rate: float, seed: int) -> Any:
        trained.append((arm, steps, rate, seed))
        return a_run(arm, steps, rate, seed, losses(arm, steps, rate), text=text.digest)

    monkeypatch.setattr(study, "train", train)
    return trained


def parabola(arm: str, steps: int, rate: float) -> float:
    best = 3.2e-2 if arm == "none" else 1e-3
    return LOSSES[arm] + math.log(rate / best) ** 2 / 100


def test_study_is_judged_at_bracketed_rates(study, monkeypatch) -> None:
    protocol = study.protocol
    trained = kept(study, parabola, monkeypatch)
    study.measure(study.Text(), protocol.ARMS, list(protocol.SEEDS), protocol.JUDGED)
    assert protocol.is_complete(protocol.read_runs())
    assert protocol.best_rate(protocol.read_runs(), "none", protocol.SHORT) == 3.2e-2
    assert protocol.best_rate(protocol.read_runs(), "0.5", protocol.LONG) == 1e-3
    assert protocol.neighbours(1e-3, protocol.LONG) == (7.071e-4, 1.414e-3)
    assert len(trained) == len(set(trained))
    long = [(arm, seed) for arm, steps, _, seed in trained if steps == protocol.LONG]
    assert {arm for arm, _ in long} == {"0", "0.5", "learned"}
    assert {seed for _, seed in long} == {*protocol.SEEDS[protocol.LONG]}
    assert "Learning wins" in protocol.page(protocol.read_runs())


def test_stopped_study_goes_on_where_it_was(study, monkeypatch) -> None:
    protocol = study.protocol
    trained = kept(study, parabola, monkeypatch)
    study.measure(study.Text(), ["0", "0.5"], [protocol.SHORT], [0, 1])
    done = list(trained)
    study.measure(study.Text(), ["0", "0.5"], [protocol.SHORT], [0, 1, 2])
    assert trained[len(done) :] == [(arm, protocol.SHORT, 1e-3, 2) for arm in ("0", "0.5")]


def test_files_of_two_folders_are_joined(study, page) -> None:
    whole = runs(page)
    both = [*whole, *(run | {"seconds": 2.0} for run in whole[:20])]
    page.RUNS.write_text("".join(sorted(f"{json.dumps(run)}\n" for run in both)))
    assert len(page.read_runs()) == len(whole)
    assert {run["seconds"] for run in page.read_runs()} == {1.0}  # the first of two


@pytest.mark.parametrize("line", ["{", "[1]", '{"arm": "0"}'])
def test_damaged_file_of_runs_is_refused(page, line: str) -> None:
    page.RUNS.write_text(line)
    with refused(r"language_model\.jsonl cannot be read"):
        page.read_runs()


def test_runs_of_another_text_are_refused(study, monkeypatch) -> None:
    kept(study, parabola, monkeypatch)
    study.measure(study.Text(), ["0"], [study.protocol.SHORT], [0])
    study.TEXT.write_bytes(b"another" * 2000)
    with refused("runs of another text"):
        study.measure(study.Text(), ["0"], [study.protocol.SHORT], [0])


def test_page_of_several_texts_is_refused(page) -> None:
    whole = runs(page)
    whole[-1]["text"] = "another"
    with refused("of several texts"):
        page.page(whole)


def test_long_runs_wait_for_the_best_slope(study, monkeypatch) -> None:
    kept(study, parabola, monkeypatch)
    with refused("the best slope is known after"):
        study.measure(study.Text(), ["learned"], [study.protocol.LONG], [0])


ANSWERS: list[tuple[dict[Any, float], str]] = [  # losses by arm, or by arm and length
    ({}, "**Learning wins"),
    ({"learned": 1.3}, "**A fixed slope does as well"),
    ({"learned": 1.2995, "0.5": 1.3}, "**A fixed slope does as well"),  # less than a step's 0.001
    ({"learned": 1.295, "0.5": 1.3}, "**A fixed slope does as well"),  # clear, and does not matter
    ({"none": 1.25}, "**No answer"),
    ({("none", "SHORT"): 1.1}, "is not better than no activation"),
    ({("none", "MIDDLE"): 1.1}, "is not better than no activation"),
    ({("learned", "LONG"): 1.3, ("0.5", "LONG"): 1.2}, "4,000 and 16,000 steps order"),
    ({("0.5", "LONG"): 1.5, ("0", "LONG"): 1.3}, "4,000 and 16,000 steps order"),
    # which is noise
    ({"learned": 1.29995, ("learned", "LONG"): 1.30005}, "**A fixed slope does as well"),
]


@pytest.mark.parametrize(("losses", "answer"), ANSWERS, ids=str)
def test_answer_follows_from_the_criteria(page, losses: dict[Any, float], answer: str) -> None:
    lengths = {getattr(page, name): name for name in ("SHORT", "MIDDLE", "LONG")}

    def loss(arm: str, steps: int) -> float:
        return losses.get((arm, lengths[steps]), losses.get(arm, LOSSES[arm]))

    assert answer in page.answer(runs(page, loss))


def test_difference_that_a_rate_makes_is_not_clear(page) -> None:
    whole = runs(page, lambda arm, steps: (LOSSES | {"learned": 1.28})[arm])
    assert page.verdict(whole, "learned", "0.5", page.MIDDLE) == "better"
    lower, higher = page.neighbours(BEST, page.MIDDLE)
    for rate, verdict in ((lower, "better"), (higher, "unclear")):  # the less bad neighbour counts
        for run in whole:
            if (run["arm"], run["rate"]) == ("0.5", rate):
                run["val"] += 0.03
        assert page.verdict(whole, "learned", "0.5", page.MIDDLE) == verdict
    assert page.answer(whole).startswith("**Not clear")


def test_diverged_seeds_give_no_interval(page) -> None:
    whole = runs(page)
    for run in whole:
        if (run["arm"], run["seed"]) == ("0.5", 3):
            run["val"] = run["test"] = None
    assert page.gap(whole, "learned", "0.5", page.MIDDLE) is None
    assert page.answer(whole).startswith("**No answer")
    assert page.page(whole)


@pytest.mark.parametrize("arm", ["none", "0"])
def test_divergence_is_not_called_a_loss_to_no_activation(page, arm: str) -> None:
    made = runs(page)
    lost = next(
        run for run in made if (run["arm"], run["steps"]) == (arm, page.SHORT) and run["seed"] == 3
    )
    lost["test"] = None
    text = page.answer(made)
    assert "diverged" in text
    assert "is not better than no activation" not in text


def test_slopes_that_fall_are_told_from_those_that_rise(page) -> None:
    whole = runs(page)
    assert "slopes fall with depth" in page.answer(whole)
    assert page.trend(whole, page.LONG).mean == pytest.approx(-0.1)
    for is_long, words in ((True, "have no clear trend"), (False, "rise with depth")):
        for run in whole:
            if (run["steps"] == page.LONG) is is_long:
                run["slopes"] = run["slopes"][::-1]
        assert f"slopes {words}" in page.answer(whole)


def test_unfinished_study_has_a_page_without_answer(page) -> None:
    whole = runs(page)
    for count in (1, len(whole) - 1):
        assert "Not all runs are done" in page.page(whole[:count])


@pytest.mark.parametrize("check", [False, True])
def test_page_without_runs_is_refused(page, check: bool) -> None:
    with refused(r"run python studies/language_model\.py"):
        page.write_page(check)
    assert not list(Path(page.RESULTS).iterdir())


def test_stale_page_is_refused(page) -> None:
    whole = runs(page)
    page.RUNS.write_text("".join(f"{json.dumps(run)}\n" for run in whole))
    page.write_page(check=False)
    page.write_page(check=True)
    page.RUNS.write_text("".join(f"{json.dumps(run)}\n" for run in whole[:-1]))
    with refused("language_model_page"):
        page.write_page(check=True)
