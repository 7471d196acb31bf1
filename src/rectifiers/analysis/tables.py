"""What the analyses found, as tables for the terminal."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=Text(title, style="bold"), title_justify="left")  # Text: [y²] is no markup
    for i, column in enumerate(columns):
        table.add_column(Text(column), justify="right" if i else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _mean(found: dict[str, Any] | None, none: str = "-") -> str:
    """A mean and half its 95 % interval."""
    if found is None:
        return none
    half = "" if found["low"] is None else f" ± {found['high'] - found['mean']:.2f}"
    return f"{found['mean']:.2f}{half}"


def propagation(numbers: dict[str, Any]) -> Group:
    """Every layer's second moments beside the theory's, where the difference comes from, and the whole."""
    layers, total = numbers["layers"], numbers["total"]
    theory = [layer["theory"] or {} for layer in layers]
    moments = _table(
        "log10 of E[y²] and E[Δy²]: measured (± half of its 95 % interval), Eq. 9 and 13, and the same on maps",
        ("layer", "n", "n̂", "std", "map", "E[y²]", "Eq. 9", "on maps", "E[Δy²]", "Eq. 13", "on maps"),
        [
            (
                layer["layer"],
                f"{layer['fan_in']:,}",
                f"{layer['fan_out']:,}",
                f"{layer['std']:.4g}",
                "-" if layer["map_px"] is None else str(layer["map_px"]),
                _mean(layer["response_second"], "none"),
                _number(said.get("response")),
                _number(said.get("response_on_maps")),
                _mean(layer["gradient_second"], "none"),
                _number(said.get("gradient")),
                _number(said.get("gradient_on_maps")),
            )
            for layer, said in zip(layers, theory, strict=True)
        ],
    )
    return Group(moments, Text(_forward_in_words(total, layers)), Text(_backward_in_words(total)))


def _factor(log10: float, steps: int) -> str:
    return f"10^{log10:.2f} = {10 ** (log10 / steps):.3f}^{steps}"


def _forward_in_words(total: dict[str, Any], layers: list[dict[str, Any]]) -> str:
    forward, steps = total["forward"], total["steps"]
    if forward["measured"] is None:
        dead = next((layer["layer"] for layer in layers if layer["response_second"] is None), "the first layer")
        return f"forward: from {dead} on the responses are zero or beyond a double, so there is no factor"
    text = f"forward over {steps} steps: measured {_factor(forward['measured']['mean'], steps)}"
    if forward["theory"] is not None:
        text += f", Eq. 9 says {_factor(forward['theory'], steps)}"
    sums = {key: sum(layer["effects"][key] or 0 for layer in layers[1:]) for key in ("pooling", "border", "draw")}
    text += (
        f"\n  of the difference, in log10: borders {sums['border']:+.2f}, maximum pooling {sums['pooling']:+.2f}, "
        "the rest is this width's"
    )
    if forward["width_drift"] is not None:
        text += (
            f" (theory: {forward['width_drift']:+.2f} ± {forward['width_spread']:.2f} a draw, if all images and places "
            "were alike)"
        )
    return text


def _backward_in_words(total: dict[str, Any]) -> str:
    backward, steps = total["backward"], total["steps"]
    if backward["measured"] is None:
        return "backward: the gradients at the first layer are zero or beyond a double, so there is no factor"
    text = f"backward over {steps} steps: measured {_factor(backward['measured']['mean'], steps)}"
    if backward["theory"] is not None:
        text += f", Eq. 13 says {_factor(backward['theory'], steps)}, with borders and pooling "
        text += _factor(backward["on_maps"], steps)
    return text


def gain(numbers: dict[str, Any]) -> Group:
    """A line an activation."""
    depth = numbers["asked"]["depth"]
    rows = [
        (
            row["activation"],
            _number(row["forward_gain2"], 4),
            _number(row["backward_gain2"], 4),
            _number(row["chi"], 3),
            _number(row["map_slope"], 3),
            row["fixed_point"] or "-",
            "-" if row["predicted_spread"] is None else f"{row['predicted_drift']:.2f} ± {row['predicted_spread']:.2f}",
            _spread(row["forward"]),
            _number(row["predicted_backward"]),
            _spread(row["backward"]),
        )
        for row in numbers["rows"]
    ]
    columns = ("activation", "1/E[f²]", "1/E[f'²]", "χ", "map slope", "fixed point")
    ends = ("E[y²] predicted", "measured", "gradient predicted", "measured")
    title = f"gains; and log10 of what {depth} layers with 1/E[f²] make of a signal, mean and std over draws"
    repelled = [row["activation"] for row in numbers["rows"] if row["fixed_point"] == "repels"]
    told = (
        f"{', '.join(repelled)}: the gain is right layer by layer and the fixed point repels, so a deep plain network "
        "leaves it; use few layers, normalisation, or a rectifier"
        if repelled
        else "no fixed point here repels"
    )
    return Group(_table(title, (*columns, *ends), rows), Text(told))


def _spread(found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    return f"{found['mean']:.2f}" + ("" if found["spread"] is None else f" ± {found['spread']:.2f}")


def responses(numbers: dict[str, Any]) -> Group:
    """A line a layer."""
    rows = []
    for layer in numbers["layers"]:
        slopes = layer["slopes"]
        told = ("-",) * 4
        if slopes:
            quartiles = f"{slopes['quarter']:.3f} {slopes['median']:.3f} {slopes['three_quarters']:.3f}"
            ends = f"{slopes['least']:.3f} to {slopes['most']:.3f}"
            told = (f"{slopes['mean']:.3f}", f"{slopes['std']:.3f}", quartiles, ends)
        answers = (f"{layer['mean']:.4f}", f"{layer['std']:.4f}", _number(layer["mean_over_std"]))
        active = (f"{100 * layer['active_share']:.1f}", f"{layer['dead']} of {layer['units']}")
        rows.append((layer["layer"], *answers, *active, *told))
    columns = ("layer", "mean", "std", "mean / std", "above 0, %", "dead", "slope", "its std", "quartiles", "range")
    dead, units = (sum(layer[key] for layer in numbers["layers"]) for key in ("dead", "units"))
    title = f"run {numbers['run']}: responses to all {numbers['images']:,} training images after the last epoch"
    return Group(
        _table(title, columns, rows),
        Text(f"dead: {dead} of {units} units ({100 * dead / max(1, units):.1f} %) are above 0 for no training image"),
    )


def histograms(numbers: dict[str, Any]) -> Group:
    """The spread of activations and gradients, a column a step."""
    shots = numbers["snapshots"]
    steps = [f"step {shot['step']}" for shot in shots]
    tables = []
    for what in ("activations", "gradients"):
        rows = [
            (layer["layer"], *(f"{shot['layers'][i][what]['std']:.3g}" for shot in shots))
            for i, layer in enumerate(shots[0]["layers"])
        ]
        tables.append(_table(f"std of {what}", ("layer", *steps), rows))
    error = numbers["error_pct"]
    end = "it diverged" if numbers["status"] == "diverged" else f"val top-1 error at its end {error:.2f} %"
    return Group(*tables, Text(end))


def fisher(numbers: dict[str, Any]) -> Group:
    """A table a step: every measure of every arm, and how far its `units` are from the first arm's, by seed."""
    columns = (
        "arm", "units", "first", "output", "cross", "off/diag", "largest/mean", "eff. rank", "angle °",
        "units - first arm's",
    )  # fmt: skip
    keys = (
        "output_units", "first", "output", "cross", "off_over_diagonal", "largest_over_mean", "effective_rank",
        "natural_angle",
    )  # fmt: skip
    tables = []
    for step in sorted({step["step"] for arm in numbers["arms"] for step in arm["steps"]}):
        rows = []
        for arm in numbers["arms"]:
            found = next((each for each in arm["steps"] if each["step"] == step), None)
            if found is None:
                rows.append((arm["arm"], *["diverged"] * 9))
                continue
            difference = found["against_first"] and found["against_first"]["output_units"]
            cells = [_three(found["measures"][key]) for key in keys]
            rows.append((arm["arm"], *cells, _three(difference) if difference else "-"))
        n = max(m["measures"]["output"]["n"] for arm in numbers["arms"] for m in arm["steps"] if m["step"] == step)
        tables.append(_table(f"step {step}, {n} seeds: mean ± half of the 95 % interval", columns, rows))
    ideals = ", ".join(f"{arm['arm']} {arm['ideal']:.3f}" for arm in numbers["arms"])
    return Group(*tables, Text(f"units, if the hidden units were independent at the start: {ideals}"))


def _three(found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    digits = 3 if abs(found["mean"]) < 10 else 1
    half = "" if found["low"] is None else f" ± {found['high'] - found['mean']:.{digits}f}"
    return f"{found['mean']:.{digits}f}{half}"


def preprocessing(numbers: dict[str, Any]) -> Group:
    """What k components keep."""
    rows = [(k, f"{100 * share:.2f}", f"{numbers['error'][k]:.4f}") for k, share in numbers["explained"].items()]
    title = f"{numbers['dimensions']} numbers an image, {numbers['training_images']:,} training images"
    told = (
        f"99 % of the variance is in {numbers['components_for_99_pct']} components; the largest variance is "
        f"{numbers['largest_over_mean']:.1f} times the mean of all"
    )
    return Group(_table(title, ("components", "variance kept, %", "error, white pixel = 1"), rows), Text(told))
