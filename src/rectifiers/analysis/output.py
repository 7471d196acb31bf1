"""Where an analysis lies: a folder named by what was asked, with its numbers as JSON and its figures as SVG."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rectifiers.results.figures import write_svg
from rectifiers.runs.identity import run_id
from rectifiers.runtime.files import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def keep(root: Path, numbers: dict[str, Any], figures: Mapping[str, "Figure"]) -> list[Path]:
    """Write `numbers` and `figures` below `root` and return the paths; the same question overwrites its old answer.

    numbers: plain JSON types, with `analysis` and what was `asked`, which name the folder.
    """
    name = f"{numbers['analysis']}-{run_id(numbers['asked'])}"
    folder = root / name
    paths = [folder / "numbers.json", *(folder / f"{figure}.svg" for figure in figures)]
    write_text(paths[0], json.dumps(numbers, indent=1, allow_nan=False) + "\n")
    for path, figure in zip(paths[1:], figures.values(), strict=True):
        write_svg(figure, path, name)
    return paths
