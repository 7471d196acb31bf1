"""The figures of the analyses, from their numbers, by matplotlib without its global state."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

MEASURED, THEORY, MAPS = "#1b6ca8", "#444444", "#c8553d"


def _interval(axes: Axes, places: Sequence[float], means: Sequence[dict[str, Any] | None], **style: Any) -> None:
    """Points with 95 % intervals; nothing where there is no number."""
    kept = [(x, m) for x, m in zip(places, means, strict=True) if m is not None]
    if not kept:
        return
    low = [m["mean"] - m["low"] if m["low"] is not None else 0.0 for _, m in kept]
    high = [m["high"] - m["mean"] if m["high"] is not None else 0.0 for _, m in kept]
    axes.errorbar([x for x, _ in kept], [m["mean"] for _, m in kept], [low, high], capsize=2, **style)


def _layers(axes: Axes, names: Sequence[str]) -> None:
    """Name the layers along the x-axis, every second or third where there are many."""
    every = math.ceil(len(names) / 32)
    axes.set_xticks(range(0, len(names), every), names[::every], rotation=90, fontsize=7)
    axes.set_xlim(-0.7, len(names) - 0.3)


def propagation(numbers: dict[str, Any]) -> Figure:
    """Draw E[y^2] and E[dy^2] of every layer: measured, Eq. 9 and 13, and the same on maps with borders."""
    layers = numbers["layers"]
    figure = Figure(figsize=(max(8.0, 2 + 0.32 * len(layers)), 4.6), layout="constrained")
    asked = numbers["asked"]
    figure.suptitle(f"{asked['model']}, {asked['activation']}, {asked['init']} initialisation, {_inputs(asked)}")
    places = range(len(layers))
    sides = (
        ("responses, forward (Eq. 9)", "response", "log10 E[y²]", "borders"),
        ("gradients, backward (Eq. 13)", "gradient", "log10 E[Δy²], last layer = 1", "borders, strides, pooling"),
    )
    for axes, (title, what, label, known) in zip(figure.subplots(1, 2), sides, strict=True):
        if layers[0]["theory"] is not None:
            for key, style in (
                (what, {"color": THEORY, "label": "theory"}),
                (f"{what}_on_maps", {"color": MAPS, "ls": "--", "label": f"theory on maps: {known}"}),
            ):
                axes.plot(places, [_number(layer["theory"][key]) for layer in layers], **style)
        drawn = [layer[f"{what}_second"] for layer in layers]
        n = max((m["n"] for m in drawn if m), default=0)
        _interval(axes, places, drawn, fmt="o", ms=4, color=MEASURED, label=f"measured, mean of {n} and 95 %")
        axes.set(title=title, ylabel=label)
        axes.grid(axis="y", alpha=0.3)
        axes.legend(fontsize=8)
        _layers(axes, [layer["layer"] for layer in layers])
    return figure


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _inputs(asked: dict[str, Any]) -> str:
    return "Gaussian input" if asked["inputs"] == "gaussian" else f"images of {asked['data']}"


def gain(numbers: dict[str, Any]) -> Figure:
    """Draw the slope of each activation's variance map, and what is left of signals after many layers."""
    rows = sorted(
        (row for row in numbers["rows"] if row["forward_gain2"] is not None), key=lambda row: row["map_slope"]
    )
    names, places = [row["activation"] for row in rows], range(len(rows))
    depth = numbers["asked"]["depth"]
    figure = Figure(figsize=(10.5, 0.32 * len(rows) + 1.6), layout="constrained")
    slopes, forward, backward = figure.subplots(1, 3, sharey=True)
    colors = {"attracts": "#3a7d44", "neutral": THEORY, "repels": MAPS}
    slopes.barh(places, [row["map_slope"] for row in rows], color=[colors[row["fixed_point"]] for row in rows])
    slopes.axvline(1, color="black", lw=0.8)
    slopes.set_title("slope of the variance map at the fixed point", fontsize=10)
    slopes.set_xlabel("below 1 it attracts, above it repels")
    slopes.set_yticks(places, names)
    for axes, key, title in (
        (forward, "forward", f"log10 E[y²] after {depth} layers"),
        (backward, "backward", "log10 E[Δy²] at the first, of 1 at the last"),
    ):
        for place, row in zip(places, rows, strict=True):
            found = row[key]
            if found:
                axes.plot(found["values"], [place] * found["n"], "o", ms=4, color=MEASURED, alpha=0.6)
            expected = row["predicted_backward"] if key == "backward" else row["predicted_drift"]
            spread = 0 if key == "backward" else row["predicted_spread"]
            if expected is not None:
                axes.errorbar(expected, place, xerr=2 * (spread or 0) or None, fmt="|", ms=10, color=THEORY, capsize=3)
        axes.set_title(title, fontsize=10)
        axes.grid(axis="x", alpha=0.3)
        axes.axvline(0, color="black", lw=0.8)
    forward.plot([], [], "o", color=MEASURED, label="measured, one draw each")
    forward.plot([], [], "|", ms=10, color=THEORY, label="predicted, ± 2 std for the width")
    figure.legend(*forward.get_legend_handles_labels(), fontsize=8, loc="outside lower right", ncols=2)
    return figure


