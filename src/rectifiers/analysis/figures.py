"""The figures of the analyses, from their numbers, by matplotlib without its global state."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rectifiers.analysis.preprocessing import tiles

Numbers = dict[str, Any]
MEASURED, THEORY, MAPS = "#1b6ca8", "#444444", "#c8553d"
STABILITY = {"attracts": "#3a7d44", "neutral": THEORY, "repels": MAPS}


def _figure(width: float, height: float, title: str = "") -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    if title:
        figure.suptitle(title)
    return figure


def _finish(axes: Axes, layers: Sequence[str] = (), grid: str = "y", **labels: Any) -> None:
    """Set title and labels, a grid, and the names of the layers along the x-axis, thinned out where
    there are many."""
    axes.set(**labels)
    axes.grid(axis=grid, alpha=0.3)  # type: ignore[arg-type]
    if layers:
        every = math.ceil(len(layers) / 32)
        axes.set_xticks(range(0, len(layers), every), layers[::every], rotation=90, fontsize=7)
        axes.set_xlim(-0.7, len(layers) - 0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)


def _legend_beside(figure: Figure, axes: Axes, title: str | None = "layer") -> None:
    """Put the legend of `axes` to the right of all of them."""
    for each in figure.axes:
        if (legend := each.get_legend()) is not None:
            legend.remove()
    figure.legend(
        *axes.get_legend_handles_labels(), loc="outside right upper", fontsize=7, title=title
    )


def _intervals(
    axes: Axes, places: Iterable[float], means: Iterable[Numbers | None], **style: Any
) -> None:
    """Draw means with their 95 % intervals; nothing where there is no number."""
    kept = [(x, m) for x, m in zip(places, means, strict=True) if m is not None]
    ends = [
        [abs(m["mean"] - (m["mean"] if m[end] is None else m[end])) for _, m in kept]
        for end in ("low", "high")
    ]
    if kept:
        axes.errorbar(
            [x for x, _ in kept],
            [m["mean"] for _, m in kept],
            ends,
            capsize=2,
            fmt="o",
            ms=4,
            **style,
        )


def _column(rows: Iterable[Numbers], key: str) -> list[float]:
    """Return one number of each row; matplotlib leaves a gap where there is none."""
    return [math.nan if row[key] is None else row[key] for row in rows]


def _by_depth(place: int, count: int) -> Any:
    return colormaps["viridis"](0.92 * place / max(1, count - 1))


def _inputs(asked: Numbers) -> str:
    return "Gaussian input" if asked["inputs"] == "gaussian" else f"images of {asked['data']}"


def _network(asked: Numbers) -> str:
    return f"{asked['model']}, {asked['activation']}, {asked['init']} initialisation"


def propagation(numbers: Numbers) -> dict[str, Figure]:
    """Draw E[y^2] and E[dy^2] of every layer: measured, Eq. 9 and 13, and the same on maps with
    borders."""
    layers, asked = numbers["layers"], numbers["asked"]
    names, places = [layer["layer"] for layer in layers], range(len(layers))
    figure = _figure(max(8.0, 2 + 0.32 * len(layers)), 4.6, f"{_network(asked)}, {_inputs(asked)}")
    sides = (
        ("responses, forward (Eq. 9)", "response", "log10 E[y²]", "borders"),
        (
            "gradients, backward (Eq. 13)",
            "gradient",
            "log10 E[Δy²], last layer = 1",
            "borders, strides, pooling",
        ),
    )
    for axes, (title, what, label, known) in zip(figure.subplots(1, 2), sides, strict=True):
        if layers[0]["theory"] is not None:
            theory = [layer["theory"] for layer in layers]
            axes.plot(places, _column(theory, what), color=THEORY, label="theory")
            axes.plot(
                places,
                _column(theory, f"{what}_on_maps"),
                "--",
                color=MAPS,
                label=f"theory on maps: {known}",
            )
        measured = [layer[f"{what}_second"] for layer in layers]
        n = max((m["n"] for m in measured if m), default=0)
        _intervals(axes, places, measured, color=MEASURED, label=f"measured, mean of {n} and 95 %")
        _finish(axes, names, title=title, ylabel=label)
    return {"propagation": figure}


def gain(numbers: Numbers) -> dict[str, Figure]:
    """Draw the slope of each activation's variance map, and what is left of signals after many
    layers."""
    rows = sorted(
        (r for r in numbers["rows"] if r["forward_gain2"] is not None),
        key=lambda row: row["map_slope"],
    )
    depth, places = numbers["asked"]["depth"], range(len(rows))
    figure = _figure(10.5, 0.32 * len(rows) + 1.6)
    slopes, forward, backward = figure.subplots(1, 3, sharey=True)
    slopes.barh(
        places, _column(rows, "map_slope"), color=[STABILITY[row["fixed_point"]] for row in rows]
    )
    slopes.axvline(1, color="black", lw=0.8)
    slopes.set_title("slope of the variance map at the fixed point", fontsize=10)
    slopes.set_xlabel("below 1 it attracts, above it repels")
    slopes.set_yticks(places, [row["activation"] for row in rows])
    for axes, key, expected, spread, title in (
        (
            forward,
            "forward",
            "predicted_drift",
            "predicted_spread",
            f"log10 E[y²] after {depth} layers",
        ),
        (
            backward,
            "backward",
            "predicted_backward",
            None,
            "log10 E[Δy²] at the first, of 1 at the last",
        ),
    ):
        for place, row in zip(places, rows, strict=True):
            if row[key]:
                axes.plot(
                    row[key]["values"],
                    [place] * row[key]["n"],
                    "o",
                    ms=4,
                    color=MEASURED,
                    alpha=0.6,
                )
            if row[expected] is not None:
                width = 2 * (row[spread] or 0) if spread else 0
                axes.errorbar(
                    row[expected],
                    place,
                    xerr=width or None,
                    fmt="|",
                    ms=10,
                    color=THEORY,
                    capsize=3,
                )
        axes.set_title(title, fontsize=10)
        axes.grid(axis="x", alpha=0.3)
        axes.axvline(0, color="black", lw=0.8)
    forward.plot([], [], "o", color=MEASURED, label="measured, one draw each")
    forward.plot([], [], "|", ms=10, color=THEORY, label="predicted, ± 2 std for the width")
    figure.legend(
        *forward.get_legend_handles_labels(), fontsize=8, loc="outside lower right", ncols=2
    )
    return {"gain": figure}


def phase(numbers: Numbers) -> dict[str, Figure]:
    """Draw chi_1 over weight and bias variance, the edge of chaos and He's point."""
    weights, biases, he = numbers["weight_variances"], numbers["bias_variances"], numbers["he"]
    figure = _figure(6.6, 4.6)
    axes = figure.subplots()
    logs = [
        [math.nan if chi is None else math.log10(max(chi, 1e-9)) for chi in row]
        for row in numbers["chi"]
    ]
    mesh = axes.pcolormesh(
        weights, biases, logs, cmap="RdBu_r", vmin=-0.5, vmax=0.5, shading="nearest"
    )
    axes.set_facecolor("#cccccc")
    figure.colorbar(mesh, label="log10 χ₁: below 0 ordered, above 0 chaotic", extend="both")
    if numbers["edge"]:
        edge = [point[:2] for point in numbers["edge"]]
        axes.plot(
            *zip(*edge, strict=True), ".-", ms=3, color="black", label="edge of chaos, χ₁ = 1"
        )
    mark = f"He's point, χ₁ = {he['chi_1']:.3f}"
    axes.plot(
        [he["weight_variance"]], [0], "*", ms=14, color=MAPS, mec="black", clip_on=False, label=mark
    )
    title = f"{numbers['activation']}; grey: the signal grows for ever"
    _finish(axes, grid="both", title=title, xlabel="n Var[w]", ylabel="Var[b]")
    return {"phase": figure}


