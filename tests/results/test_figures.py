from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from made_up import altered, result, training
from rectifiers.results.figures import error_against_cost, write_svg
from rectifiers.runs.record import TrainingRecord


def record(*protocols: str) -> TrainingRecord:
    return training(protocols=dict.fromkeys(protocols, result(90, 100, multiply_adds=10**6)))


def test_every_protocol_stands_in_the_figure_and_the_bytes_are_the_same_again(
    tmp_path: Path,
) -> None:
    for name in ("a", "b"):
        drawn = error_against_cost(record("center", "ten_view"))
        write_svg(drawn, tmp_path / f"{name}.svg", "run")
    text = (tmp_path / "a.svg").read_text()
    ElementTree.fromstring(text)
    assert all(
        word in text for word in ("center", "ten_view", "multiply-adds an image", "top-1 error, %")
    )
    assert (tmp_path / "b.svg").read_text() == text


def test_bars_are_the_interval_and_costs_are_on_a_logarithmic_axis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.axes import Axes

    drawn = []
    original = Axes.errorbar

    def look(self: Axes, x: float, y: float, yerr: list[list[float]], **more: Any) -> Any:
        drawn.append((x, y, yerr[0][0], yerr[1][0]))
        return original(self, x, y, yerr, **more)

    monkeypatch.setattr(Axes, "errorbar", look)
    other = result(100, 100, multiply_adds=10**6)
    made = altered(record("center", "ten_view"), {"protocols.ten_view": other})
    write_svg(error_against_cost(made), tmp_path / "a.svg", "run")
    (x, y, down, up), (_, _, none, some) = drawn
    assert (x, y) == (10**6, 10.0)
    assert 0 < down < up  # Wilson's interval leans towards 50 %
    assert (none, some > 0) == (0.0, True)
    assert "$\\mathdefault{10^{6}}$" in (tmp_path / "a.svg").read_text()
