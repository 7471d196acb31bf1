"""A figure a claim: every seed's numbers, and the effect with its interval beside the criterion."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from rectifiers.results.claims import Answer, Tested
from rectifiers.results.figures import write_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUPPORTED, CONTRADICTED = "#2a9d5c", "#c0392b"


def figure(answer: Answer) -> "Figure":
    """Draw a claim: a row of two plots for each of its tests. Grey lines join the runs of one
    seed."""
    from matplotlib.figure import Figure  # here and not above: verdicts do without

    tests = [tested for tested in answer.tested if tested.measured]
    made = Figure(figsize=(7.2, 0.8 + 2.2 * len(tests)), layout="constrained")
    made.suptitle(f"{answer.claim.name}: {answer.verdict}")
    for tested, (seeds, effect) in zip(
        tests, made.subplots(len(tests), 2, squeeze=False), strict=True
    ):
        _draw_seeds(seeds, tested)
        _draw_effect(effect, tested)
    return made


def _draw_seeds(axes: Any, tested: Tested) -> None:
    test = tested.test
    names = test.arms()
    for pair in tested.measured:
        axes.plot(range(len(pair)), pair, "-", color="0.75", linewidth=1, zorder=1)
    for place in range(len(names)):
        values = [each[place] for each in tested.measured]
        axes.plot([place] * len(values), values, "o", alpha=0.6, markersize=5, zorder=2)
    axes.set(xlim=(-0.5, len(names) - 0.5), xticks=range(len(names)), xticklabels=names)
    axes.set_ylabel(test.measure, fontsize="small")
    axes.set_title(f"{test.says}, each seed", fontsize="small")


def _draw_effect(axes: Any, tested: Tested) -> None:
    test, found = tested.test, tested.finding
    low = found.low if math.isfinite(found.low) else found.effect
    high = found.high if math.isfinite(found.high) else found.effect
    axes.errorbar(
        [found.effect],
        [0],
        xerr=[[found.effect - low], [high - found.effect]],
        fmt="o",
        capsize=4,
        color="0.1",
    )
    borders = test.criterion.bounds()
    left, right = min(low, *borders), max(high, *borders)
    margin = 0.15 * (right - left or 1.0)
    left, right = left - margin, right + margin
    for region, color in (
        (test.criterion.supported, SUPPORTED),
        (test.criterion.contradicted, CONTRADICTED),
    ):
        for start, end in region.spans(left, right):
            axes.axvspan(start, end, color=color, alpha=0.15, linewidth=0)
    axes.set(xlim=(left, right), ylim=(-1, 1), yticks=[])
    axes.set_xlabel(f"{test.statistic}, {test.compared()}", fontsize="small")
    axes.set_title(
        f"{found.verdict}, n = {found.n}; green supports, red contradicts", fontsize="small"
    )


def description(answer: Answer) -> str:
    """Return the numbers of the figure as text: of every test its effect with the interval, and
    each seed's measure."""
    parts = [str(answer.verdict)]
    for tested in answer.tested:
        found = tested.finding
        seeds = ", ".join("/".join(f"{value:.6g}" for value in each) for each in tested.measured)
        effect = f"{found.effect:.6g} ({found.low:.6g} to {found.high:.6g}), n = {found.n}"
        parts.append(f"{tested.test.says}: {effect}; each seed: {seeds}")
    return "; ".join(parts)


def is_stale(answer: Answer, path: Path) -> bool:
    """Return whether the file at `path` is missing, or shows other numbers than the claim's."""
    return not path.is_file() or f">{escape(description(answer))}<" not in path.read_text()


def write(answer: Answer, path: Path) -> None:
    """Write the figure as an SVG; the same records give the same bytes."""
    write_svg(figure(answer), path, answer.claim.name, description(answer))
