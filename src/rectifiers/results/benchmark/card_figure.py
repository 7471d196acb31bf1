"""The figure of a card: the function, a deep chain's start, what trains by gain and by rate, and
the errors."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rectifiers.results.benchmark.card import Card
from rectifiers.results.benchmark.definition import Benchmark
from rectifiers.results.benchmark.entries import BASELINES, EntryResults
from rectifiers.results.benchmark.standing import scores, standing
from rectifiers.runs.identity import run_id

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURED, THEORY, DERIVATIVE = "#1b6ca8", "#444444", "#c8553d"
GUESSING = math.log(10)  # nats, the loss at which the colours end
SEVERAL = 6  # depth scales, about as deep as chains train (Schoenholz et al. 2017)


def figure(
    benchmark: Benchmark, card: Card, results: EntryResults, baselines: Mapping[str, EntryResults]
) -> "Figure":
    """Draw a card; a part that was not measured stays empty."""
    from matplotlib.figure import Figure  # here and not above: the rest of a card does without

    made = Figure(figsize=(13, 7), layout="constrained")
    made.suptitle(card.entry)
    axes = made.subplots(2, 3).flat
    if card.paper and card.paper["curve"]:
        _curve(axes[0], card.paper["curve"])
    if card.start:
        layers = card.start["layers"]
        _depth(axes[1], layers, "measured", "theory", "responses: log10 E[y²]")
        _depth(
            axes[2], layers, "gradient", "theory_gradient", "gradients: log10 E[Δy²], last layer 1"
        )
    if card.trains:
        _map(axes[3], card.trains)
        _rates(axes[4], card.trains)
    _errors(
        axes[5],
        benchmark,
        {results.entry: results, **{n: b for n, b in baselines.items() if n in BASELINES}},
    )
    return made


def description(card: Card, results: EntryResults, baselines: Mapping[str, EntryResults]) -> str:
    """Return the numbers of the figure as a hash, by which a figure of other numbers is found."""
    drawn = [results, *(baselines[name] for name in BASELINES if name in baselines)]
    numbers = [card.model_dump(mode="json"), *(each.model_dump(mode="json") for each in drawn)]
    return f"a card of {card.entry}, drawn from the numbers {run_id({'numbers': numbers})}"


def _curve(axes: Any, curve: Mapping[str, Sequence[float]]) -> None:
    axes.plot(curve["z"], curve["f"], color=MEASURED, label="f")
    axes.plot(curve["z"], curve["slope"], color=DERIVATIVE, lw=1, label="f'")
    axes.set(title="the function", xlabel="y", ylim=(-2, 4))
    axes.grid(alpha=0.3)
    axes.legend()


def _depth(
    axes: Any, layers: Sequence[Mapping[str, Any]], key: str, theory: str, title: str
) -> None:
    places = [place for place, layer in enumerate(layers, start=1) if layer[key]]
    means = [layer[key] for layer in layers if layer[key]]
    axes.plot(places, [mean["mean"] for mean in means], color=MEASURED, label="measured, 95 %")
    if all(mean["low"] is not None for mean in means):
        axes.fill_between(
            places, [m["low"] for m in means], [m["high"] for m in means], color=MEASURED, alpha=0.2
        )
    expected = [math.nan if layer[theory] is None else layer[theory] for layer in layers]
    axes.plot(
        range(1, len(layers) + 1), expected, "--", color=THEORY, label="theory, infinite width"
    )
    axes.set(title=title, xlabel="layer")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def _map(axes: Any, found: Mapping[str, Any]) -> None:
    rows, gains = found["losses"], found["gains"]
    _cells(axes, rows, [f"{gain:g}" for gain in gains], found["depths"], found["trained_below"])
    if found["depth_scales"]:
        depths = [math.log2(depth) for depth in found["depths"]]

        def place(layers: float | None) -> float:
            wanted = math.inf if layers is None else SEVERAL * layers
            return min(
                max(math.log2(max(wanted, 1e-9)) - depths[0], -0.5), len(depths) - 0.5
            )  # each row doubles

        expected = [place(scale) for scale in found["depth_scales"]]
        axes.plot(range(len(gains)), expected, color="white", lw=3)
        axes.plot(
            range(len(gains)), expected, color=THEORY, lw=1.5, label=f"{SEVERAL} depth scales"
        )
        axes.legend(fontsize=8, loc="upper right")
    axes.set(
        title=f"loss after {found['steps']} steps (x: trains)",
        xlabel="gain, times the initialiser's",
        ylabel="layers",
    )


def _rates(axes: Any, found: Mapping[str, Any]) -> None:
    names = [f"{rate:g}" for rate in found["rates"]]
    _cells(axes, found["rate_losses"], names, found["rate_depths"], found["trained_below"])
    axes.set(title="the same by learning rate", xlabel="learning rate", ylabel="layers")


def _cells(
    axes: Any,
    rows: Sequence[Sequence[float | None]],
    names: Sequence[str],
    depths: Sequence[int],
    below: float,
) -> None:
    values = [[GUESSING if loss is None else min(loss, GUESSING) for loss in row] for row in rows]
    axes.imshow(values, cmap="viridis_r", vmin=0, vmax=GUESSING, aspect="auto", origin="lower")
    for y, row in enumerate(rows):
        for x, loss in enumerate(row):
            if loss is None or loss < below:
                axes.text(
                    x,
                    y,
                    "div" if loss is None else "x",
                    ha="center",
                    va="center",
                    color="white",
                    fontsize=8,
                )
    axes.set_xticks(range(len(names)), names, rotation=60, fontsize=8)
    axes.set_yticks(range(len(depths)), [str(depth) for depth in depths])


def _errors(axes: Any, benchmark: Benchmark, entries: Mapping[str, EntryResults]) -> None:
    sizes = {benchmark.tasks[run.task].size for results in entries.values() for run in results.runs}
    tasks = [
        name for name, task in benchmark.tasks.items() if task.reach is None and task.size in sizes
    ]
    for i, (entry, results) in enumerate(entries.items()):
        for place, task in enumerate(tasks):
            where = standing(benchmark, task, results)
            if where.is_complete:
                own = scores(benchmark, where)
                label = entry if place == 0 else None
                axes.plot(
                    [place + 0.2 * (i - 1)] * len(own),
                    own,
                    "o",
                    ms=4,
                    alpha=0.7,
                    color=f"C{i}",
                    label=label,
                )
    axes.set(title="error on test, %, each seed", yscale="log")
    axes.set_xticks(range(len(tasks)), tasks, rotation=30, fontsize=8, ha="right")
    axes.grid(axis="y", alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)
