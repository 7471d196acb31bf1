from pathlib import Path

from matplotlib.figure import Figure

from rectifiers.results.figures import write_svg


def test_svg_of_one_figure_has_the_same_bytes(tmp_path: Path) -> None:
    figure = Figure()
    figure.subplots().plot([1, 2], label="a")
    for name in ("a", "b"):
        write_svg(figure, tmp_path / f"{name}.svg", "run", "two numbers")
    text = (tmp_path / "a.svg").read_text()
    assert "two numbers" in text
    assert (tmp_path / "b.svg").read_text() == text
