"""A card says what was measured, and why a part was not."""

from pathlib import Path

import pytest

from benchmark_made_up import PARTS, card, results

pytestmark = pytest.mark.usefixtures("small_benchmark")

RELU = results("relu", [5.0, 6.0, 5.5, 5.2, 6.1], [1.0, 3.0, 1.0, 1.0, 1.0])
MISH = results("mish", [1.0, 2.0, 3.0, 4.0, 5.0])


def test_card_has_every_chapter_and_its_numbers(tmp_path: Path) -> None:
    paths = card(MISH, RELU).write(tmp_path)
    assert [path.name for path in paths] == ["mish.md", "mish.svg"]
    text, drawn = (path.read_text() for path in paths)
    for part in (
        "mish, quick tasks: place 1 of 2. 0.54 (0.",
        "Trains to depth 50.",
        "0 of 10 judged runs diverged.",
        "| slope of the variance map | 1.080 |",
        "| 1 | 0.100 ± 0.300 | 0.500 | -0.100 | - | 0.250 |",
        "| easy | 3.00 | 0.03 | -2.56 (",
        "| deep | 5 of 5 seeds | 0.03 | +20.00 (",
        "| 1.80 (quartiles 1.60 to 1.90, 15 rounds) |",
    ):
        assert part in text
    assert "responses: log10" in drawn


def test_parts_not_measured_give_the_reason(tmp_path: Path) -> None:
    reason = "activation Step() has a derivative of 0 almost everywhere"
    entry = results("mish", [], runs=(), refused={"easy": reason, "deep": reason})
    made = card(entry, RELU, **dict.fromkeys(PARTS, reason))
    text = made.markdown()
    assert text.count(f"Not measured: {reason}") == 3
    assert f"easy: {reason}." in text
    assert len(made.write(tmp_path)) == 2