def responses(numbers: dict[str, Any]) -> dict[str, Figure]:
    """Draw what the layers of a finished run answer, how that came about, and its slopes where it has some."""
    drawn = {"responses": _answers(numbers)}
    if any(layer["slopes"] for layer in numbers["layers"]):
        drawn["slopes"] = _slopes(numbers)
    if numbers["history"]:
        drawn["history"] = _history(numbers)
    return drawn


def _answers(numbers: dict[str, Any]) -> Figure:
    layers = numbers["layers"]
    names, places = [layer["layer"] for layer in layers], range(len(layers))
    figure = Figure(figsize=(max(8.0, 2 + 0.4 * len(layers)), 4.2), layout="constrained")
    figure.suptitle(f"run {numbers['run']}, all {numbers['images']:,} training images after the last epoch")
    means, shares = figure.subplots(1, 2)
    means.errorbar(
        places,
        [layer["mean"] for layer in layers],
        [layer["std"] for layer in layers],
        fmt="o",
        color=MEASURED,
        capsize=3,
    )
    means.axhline(0, color="black", lw=0.8)
    means.set(title="responses: mean and std", ylabel="f(y)")
    shares.bar(places, [100 * layer["active_share"] for layer in layers], color=MEASURED, label="responses above 0")
    dead = [100 * layer["dead"] / layer["units"] for layer in layers]
    shares.bar(places, dead, width=0.4, color=MAPS, label="units never above 0 (dead)")
    shares.set(title="active and dead", ylabel="%", ylim=(0, 100))
    shares.legend(fontsize=8)
    for axes in (means, shares):
        axes.grid(axis="y", alpha=0.3)
        _layers(axes, names)
    return figure


def _slopes(numbers: dict[str, Any]) -> Figure:
    layers = [layer for layer in numbers["layers"] if layer["slopes"]]
    figure = Figure(figsize=(max(6.0, 1.5 + 0.4 * len(layers)), 4.0), layout="constrained")
    axes = figure.subplots()
    boxes = [
        {
            "whislo": s["least"], "q1": s["quarter"], "med": s["median"], "q3": s["three_quarters"],
            "whishi": s["most"], "mean": s["mean"], "fliers": [],
        }
        for s in (layer["slopes"] for layer in layers)
    ]  # fmt: skip
    axes.bxp(boxes, positions=list(range(len(layers))), showmeans=True, widths=0.6)
    axes.axhline(0.25, color=MAPS, lw=0.8, ls="--", label="0.25, where the paper starts them")
    axes.set(ylabel="slope", title=f"run {numbers['run']}: slopes over channels: least, quartiles, most; mean")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=8)
    _layers(axes, [layer["layer"] for layer in layers])
    return figure


def _history(numbers: dict[str, Any]) -> Figure:
    layers, history = [layer["layer"] for layer in numbers["layers"]], numbers["history"]
    epochs = [row["epoch"] for row in history]
    kinds = [
        (key, label)
        for key, label in (
            ("response_mean", "mean"), ("response_std", "std"), ("active_share", "share above 0"),
            ("dead_units", "dead units"),
        )
        if f"{key}/{layers[0]}" in history[0]
    ]  # fmt: skip
    figure = Figure(figsize=(3.4 * len(kinds) + 1.2, 3.8), layout="constrained")
    figure.suptitle(f"run {numbers['run']}, validation images after every epoch")
    for axes, (key, label) in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        for place, layer in enumerate(layers):
            axes.plot(
                epochs,
                [row[f"{key}/{layer}"] for row in history],
                color=_by_depth(place, len(layers)),
                lw=1,
                label=layer,
            )
        axes.set(title=label, xlabel="epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(axis="y", alpha=0.3)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper", fontsize=7, title="layer")
    return figure


def _by_depth(place: int, layers: int) -> Any:
    from matplotlib import colormaps

    return colormaps["viridis"](0.92 * place / max(1, layers - 1))


