"""What the analyses found, as tables for the terminal."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

Numbers = dict[str, Any]


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=Text(title, style="bold"), title_justify="left")  # Text: [y²] is no markup
    for i, column in enumerate(columns):
        table.add_column(Text(column), justify="right" if i else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _mean(mean: Numbers | None, digits: int = 2, none: str = "-") -> str:
    """A mean and half its 95 % interval."""
    if mean is None:
        return none
    half = "" if mean["low"] is None else f" ± {mean['high'] - mean['mean']:.{digits}f}"
    return f"{mean['mean']:.{digits}f}{half}"


def propagation(numbers: Numbers) -> Group:
    """Every layer's second moments beside the theory's, where the difference comes from, and the
    whole."""
    rows = []
    for layer in numbers["layers"]:
        theory = layer["theory"] or {}
        shape = (
            f"{layer['fan_in']:,}",
            f"{layer['fan_out']:,}",
            f"{layer['std']:.4g}",
            str(layer["map_px"] or "-"),
        )
        moments = [
            text
            for key in ("response", "gradient")
            for text in (
                _mean(layer[f"{key}_second"], none="none"),
                _number(theory.get(key)),
                _number(theory.get(f"{key}_on_maps")),
            )
        ]
        rows.append((layer["layer"], *shape, *moments))
    columns = (
        "layer",
        "n",
        "n̂",
        "std",
        "map",
        "E[y²]",
        "Eq. 9",
        "on maps",
        "E[Δy²]",
        "Eq. 13",
        "on maps",
    )
    title = (
        "log10 of E[y²] and E[Δy²]: measured (± half of its 95 % interval), Eq. 9 and 13, "
        "and the same on maps"
    )
    total = numbers["total"]
    return Group(
        _table(title, columns, rows),
        Text(_forward(total, numbers["layers"])),
        Text(_backward(total)),
    )


def _factor(log10: float, steps: int) -> str:
    return f"10^{log10:.2f} = {10 ** (log10 / steps):.3f}^{steps}"


def _forward(total: Numbers, layers: list[Numbers]) -> str:
    forward, steps = total["forward"], total["steps"]
    if forward["measured"] is None:
        dead = next(
            (layer["layer"] for layer in layers if layer["response_second"] is None),
            "the first layer",
        )
        return (
            f"forward: from {dead} on the responses are zero or beyond a double, so there "
            "is no factor"
        )
    text = f"forward over {steps} steps: measured {_factor(forward['measured']['mean'], steps)}"
    if forward["theory"] is not None:
        text += f", Eq. 9 says {_factor(forward['theory'], steps)}"
    border, pooling = (
        sum(layer["effects"][key] or 0 for layer in layers[1:]) for key in ("border", "pooling")
    )
    text += (
        f"\n  of the difference, in log10: borders {border:+.2f}, maximum pooling {pooling:+.2f}, "
        "the rest is this width's"
    )
    if forward["width_drift"] is not None:
        text += (
            f" (theory: {forward['width_drift']:+.2f} ± {forward['width_spread']:.2f} per "
            "draw, if all images and "
            "places were alike)"
        )
    return text


def _backward(total: Numbers) -> str:
    backward, steps = total["backward"], total["steps"]
    if backward["measured"] is None:
        return (
            "backward: the gradients at the first layer are zero or beyond a double, so "
            "there is no factor"
        )
    text = f"backward over {steps} steps: measured {_factor(backward['measured']['mean'], steps)}"
    if backward["theory"] is not None:
        text += f", Eq. 13 says {_factor(backward['theory'], steps)}, with borders and pooling "
        text += _factor(backward["on_maps"], steps)
    return text


def gain(numbers: Numbers) -> Group:
    """A line per activation, and a sentence on those that repel or cannot be used."""
    depth, activations = numbers["asked"]["depth"], numbers["rows"]
    rows = [
        (
            row["activation"],
            _number(row["forward_gain2"], 4),
            _number(row["backward_gain2"], 4),
            _number(row["chi"], 3),
            _number(row["map_slope"], 3),
            row["fixed_point"] or "-",
            _spread(row["predicted_drift"], row["predicted_spread"]),
            _spread(**_ends(row["forward"])),
            _number(row["predicted_backward"]),
            _spread(**_ends(row["backward"])),
        )
        for row in activations
    ]
    columns = ("activation", "1/E[f²]", "1/E[f'²]", "χ", "map slope", "fixed point")
    ends = ("E[y²] predicted", "measured", "gradient predicted", "measured")
    title = (
        f"gains; and log10 of what {depth} layers with 1/E[f²] make of a signal, mean and "
        "std over draws"
    )
    repelling = ", ".join(
        row["activation"] for row in activations if row["fixed_point"] == "repels"
    )
    advice = (
        f"{repelling}: the gain is right layer by layer and the fixed point repels, so a deep "
        "plain network "
        "leaves it; use few layers, normalisation, or a rectifier"
    )
    failed = [
        Text(f"{name} cannot be measured: {error}") for name, error in numbers["failed"].items()
    ]
    return Group(
        _table(title, (*columns, *ends), rows),
        Text(advice if repelling else "no fixed point here repels"),
        *failed,
    )


def _ends(measured: Numbers | None) -> Numbers:
    return {key: measured and measured[key] for key in ("mean", "spread")}


def _spread(mean: float | None, spread: float | None) -> str:
    return _number(mean) + ("" if spread is None else f" ± {spread:.2f}")


def phase(numbers: Numbers) -> Group:
    """What He's point is, and some points of the edge of chaos."""
    he, edge = numbers["he"], numbers["edge"]
    rows = [
        ("weight variance n Var[w] = 1/E[f²]", _number(he["weight_variance"], 4)),
        ("χ₁, the slope of the correlation map at 1", _number(he["chi_1"], 4)),
        ("phase", he["phase"]),
        ("slope of the variance map", _number(he["variance_slope"], 4)),
        ("layers in which an error of the variance falls to 1/e", _layers(he["variance_scale"])),
        (
            "layers in which a difference of correlation falls to 1/e",
            _layers(he["correlation_scale"]),
        ),
    ]
    points = [
        (_number(q, 4), _number(weight, 4), _number(bias, 4))
        for weight, bias, q in edge[:: len(edge) // 12 + 1]
    ]
    return Group(
        _table(f"He's point of {numbers['activation']}, biases 0, E[y²] = 1", ("", "value"), rows),
        Text(_to_the_edge(he)),
        _table("edge of chaos", ("E[y²]", "n Var[w]", "Var[b]"), points),
    )


def _layers(scale: float | None) -> str:
    return "without end" if scale is None else f"{scale:.1f}"


def _to_the_edge(he: Numbers) -> str:
    if he["phase"] == "critical":
        return (
            "He's point lies on the edge of chaos: gradients keep their size, and inputs "
            "stay as different as they can"
        )
    if he["edge"] is None:
        return (
            "He's point lies on the ordered side, and no biases bring the same E[y²] to the "
            "edge of chaos"
        )
    weight, bias = he["edge"]
    return (
        f"He's point lies on the chaotic side; with the same E[y²] the edge of chaos lies at "
        f"{weight / he['weight_variance']:.3f} times its weight variance, with biases of "
        f"variance {bias:.4f}"
    )


def responses(numbers: Numbers) -> Group:
    """A line per layer."""
    rows = []
    for layer in numbers["layers"]:
        slopes, share = layer["slopes"], f"{100 * layer['active_share']:.1f}"
        texts = ("-",) * 4
        if slopes:
            quartiles = (
                f"{slopes['quarter']:.3f} {slopes['median']:.3f} {slopes['three_quarters']:.3f}"
            )
            ends = f"{slopes['least']:.3f} to {slopes['most']:.3f}"
            texts = (f"{slopes['mean']:.3f}", f"{slopes['std']:.3f}", quartiles, ends)
        means = (f"{layer['mean']:.4f}", f"{layer['std']:.4f}", _number(layer["mean_over_std"]))
        rows.append((layer["layer"], *means, share, f"{layer['dead']} of {layer['units']}", *texts))
    columns = (
        "layer",
        "mean",
        "std",
        "mean / std",
        "above 0, %",
        "dead",
        "slope",
        "its std",
        "quartiles",
        "range",
    )
    dead, units = (sum(layer[key] for layer in numbers["layers"]) for key in ("dead", "units"))
    title = (
        f"run {numbers['run']}: responses to all {numbers['images']:,} training images "
        "after the last epoch"
    )
    return Group(
        _table(title, columns, rows),
        Text(
            f"dead: {dead} of {units} units ({100 * dead / max(1, units):.1f} %) are above 0 "
            "for no training image"
        ),
    )


def histograms(numbers: Numbers) -> Group:
    """The spread of activations and gradients, a column per step."""
    shots = numbers["snapshots"]
    columns = ("layer", *(f"step {shot['step']}" for shot in shots))
    tables = [
        _table(
            f"std of {what}",
            columns,
            [
                (layer["layer"], *(f"{shot['layers'][i][what]['std']:.3g}" for shot in shots))
                for i, layer in enumerate(shots[0]["layers"])
            ],
        )
        for what in ("activations", "gradients")
    ]
    finished = f"val top-1 error at its end {_number(numbers['error_pct'])} %"
    return Group(*tables, Text("it diverged" if numbers["status"] == "diverged" else finished))


FISHER = {
    "output_units": "units",
    "first": "first",
    "output": "output",
    "cross": "cross",
    "off_over_diagonal": "off/diag",
    "largest_over_mean": "largest/mean",
    "effective_rank": "eff. rank",
    "natural_angle": "angle °",
}


def fisher(numbers: Numbers) -> Group:
    """A table per step: every measure of every arm, and how far its `units` are from the first
    arm's, by seed."""
    arms = numbers["arms"]
    tables = []
    for step in sorted({step["step"] for arm in arms for step in arm["steps"]}):
        at_step = {
            arm["arm"]: measured
            for arm in arms
            for measured in arm["steps"]
            if measured["step"] == step
        }
        rows = [(arm["arm"], *_measures(at_step.get(arm["arm"]))) for arm in arms]
        n = max(measured["measures"]["output"]["n"] for measured in at_step.values())
        title = f"step {step}, {n} seeds: mean ± half of the 95 % interval"
        tables.append(_table(title, ("arm", *FISHER.values(), "units - first arm's"), rows))
    ideals = ", ".join(f"{arm['arm']} {arm['ideal']:.3f}" for arm in arms)
    return Group(
        *tables, Text(f"units, if the hidden units were independent at the start: {ideals}")
    )


def _measures(measured: Numbers | None) -> list[str]:
    if measured is None:
        return ["diverged"] * (len(FISHER) + 1)
    difference = (measured["against_first"] or {}).get("output_units")
    means = [*(measured["measures"][key] for key in FISHER), difference]
    return [
        _mean(mean, digits=3 if mean is None or abs(mean["mean"]) < 10 else 1) for mean in means
    ]


def preprocessing(numbers: Numbers) -> Group:
    """What k components keep."""
    rows = [
        (k, f"{100 * share:.2f}", f"{numbers['error'][k]:.4f}")
        for k, share in numbers["explained"].items()
    ]
    title = (
        f"{numbers['dimensions']} numbers per image, {numbers['training_images']:,} training images"
    )
    text = (
        f"99 % of the variance is in {numbers['components_for_99_pct']} components; the "
        "largest variance is "
        f"{numbers['largest_over_mean']:.1f} times the mean of all"
    )
    return Group(
        _table(title, ("components", "variance kept, %", "error, white pixel = 1"), rows),
        Text(text),
    )
