"""A picture of a run's most confident failures: each photograph with its class and the top-5
guesses, as the paper shows its own."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rectifiers.analysis.output import new_figure
from rectifiers.runs.config import RunConfig
from rectifiers.runtime.console import printable
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.schema import JsonObject
from rectifiers.training import build
from rectifiers.training.targets import import_functions

COLUMNS, LETTERS = 3, 26  # of a row, of a class's name


def photographs(config: RunConfig, data: str, places: Sequence[int]) -> list[np.ndarray]:
    """Return the images at these places of the split that `config` tests on, uint8 [H, W, C].

    data: the hash of the data that have these places.

    Raises:
        InputError: where the data of `config` are not there, or have another hash.
    """
    source = build.open_source(config, import_functions(config))
    source = build.inspect_source(source, config)
    tested = source.tested
    if source.digest != data or max(places, default=0) >= len(tested.labels):
        raise InputError(
            f"the scores are of data with the hash {printable(data)}, and the data here have "
            f"{source.digest} and {len(tested.labels)} test images; point data.root to those that "
            "were tested"
        )
    return [tested.image(place).permute(1, 2, 0).numpy() for place in places]


def draw(images: Sequence[np.ndarray], failures: Sequence[JsonObject], title: str) -> Figure:
    """Draw the images with what `most_confident_failures` says of them."""
    down = math.ceil(len(images) / COLUMNS)
    figure = new_figure(7.2, 3.3 * down + 0.4, printable(title))
    places = figure.subplots(down, COLUMNS, squeeze=False).flat
    for axes in places[len(images) :]:
        axes.set_axis_off()
    for axes, image, failure in zip(places, images, failures, strict=False):
        axes.imshow(image, cmap="gray", interpolation="none")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        _write_guesses(axes, failure)
    return figure


def _write_guesses(axes: Axes, failure: JsonObject) -> None:
    """Write the class above the image, and the guesses below it with a mark at the right one."""
    lines = []
    for name, probability in failure["guesses"]:
        mark = " (right)" if name == failure["class"] else ""
        lines.append(f"{100 * probability:.1f} % {_short(name)}{mark}")
    title = axes.set_title(_short(failure["class"]), loc="left", fontsize=9, fontweight="bold")
    guesses = axes.set_xlabel("\n".join(lines), loc="left", fontsize=8)
    for text in (title, guesses):  # names are anybody's, and `$` would begin a formula
        text.set_parse_math(False)
        text.set_horizontalalignment("left")


def _short(name: str) -> str:
    name = printable(name)
    return name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…"