def responses(numbers: Numbers) -> dict[str, Figure]:
    """Draw what the layers of a finished run respond, how that came about, and its slopes where it
    has some."""
    figures = {"responses": _responses(numbers)}
    if any(layer["slopes"] for layer in numbers["layers"]):
        figures["slopes"] = _slopes(numbers)
    if numbers["history"]:
        figures["history"] = _history(numbers)
    return figures


def _responses(numbers: Numbers) -> Figure:
    layers = numbers["layers"]
    names, places = [layer["layer"] for layer in layers], range(len(layers))
    title = f"run {numbers['run']}, all {numbers['images']:,} training images after the last epoch"
    figure = _figure(max(8.0, 2 + 0.4 * len(layers)), 4.2, title)
    means, shares = figure.subplots(1, 2)
    means.errorbar(
        places, _column(layers, "mean"), _column(layers, "std"), fmt="o", color=MEASURED, capsize=3
    )
    means.axhline(0, color="black", lw=0.8)
    _finish(means, names, title="responses: mean and std", ylabel="f(y)")
    active = [100 * layer["active_share"] for layer in layers]
    dead = [100 * layer["dead"] / layer["units"] for layer in layers]
    shares.bar(places, active, color=MEASURED, label="responses above 0")
    shares.bar(places, dead, width=0.4, color=MAPS, label="units never above 0 (dead)")
    _finish(shares, names, title="active and dead", ylabel="%", ylim=(0, 100))
    return figure


