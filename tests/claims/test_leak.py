"""The picture of the error over the slope: each slope's mean and interval, PReLU at what it
learned, and nothing for what has not run."""

import pytest

from made_up import altered, result
from made_up_claims import LOST, record
from rectifiers.claims.leak import Line, description, line_of, page, picture
from rectifiers.runs.record import TrainingRecord


def runs(*errors: float, slope: float | None = None) -> list[TrainingRecord]:
    learned = {"std": 0.0, "min": slope, "max": slope, "channels": 1}
    slopes = {} if slope is None else {"conv1": learned | {"mean": slope}}
    made = []
    for seed, error in enumerate(errors):
        tests = {"ten_view": result(10_000 - round(100 * error), 10_000)}
        made.append(record("better", seed, error, protocols=tests, slopes=slopes))
    return made


def test_prelu_is_placed_by_its_learned_slope() -> None:
    line = line_of({"identity": runs(24.0, 26.0), "relu": runs(25.0)}, "test")
    assert list(line.fixed) == [0.0, 1.0]
    assert line.fixed[1.0].mean == pytest.approx(25)
    assert line.learned is None
    learned = line_of({"prelu": runs(18.0, slope=0.2) + runs(20.0, slope=0.4)}, "test").learned
    assert learned is not None
    assert (learned[0], learned[1].mean) == (pytest.approx(0.3), pytest.approx(19))


def test_diverged_runs_and_empty_arms_are_left_out() -> None:
    lost = altered(runs(90.0)[0], LOST)
    line = line_of({"relu": [lost], "slope_04": [lost, *runs(18.0)], "identity": []}, "test")
    assert {slope: mean.n for slope, mean in line.fixed.items()} == {0.4: 1}


def test_intervals_need_three_seeds() -> None:
    line = line_of({"relu": runs(24.0, 26.0), "identity": runs(23.0, 24.0, 25.0)}, "test")
    words = description([line])
    assert "0: 25.0 (n = 2), 1: 24.0 (21.5 to 26.5, n = 3), PReLU: not run" in words
    axes = picture([line], "light").axes[0]
    assert [len(drawn.get_xdata()) for drawn in axes.lines] == [2, 2]
    assert list(axes.lines[1].get_xdata()) == [1.0, 1.0]  # the interval of no activation


def test_a_page_without_runs_has_no_column() -> None:
    assert "not run" not in page([]).partition("| slope |")[2].partition("\n\n")[0]
    assert isinstance(line_of({}, "test"), Line)
