"""A figure of each claim: every seed's numbers, and the effect with its interval beside the
criterion."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from rectifiers.claims.judge import ClaimResult, TestResult
from rectifiers.results.figures import write_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GREEN, RED = "#2a9d5c", "#c0392b"  # what supports, and what contradicts


def figure(result: ClaimResult) -> "Figure":
    """Draw a claim: a row of two plots for each of its tests. Grey lines join the runs of one
    seed."""
    from matplotlib.figure import Figure

    tests = [test for test in result.tests if test.measured]
    drawn = Figure(figsize=(7.2, 0.8 + 2.2 * len(tests)), layout="constrained")
    drawn.suptitle(f"{result.claim.name}: {result.verdict}")
    rows = drawn.subplots(len(tests), 2, squeeze=False)
    for test, (seeds, effect) in zip(tests, rows, strict=True):
        _draw_seeds(seeds, test)
        _draw_effect(effect, test)
    return drawn


def _draw_seeds(axes: Any, result: TestResult) -> None:
    names = result.test.arms()
    for pair in result.measured:
        axes.plot(range(len(pair)), pair, "-", color="0.75", linewidth=1, zorder=1)
    for i, values in enumerate(zip(*result.measured, strict=True)):
        axes.plot([i] * len(values), values, "o", alpha=0.6, markersize=5, zorder=2)
    axes.set(xlim=(-0.5, len(names) - 0.5), xticks=range(len(names)), xticklabels=names)
    axes.set_ylabel(result.test.measure, fontsize="small")
    axes.set_title(f"{result.test.says}, each seed", fontsize="small")


def _draw_effect(axes: Any, result: TestResult) -> None:
    test, finding = result.test, result.finding
    low = finding.low if math.isfinite(finding.low) else finding.effect
    high = finding.high if math.isfinite(finding.high) else finding.effect
    errors = [[finding.effect - low], [high - finding.effect]]
    axes.errorbar([finding.effect], [0], xerr=errors, fmt="o", capsize=4, color="0.1")
    bounds = test.criterion.bounds()
    left, right = min(low, *bounds), max(high, *bounds)
    margin = 0.15 * (right - left or 1.0)
    left, right = left - margin, right + margin
    for region, color in ((test.supported, GREEN), (test.contradicted, RED)):
        for start, end in region.spans(left, right):
            axes.axvspan(start, end, color=color, alpha=0.15, linewidth=0)
    axes.set(xlim=(left, right), ylim=(-1, 1), yticks=[])
    axes.set_xlabel(f"{test.statistic}, {test.compared()}", fontsize="small")
    title = f"{finding.verdict}, n = {finding.n}; green supports, red contradicts"
    axes.set_title(title, fontsize="small")


def description(result: ClaimResult) -> str:
    """Return the numbers of the figure as text: of every test its effect with the interval, and
    each seed's measure."""
    parts = [str(result.verdict)]
    for test in result.tests:
        finding = test.finding
        seeds = ", ".join("/".join(f"{value:.6g}" for value in pair) for pair in test.measured)
        effect = f"{finding.effect:.6g} ({finding.low:.6g} to {finding.high:.6g}), n = {finding.n}"
        parts.append(f"{test.test.says}: {effect}; each seed: {seeds}")
    return "; ".join(parts)


def is_stale(result: ClaimResult, path: Path) -> bool:
    """Return whether the file at `path` is missing, or shows other numbers than the claim's."""
    return not path.is_file() or f">{escape(description(result))}<" not in path.read_text()


def write(result: ClaimResult, path: Path) -> None:
    """Write the figure as an SVG; the same records give the same bytes."""
    write_svg(figure(result), path, result.claim.name, description(result))