def _slopes(numbers: Numbers) -> Figure:
    layers = [layer for layer in numbers["layers"] if layer["slopes"]]
    figure = _figure(max(6.0, 1.5 + 0.4 * len(layers)), 4.0)
    axes = figure.subplots()
    keys = {
        "whislo": "least",
        "q1": "quarter",
        "med": "median",
        "q3": "three_quarters",
        "whishi": "most",
        "mean": "mean",
    }
    boxes = [
        {box: layer["slopes"][key] for box, key in keys.items()} | {"fliers": []}
        for layer in layers
    ]
    axes.bxp(boxes, positions=list(range(len(layers))), showmeans=True, widths=0.6)
    axes.axhline(0.25, color=MAPS, lw=0.8, ls="--", label="0.25, where the paper starts them")
    title = f"run {numbers['run']}: slopes over channels: least, quartiles, most; mean"
    _finish(axes, [layer["layer"] for layer in layers], ylabel="slope", title=title)
    return figure


def _history(numbers: Numbers) -> Figure:
    layers, history = [layer["layer"] for layer in numbers["layers"]], numbers["history"]
    labels = {
        "response_mean": "mean",
        "response_std": "std",
        "active_share": "share above 0",
        "dead_units": "dead units",
    }
    kinds = [key for key in labels if f"{key}/{layers[0]}" in history[0]]
    figure = _figure(
        3.4 * len(kinds) + 1.2, 3.8, f"run {numbers['run']}, validation images after every epoch"
    )
    for axes, key in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        for place, layer in enumerate(layers):
            values = _column(history, f"{key}/{layer}")
            axes.plot(
                _column(history, "epoch"),
                values,
                color=_by_depth(place, len(layers)),
                lw=1,
                label=layer,
            )
        axes.xaxis.get_major_locator().set_params(integer=True)
        _finish(axes, title=labels[key], xlabel="epoch")
    _legend_beside(figure, axes)
    return figure


def histograms(numbers: Numbers) -> dict[str, Figure]:
    """Draw activations and gradients by layer at a few steps, and their spread along the
    training."""
    shots, asked = numbers["snapshots"], numbers["asked"]
    title = f"{_network(asked)}, {asked['data']}"
    densities = _figure(2.7 * len(shots) + 1.6, 5.2, title)
    grid = densities.subplots(2, len(shots), squeeze=False, sharey="row")
    for column, shot in zip(grid.T, shots, strict=True):
        for axes, what in zip(column, ("activations", "gradients"), strict=True):
            for place, layer in enumerate(shot["layers"]):
                color = _by_depth(place, len(shot["layers"]))
                scale = (layer[what]["std"] or 1.0) if what == "gradients" else 1.0
                axes.plot(*_density(layer[what], scale), color=color, lw=1, label=layer["layer"])
            axes.set_yscale("log")
            axes.tick_params(labelsize=7)
        column[0].set_title(f"step {shot['step']:,}", fontsize=10)
        column[0].set_xlabel("activation f(y)", fontsize=8)
        column[1].set_xlabel("gradient / its std", fontsize=8)
    for row in grid:
        row[0].set_ylabel("density", fontsize=8)
    _legend_beside(densities, grid[0, 0])

    spreads = _figure(10.0, 3.9, title)
    names = [layer["layer"] for layer in shots[0]["layers"]]
    for axes, what in zip(spreads.subplots(1, 2), ("activations", "gradients"), strict=True):
        for place, shot in enumerate(shots):
            spread = [layer[what]["std"] or math.nan for layer in shot["layers"]]
            color = _by_depth(place, len(shots))
            axes.plot(
                range(len(names)),
                spread,
                "o-",
                ms=3,
                lw=1,
                color=color,
                label=f"step {shot['step']:,}",
            )
        _finish(axes, names, title=what, ylabel="std", yscale="log")
    return {"histograms": densities, "spread": spreads}


def _density(distribution: Numbers, scale: float) -> tuple[list[float], list[float]]:
    """Return (the middles of the bins, the density there), of the numbers divided by `scale`."""
    low, counts = distribution["low"], distribution["counts"]
    width, total = (distribution["high"] - low) / len(counts), sum(counts) or 1
    middles = [(low + (i + 0.5) * width) / scale for i in range(len(counts))]
    return middles, [count / total / width * scale or math.nan for count in counts]


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


