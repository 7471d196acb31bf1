"""The figures of the claims: of each every seed's numbers, and the effect with its interval beside
the criterion; and the picture of the README."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from rectifiers.claims.archive import runs_of
from rectifiers.claims.claims import claims
from rectifiers.claims.judge import ClaimResult, TestResult
from rectifiers.runs.record import TrainingRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREEN, RED = "#2a9d5c", "#c0392b"  # where the claim is seen, and its opposite
PICTURED = "cifar_figure3"  # the claim of the README's picture
TITLE_WIDTH, LABEL_WIDTH = 46, 30  # in letters
LABELS = {"xavier": "Xavier: Var[w] = 1/n", "he": "He: Var[w] = 2/n"}
INKS = {  # of the text, the grid and the two arms, on pages of either kind
    "light": {"text": "#1f2328", "grid": "#d1d9e0", "he": "#0550ae", "xavier": "#bc4c00"},
    "dark": {"text": "#e6edf3", "grid": "#3d444d", "he": "#79c0ff", "xavier": "#ffa657"},
}
Curves = Mapping[str, Sequence[Sequence[float]]]  # by arm and seed, a number per epoch


def figure(result: ClaimResult) -> "Figure":
    """Draw a claim: a row of two plots for each of its tests. Grey lines join the runs of one
    seed."""
    from matplotlib.figure import Figure

    tests = [test for test in result.tests if test.measured]
    drawn = Figure(figsize=(7.2, 0.8 + 2.2 * len(tests)), layout="constrained")
    drawn.suptitle(f"{result.claim.name}: {result.shown()}")
    rows = drawn.subplots(len(tests), 2, squeeze=False)
    for test, (seeds, effect) in zip(tests, rows, strict=True):
        _draw_seeds(seeds, test)
        _draw_effect(effect, test)
    return drawn


def _draw_seeds(axes: "Axes", result: TestResult) -> None:
    test, names = result.comparison, result.comparison.arms()
    for pair in result.measured:
        axes.plot(range(len(pair)), pair, "-", color="0.75", linewidth=1, zorder=1)
    for i, values in enumerate(zip(*result.measured, strict=True)):
        axes.plot([i] * len(values), values, "o", alpha=0.6, markersize=5, zorder=2)
    axes.set(xlim=(-0.5, len(names) - 0.5), xticks=range(len(names)), xticklabels=names)
    axes.set_ylabel(textwrap.fill(test.in_words(), LABEL_WIDTH), fontsize="small")
    title = textwrap.fill(f"{test.says}, each seed", TITLE_WIDTH)
    axes.set_title(title, fontsize="small")


def _draw_effect(axes: "Axes", result: TestResult) -> None:
    test, finding = result.comparison, result.finding
    low = finding.low if math.isfinite(finding.low) else finding.effect
    high = finding.high if math.isfinite(finding.high) else finding.effect
    errors = [[finding.effect - low], [high - finding.effect]]
    axes.errorbar([finding.effect], [0], xerr=errors, fmt="o", capsize=4, color="0.1")
    bounds = test.bounds()
    left, right = min(low, *bounds), max(high, *bounds)
    margin = 0.15 * (right - left or 1.0)
    left, right = left - margin, right + margin

    for region, color in ((test.supported, GREEN), (test.contradicted, RED)):
        for start, end in region.spans(left, right):
            axes.axvspan(start, end, color=color, alpha=0.15, linewidth=0)

    axes.set(xlim=(left, right), ylim=(-1, 1), yticks=[])
    unit = f" ({test.unit()})" if test.unit() else ""
    axes.set_xlabel(f"{test.statistic}, {test.compared()}{unit}", fontsize="small")
    title = f"{finding.verdict.shown}, n = {finding.n}; green: seen, red: opposite"
    axes.set_title(textwrap.fill(title, TITLE_WIDTH), fontsize="small")


def description(result: ClaimResult) -> str:
    """Return the numbers of the figure as text: of every test its effect with the interval, and
    each seed's measure."""
    parts = [result.shown()]
    for tested in result.tests:
        test, finding = tested.comparison, tested.finding
        seeds = ", ".join("/".join(f"{value:.6g}" for value in pair) for pair in tested.measured)
        effect = f"{finding.effect:.6g} ({finding.low:.6g} to {finding.high:.6g}), n = {finding.n}"
        parts.append(f"{test.says}: {effect}; {test.in_words()}, each seed: {seeds}")
    return "; ".join(parts)


def pictured_curves(records: Sequence[TrainingRecord]) -> Curves:
    """Return the error in percent of 30 layers after every epoch, from He and from Xavier."""
    runs = runs_of(next(claim for claim in claims() if claim.name == PICTURED), records)
    key = "val/top1_error_pct"
    return {arm: [record.curve(key) for _, record in sorted(runs[arm].items())] for arm in LABELS}


def picture_description(curves: Curves) -> str:
    """Return the numbers of the picture as text: of each arm every seed's last error."""
    arms = []
    for arm, seeds in curves.items():
        arms.append(f"{LABELS[arm]}: {', '.join(f'{seed[-1]:.2f}' for seed in seeds)}")
    return (
        f"Error in percent of a 30-layer rectifier network after {len(curves['he'][0])} epochs, of "
        f"each seed. {'; '.join(arms)}"
    )


def picture(curves: Curves, page: str) -> "Figure":
    """Draw the mean over seeds, every seed, and the range of the seeds, for a light or dark
    page."""
    from matplotlib.figure import Figure

    inks = INKS[page]
    figure = Figure(figsize=(5.2, 3.0), layout="constrained")  # narrow: legible on a phone
    figure.patch.set_alpha(0)
    axes = figure.subplots()
    axes.patch.set_alpha(0)

    epochs = range(1, len(curves["he"][0]) + 1)
    for arm, seeds in curves.items():
        ink = inks[arm]
        by_epoch = list(zip(*seeds, strict=True))
        low, high = [*map(min, by_epoch)], [*map(max, by_epoch)]
        axes.fill_between(epochs, low, high, color=ink, alpha=0.25, lw=0)
        for seed in seeds:
            axes.plot(epochs, seed, color=ink, alpha=0.45, lw=0.7)
        means = [*map(fmean, by_epoch)]
        axes.plot(epochs, means, color=ink, lw=2.4)

        offset, align = ((0, 4), "bottom") if arm == "xavier" else ((0, -26), "top")
        label = axes.annotate(
            LABELS[arm], (epochs[-1], means[-1]), offset, textcoords="offset points"
        )
        label.set(ha="right", va=align, color=ink, fontsize=11, fontweight="bold")

    count, text = len(curves["he"]), inks["text"]
    title = f"30 layers of rectifiers on CIFAR-10:\nmean and range of {count} seeds"
    axes.set_title(title, loc="left", fontsize=11, color=text)
    axes.set(xlim=(1, epochs[-1]), xticks=epochs)
    axes.set(ylim=(0, 100), yticks=[0, 25, 50, 75, 100])
    axes.set_xlabel("epoch", color=text)
    axes.set_ylabel("error, %", color=text)
    axes.tick_params(colors=text, length=0)
    axes.grid(color=inks["grid"], lw=0.6)
    axes.spines[:].set_visible(False)
    return figure
