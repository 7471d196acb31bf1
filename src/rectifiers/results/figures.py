"""SVG files whose bytes depend on the figure alone."""

from pathlib import Path
from typing import TYPE_CHECKING

from rectifiers.runtime.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_svg(figure: "Figure", path: Path, name: str, description: str | None = None) -> None:
    """Write a figure as an SVG, the same bytes for the same figure and name."""
    import matplotlib as mpl

    # the ids of an SVG are made when it is written
    with atomic_file(path) as file, mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(
            file, format="svg", metadata={"Date": None, "Creator": None, "Description": description}
        )