def histograms(numbers: dict[str, Any]) -> dict[str, Figure]:
    """Draw activations and gradients by layer at a few steps, and their spread along the training."""
    return {"histograms": _distributions(numbers), "spread": _spreads(numbers)}


def _trained(asked: dict[str, Any]) -> str:
    return f"{asked['model']}, {asked['activation']}, {asked['init']} initialisation, {asked['data']}"


def _distributions(numbers: dict[str, Any]) -> Figure:
    shots = numbers["snapshots"]
    figure = Figure(figsize=(2.7 * len(shots) + 1.6, 5.2), layout="constrained")
    figure.suptitle(_trained(numbers["asked"]))
    grid = figure.subplots(2, len(shots), squeeze=False, sharey="row")
    for column, shot in zip(grid.T, shots, strict=True):
        for axes, what in zip(column, ("activations", "gradients"), strict=True):
            for place, layer in enumerate(shot["layers"]):
                found = layer[what]
                width = (found["high"] - found["low"]) / len(found["counts"])
                total = sum(found["counts"]) or 1
                at = [found["low"] + (i + 0.5) * width for i in range(len(found["counts"]))]
                scale = (found["std"] or 1.0) if what == "gradients" else 1.0
                density = [count / total / width * scale or math.nan for count in found["counts"]]
                color = _by_depth(place, len(shot["layers"]))
                axes.plot([x / scale for x in at], density, color=color, lw=1, label=layer["layer"])
            axes.set_yscale("log")
            axes.tick_params(labelsize=7)
        column[0].set_title(f"step {shot['step']:,}", fontsize=10)
        column[0].set_xlabel("activation f(y)", fontsize=8)
        column[1].set_xlabel("gradient / its std", fontsize=8)
    for row in grid:
        row[0].set_ylabel("density", fontsize=8)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside right upper", fontsize=7, title="layer")
    return figure


def _spreads(numbers: dict[str, Any]) -> Figure:
    shots = numbers["snapshots"]
    names = [layer["layer"] for layer in shots[0]["layers"]]
    figure = Figure(figsize=(10.0, 3.9), layout="constrained")
    figure.suptitle(_trained(numbers["asked"]))
    for axes, what in zip(figure.subplots(1, 2), ("activations", "gradients"), strict=True):
        for shot_place, shot in enumerate(shots):
            color = _by_depth(shot_place, len(shots))
            spread = [layer[what]["std"] or math.nan for layer in shot["layers"]]
            axes.plot(range(len(names)), spread, "o-", ms=3, lw=1, color=color, label=f"step {shot['step']:,}")
        axes.set(title=what, ylabel="std", yscale="log")
        axes.grid(axis="y", alpha=0.3)
        _layers(axes, names)
    axes.legend(fontsize=8)
    return figure


def fisher(numbers: dict[str, Any]) -> dict[str, Figure]:
    """Draw off-diagonal masses, spread and angle by arm and step, and the eigenvalues of one draw."""
    return {"fisher": _measures(numbers), "eigenvalues": _eigenvalues(numbers)}


FISHER = {
    "output_units": "off-diagonal: hidden units, one class",
    "first": "off-diagonal: first layer",
    "output": "off-diagonal: output layer",
    "cross": "off-diagonal: between layers",
    "off_over_diagonal": "‖F - diag F‖ / ‖diag F‖",
    "largest_over_mean": "largest / mean eigenvalue",
    "effective_rank": "effective rank / weights",
    "natural_angle": "gradient to natural gradient, degrees",
}


def _measures(numbers: dict[str, Any]) -> Figure:
    arms = numbers["arms"]
    figure = Figure(figsize=(12.0, 6.2), layout="constrained")
    figure.suptitle(f"Fisher information of {numbers['weights']} weights, {_inputs(numbers['asked'])}; means and 95 %")
    steps = sorted({step["step"] for arm in arms for step in arm["steps"]})
    for axes, (key, title) in zip(figure.subplots(2, 4).flat, FISHER.items(), strict=True):
        for place, step in enumerate(steps):
            shift = (place - (len(steps) - 1) / 2) * 0.2
            found = [next((s["measures"][key] for s in arm["steps"] if s["step"] == step), None) for arm in arms]
            color = _by_depth(place, max(2, len(steps)))
            _interval(
                axes, [i + shift for i in range(len(arms))], found, fmt="o", ms=4, color=color, label=f"step {step}"
            )
        if key == "output_units":
            axes.plot(
                range(len(arms)), [arm["ideal"] for arm in arms], "_", ms=16, color=MAPS, label="independent units"
            )
        axes.set_title(title, fontsize=9)
        axes.grid(axis="y", alpha=0.3)
        axes.set_xticks(range(len(arms)), [arm["arm"] for arm in arms], rotation=60, fontsize=7, ha="right")
    handles = figure.axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=len(handles[0]), fontsize=8)
    return figure


