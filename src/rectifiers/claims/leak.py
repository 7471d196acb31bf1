"""How much should a rectifier leak? The error over the slope, by the length of training."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

from rectifiers.claims.archive import runs_of, search_runs
from rectifiers.claims.claim_page import lengths
from rectifiers.claims.claims import Claim, claims, name_of
from rectifiers.claims.figures import INKS
from rectifiers.claims.measures import error, final, has_diverged, mean_slope
from rectifiers.claims.searches import best_rate
from rectifiers.results.documents import markdown, render
from rectifiers.results.statistics import Mean, mean_of
from rectifiers.runs.record import TrainingRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SLOPES = {  # by arm; of PReLU it is what the runs learn
    "relu": 0.0,
    "slope_025": 0.25,
    "slope_04": 0.4,
    "slope_055": 0.55,
    "slope_07": 0.7,
    "identity": 1.0,
}
CLAIMS = ("imagenette_curve", "imagenette_lower_error", "imagenette_relu_gain")  # with the runs
LONGER = "_150"  # ends the names of arms that train for twice the epochs
VALIDATION, TEST = "validation images", "ten views of test images"
FEWEST = 3  # seeds for which an interval is drawn: that of two is wider than the picture
COLORS = {  # of the lines from the shortest training to the longest, by page
    "light": ("#8c959f", "#0550ae", "#bc4c00"),
    "dark": ("#8b949e", "#79c0ff", "#ffa657"),
}
Arms = dict[str, list[TrainingRecord]]


@dataclass(frozen=True)
class Line:
    """The errors of one length of training, in percent: of fixed slopes, and of PReLU at the mean
    slope that it learned."""

    length: str
    images: str
    fixed: Mapping[float, Mean] = field(default_factory=dict)
    learned: tuple[float, Mean] | None = None


def lines(records: Sequence[TrainingRecord]) -> list[Line]:
    """Return the lines for which there are runs of two slopes, from the shortest training."""
    searched: Arms = {}
    judged: Arms = {}
    longer: Arms = {}
    for claim in (claim for claim in claims() if claim.name in CLAIMS):
        searched |= _of_search(claim, records)
        for arm, runs in runs_of(claim, records).items():
            length = longer if arm.endswith(LONGER) else judged
            length[arm.removesuffix(LONGER)] = list(runs.values())

    found = [
        line_of(searched, VALIDATION, validation_error),
        line_of(judged, TEST),
        line_of(longer, TEST),
    ]
    return [line for line in found if len(line.fixed) > 1]


def _of_search(claim: Claim, records: Sequence[TrainingRecord]) -> Arms:
    """The runs of a claim's search at each arm's best rate, where all its rates have run."""
    if claim.search is None:
        return {}
    runs, chosen = search_runs(claim, records), {}
    for arm in claim.main_arms():
        if best := best_rate(claim.search, arm, runs):
            chosen[arm] = list(runs[name_of(arm, best[1])].values())
    return chosen


def validation_error(run: TrainingRecord) -> float | None:
    return final(run, "val/top1_error_pct")


def ten_view_error(run: TrainingRecord) -> float | None:
    return error(run, "ten_view")


def line_of(
    arms: Arms, images: str, measure: Callable[[TrainingRecord], float | None] = ten_view_error
) -> Line:
    """Return the line of these runs, without those that diverged."""
    trained = {arm: [run for run in runs if not has_diverged(run)] for arm, runs in arms.items()}
    trained = {arm: runs for arm, runs in trained.items() if runs}
    means = {
        arm: mean_of([value for run in runs if (value := measure(run)) is not None])
        for arm, runs in trained.items()
    }
    learned = None
    if "prelu" in trained:  # its slope is what its runs learned
        slopes = [slope for run in trained["prelu"] if (slope := mean_slope(run)) is not None]
        learned = (fmean(slopes), means["prelu"])
    fixed = {slope: means[arm] for arm, slope in SLOPES.items() if arm in means}
    length = lengths([run for runs in trained.values() for run in runs])
    return Line(length, images, fixed, learned)


def page(records: Sequence[TrainingRecord]) -> str:
    """Return LEAK.md: the picture and its numbers."""
    drawn = lines(records)
    head = ["slope", *(f"{line.length}, {line.images}" for line in drawn)]
    rows = []
    for arm, slope in SLOPES.items():
        names = {"relu": "0 (ReLU)", "identity": "1 (no activation)"}
        rows.append([names.get(arm, f"{slope:g}"), *(_cell(x.fixed.get(slope)) for x in drawn)])
    rows.append(["PReLU (its mean slope)", *(_learned_cell(line) for line in drawn)])
    return render("leak", table=markdown(head, rows))


def _cell(mean: Mean | None) -> str:
    if mean is None:
        return "not run"
    spread = f"{mean.low:.1f} to {mean.high:.1f}, " if mean.n >= FEWEST else ""
    return f"{mean.mean:.1f} ({spread}n = {mean.n})"


def _learned_cell(line: Line) -> str:
    if line.learned is None:
        return "not run"
    slope, mean = line.learned
    return f"{_cell(mean)} at {slope:.2f}"


def description(drawn: Sequence[Line]) -> str:
    """Return the numbers of the picture as text."""
    parts = []
    for line in drawn:
        points = [f"{slope:g}: {_cell(mean)}" for slope, mean in line.fixed.items()]
        points.append(f"PReLU: {_learned_cell(line)}")
        parts.append(f"{line.length}, {line.images}: {', '.join(points)}")
    return f"Error in percent by the slope of a leaky ReLU on Imagenette. {'; '.join(parts)}"


def picture(drawn: Sequence[Line], page: str) -> "Figure":
    """Draw the lines with 95 % intervals, PReLU as a star, for a light or dark page."""
    from matplotlib.figure import Figure

    inks = INKS[page]
    figure = Figure(figsize=(5.6, 3.4), layout="constrained")  # narrow: legible on a phone
    figure.patch.set_alpha(0)
    axes = figure.subplots()
    axes.patch.set_alpha(0)
    for line, color in zip(drawn, COLORS[page], strict=False):
        _draw_line(axes, line, color)

    text = inks["text"]
    title = "How much should a rectifier leak?\n14 layers on Imagenette; stars: PReLU"
    axes.set_title(title, loc="left", fontsize=11, color=text)
    axes.set(xlim=(-0.06, 1.06), xticks=list(SLOPES.values()))
    axes.set_xticklabels(["ReLU\n0", "0.25", "0.4", "0.55", "0.7", "no activation\n1"])
    axes.set_xlabel("slope for negative inputs", color=text)
    axes.set_ylabel("error, %", color=text)
    axes.tick_params(colors=text, length=0)
    axes.grid(color=inks["grid"], lw=0.6)
    axes.spines[:].set_visible(False)
    axes.legend(fontsize=8, frameon=False, labelcolor=text)
    return figure


def _draw_line(axes: "Axes", line: Line, color: str) -> None:
    slopes, means = list(line.fixed), list(line.fixed.values())
    values = [mean.mean for mean in means]
    axes.plot(
        slopes, values, "-o", color=color, lw=1.8, ms=4, label=f"{line.length}, {line.images}"
    )
    points = [*zip(slopes, means, strict=True)]
    if line.learned:
        slope, mean = line.learned
        axes.plot([slope], [mean.mean], "*", color=color, ms=11)
        points.append((slope, mean))
    for slope, mean in points:
        if mean.n >= FEWEST and math.isfinite(mean.low):
            axes.plot([slope, slope], [mean.low, mean.high], "-", color=color, lw=1)