def fisher(numbers: Numbers) -> dict[str, Figure]:
    """Draw off-diagonal masses, spread and angle by arm and step, and the eigenvalues of one
    draw."""
    arms = numbers["arms"]
    names, places = [arm["arm"] for arm in arms], range(len(arms))
    steps = sorted({step["step"] for arm in arms for step in arm["steps"]})
    at = {(place, step["step"]): step for place, arm in enumerate(arms) for step in arm["steps"]}
    title = (
        f"Fisher information of {numbers['weights']} weights, {_inputs(numbers['asked'])}; "
        "means and 95 %"
    )
    measures = _figure(12.0, 6.2, title)
    for axes, (key, name) in zip(measures.subplots(2, 4).flat, FISHER.items(), strict=True):
        for i, step in enumerate(steps):
            means = [
                at[place, step]["measures"][key] if (place, step) in at else None
                for place in places
            ]
            shifted = [place + (i - (len(steps) - 1) / 2) * 0.2 for place in places]
            _intervals(
                axes, shifted, means, color=_by_depth(i, max(2, len(steps))), label=f"step {step}"
            )
        if key == "output_units":
            axes.plot(
                places, _column(arms, "ideal"), "_", ms=16, color=MAPS, label="independent units"
            )
        axes.set_title(name, fontsize=9)
        axes.grid(axis="y", alpha=0.3)
        axes.set_xticks(places, names, rotation=60, fontsize=7, ha="right")
    handles = measures.axes[0].get_legend_handles_labels()
    measures.legend(*handles, loc="outside lower center", ncols=len(handles[0]), fontsize=8)

    spectra = _figure(4.2 * len(steps) + 1.6, 4.0)
    grid = spectra.subplots(1, len(steps), squeeze=False, sharey=True)[0]
    for axes, step in zip(grid, steps, strict=True):
        for place, name in enumerate(names):
            if values := at.get((place, step), {}).get("eigenvalues"):
                _spectrum(axes, values, color=_by_depth(place, len(arms)), lw=1.2, label=name)
        _finish(axes, grid="both", title=f"step {step}", xlabel="eigenvalue, by size", yscale="log")
    grid[0].set_ylabel("eigenvalue of F")
    _legend_beside(spectra, grid[0], title=None)
    return {"fisher": measures, "eigenvalues": spectra}


def _spectrum(axes: Axes, eigenvalues: Sequence[float], **style: Any) -> None:
    """Draw eigenvalues by size, without those that are rounding."""
    kept = [value if value > 1e-12 * eigenvalues[0] else math.nan for value in eigenvalues]
    axes.plot(range(1, len(kept) + 1), kept, **style)


def preprocessing(numbers: Numbers) -> dict[str, Figure]:
    """Draw images and what becomes of them, the principal components, and the variance that they
    explain."""
    pictures, data = numbers["pictures"], numbers["asked"]["data"]
    n, shown = len(pictures["originals"]), len(pictures["components"])
    rebuilt = {
        f"from_{k}": f"from {k} of {numbers['dimensions']} components ({100 * share:.1f} %)"
        for k, share in numbers["explained"].items()
    }
    whitened = {"pca_whitened": "whitened, ε = 1e-5", "zca_whitened": "whitened, ε = 1e-2"}
    titles = {"mean": "mean image", "originals": f"{n} training images", **rebuilt, **whitened}
    across = min(4, len(titles))
    down = math.ceil(len(titles) / across)
    learned = f"{data}: what is learned from {numbers['training_images']:,} training images"
    images = _figure(3.2 * across, 3.4 * down, learned)
    images.subplots(down, across, squeeze=False)
    for axes, name in zip(images.axes, titles, strict=False):
        columns = (
            1 if name == "mean" else math.ceil(math.sqrt(n))
        )  # whitened images have no common range
        _sheet(axes, tiles(pictures[name], columns=columns, each=name in whitened), titles[name])
    for axes in images.axes[len(titles) :]:
        axes.set_axis_off()

    wide = math.ceil(math.sqrt(1.6 * shown))
    components = _figure(8.0, 8.0 * math.ceil(shown / wide) / wide + 0.5)
    sheet = tiles(pictures["components"], columns=wide, each=True)
    _sheet(
        components.subplots(),
        sheet,
        f"{data}: the first {shown} principal components, largest variance first",
    )
    return {"preprocessing": images, "components": components, "eigenvalues": _variances(numbers)}


def _sheet(axes: Axes, sheet: Any, title: str) -> None:
    axes.imshow(sheet.numpy().squeeze(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set_title(title, fontsize=9)
    axes.set_axis_off()


def _variances(numbers: Numbers) -> Figure:
    values = numbers["eigenvalues"]
    figure = _figure(8.6, 3.6)
    spectrum, share = figure.subplots(1, 2)
    _spectrum(spectrum, values, color=MEASURED)
    labels = {"title": "eigenvalues", "xlabel": "component", "ylabel": "variance, white pixel = 1"}
    _finish(spectrum, grid="both", xscale="log", yscale="log", **labels)
    total, so_far = sum(values), 0.0
    explained = [100 * (so_far := so_far + value) / total for value in values]
    share.plot(range(1, len(values) + 1), explained, color=MEASURED)
    share.axhline(
        99,
        color=MAPS,
        lw=0.8,
        ls="--",
        label=f"99 %: {numbers['components_for_99_pct']} components",
    )
    _finish(
        share,
        grid="both",
        title="explained",
        xlabel="components kept",
        ylabel="% of the variance",
        xscale="log",
    )
    return figure