def _eigenvalues(numbers: dict[str, Any]) -> Figure:
    arms = numbers["arms"]
    steps = sorted({step["step"] for arm in arms for step in arm["steps"]})
    figure = Figure(figsize=(4.2 * len(steps) + 1.6, 4.0), layout="constrained")
    grid = figure.subplots(1, len(steps), squeeze=False, sharey=True)[0]
    for axes, step in zip(grid, steps, strict=True):
        for place, arm in enumerate(arms):
            values = next((s["eigenvalues"] for s in arm["steps"] if s["step"] == step), None)
            if values:
                kept = [value if value > 1e-12 * values[0] else math.nan for value in values]
                axes.plot(range(1, len(kept) + 1), kept, lw=1.2, color=_by_depth(place, len(arms)), label=arm["arm"])
        axes.set(title=f"step {step}", xlabel="eigenvalue, by size", yscale="log")
        axes.grid(alpha=0.3)
    grid[0].set_ylabel("eigenvalue of F")
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    return figure


def preprocessing(numbers: dict[str, Any]) -> dict[str, Figure]:
    """Draw images and what becomes of them, the principal components, and the variance that they explain."""
    from rectifiers.analysis.components import tiles

    pictures, asked = numbers["pictures"], numbers["asked"]
    n = len(pictures["originals"])
    columns = math.ceil(math.sqrt(n))
    titles = {"mean": "mean image", "originals": f"{n} training images"}
    for name in pictures:
        if name.startswith("from_"):
            k = name.removeprefix("from_")
            titles[name] = f"from {k} of {numbers['dimensions']} components ({100 * numbers['explained'][k]:.1f} %)"
    titles |= {"pca_whitened": "whitened, ε = 1e-5", "zca_whitened": "whitened, ε = 1e-2"}
    across = min(4, len(titles))
    down = math.ceil(len(titles) / across)
    made = Figure(figsize=(3.2 * across, 3.4 * down), layout="constrained")
    made.suptitle(f"{asked['data']}: what is learned from {numbers['training_images']:,} training images")
    grid = made.subplots(down, across, squeeze=False).flat
    for axes, (name, title) in zip(grid, titles.items(), strict=False):
        each = "whitened" in name  # they have no common range
        _sheet(axes, tiles(pictures[name], columns=1 if name == "mean" else columns, each=each), title)
    for axes in made.axes[len(titles) :]:
        axes.set_axis_off()
    shown = len(pictures["components"])
    wide = math.ceil(math.sqrt(1.6 * shown))
    bases = Figure(figsize=(8.0, 8.0 * math.ceil(shown / wide) / wide + 0.5), layout="constrained")
    sheet = tiles(pictures["components"], columns=wide, each=True)
    _sheet(bases.subplots(), sheet, f"{asked['data']}: the first {shown} principal components, largest variance first")
    return {"preprocessing": made, "components": bases, "eigenvalues": _variances(numbers)}


def _sheet(axes: Axes, sheet: Any, title: str) -> None:
    axes.imshow(sheet.numpy().squeeze(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set_title(title, fontsize=9)
    axes.set_axis_off()


def _variances(numbers: dict[str, Any]) -> Figure:
    values = numbers["eigenvalues"]
    figure = Figure(figsize=(8.6, 3.6), layout="constrained")
    spectrum, share = figure.subplots(1, 2)
    places = range(1, len(values) + 1)
    spectrum.plot(places, [value if value > 1e-12 * values[0] else math.nan for value in values], color=MEASURED)
    spectrum.set(
        yscale="log", xscale="log", xlabel="component", ylabel="variance, white pixel = 1", title="eigenvalues"
    )
    total, so_far = sum(values), 0.0
    explained = [100 * (so_far := so_far + value) / total for value in values]
    share.plot(places, explained, color=MEASURED)
    share.axhline(99, color=MAPS, lw=0.8, ls="--", label=f"99 %: {numbers['components_for_99_pct']} components")
    share.set(xscale="log", xlabel="components kept", ylabel="% of the variance", title="explained")
    share.legend(fontsize=8)
    for axes in (spectrum, share):
        axes.grid(alpha=0.3)
    return figure
