"""A run's record as tables on the terminal."""

from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from rectifiers.results.origin import code_of, machine_of
from rectifiers.results.paper import table_1_slopes
from rectifiers.results.statistics import error_interval_pct


def print_record(record: dict[str, Any], console: Console) -> None:
    """Print what a run found, and by which code on which machine: errors, size, effort, slopes beside the paper's.

    Of an ensemble: its errors, and which runs it is made of.
    """
    origin = Text(f"code {code_of(record)} on {machine_of(record)}")
    if "members" in record:
        runs = ", ".join(member["run"] for member in record["members"])
        head = Text(f"ensemble {record['run']} of {runs}", style="bold")
        console.print(head, origin, errors_table(record["protocols"]))
        return
    choices = record["choices"]
    title = " ".join(
        f"{group}={choices[group]}" for group in ("model", "activation", "init", "data") if group in choices
    )
    parts: list[Any] = [Text(f"run {record['run']}  {title}  seed={record['science']['seed']}", style="bold"), origin]
    if record["status"] == "diverged":
        where = record["diverged"]
        parts.append(Text(f"diverged at step {where['step']}, first seen at {where['layer']}", style="red"))
    if record["protocols"]:
        parts.append(errors_table(record["protocols"]))
    parts.append(Text(effort(record)))
    if record["slopes"]:
        parts.append(slopes_table(record["slopes"]))
    console.print(Group(*parts), highlight=False)


def errors_table(protocols: dict[str, Any]) -> Table:
    """One line a protocol: errors in percent with their interval, and how many images were seen."""
    table = Table()
    for column in ("protocol", "top-1 error %", "95 % interval", "top-5 error %", "images seen"):
        table.add_column(column, justify="left" if column == "protocol" else "right")
    for name in sorted(protocols):
        result = protocols[name]
        low, high = error_interval_pct(result["seen"] - result["top1_correct"], result["seen"])
        top5 = "-" if result["top5_error_pct"] is None else f"{result['top5_error_pct']:.2f}"
        table.add_row(name, f"{result['top1_error_pct']:.2f}", f"{low:.2f} to {high:.2f}", top5, f"{result['seen']:,}")
    return table


def effort(record: dict[str, Any]) -> str:
    """What the network is and what the training cost, in a few lines."""
    network, optim = record["network"], record["science"]["optim"]
    weights = network["parameters"] - network["slopes"]
    slopes = f" + {network['slopes']:,} slopes" if network["slopes"] else ""
    drops = ", ".join(str(epoch) for epoch in record["drop_epochs"]) or "none"
    speed = record["images_per_second"]
    rate = f", {speed:,.0f} training images a second" if speed else ""
    return (
        f"{network['depth']} layers, {weights:,} parameters{slopes}\n"
        f"{network['multiply_adds']:,} multiply-adds an image of {network['input_px']} x {network['input_px']}\n"
        f"{record['epochs']} of {optim['epochs']} epochs of {record['train_images']:,} images "
        f"(the paper: 75 of ImageNet)\n"
        f"learning rate dropped after epoch: {drops}\n"
        f"{record['wall_s']:.0f} s{rate}"
    )


def slopes_table(slopes: dict[str, Any]) -> Table:
    """One line a layer: the learned slope, and Table 1's for the layer of that name."""
    shared = all(slope["channels"] == 1 for slope in slopes.values())
    paper = table_1_slopes(shared)
    table = Table()
    table.add_column("layer")
    table.add_column("slope" if shared else "mean slope", justify="right")
    if not shared:
        table.add_column("over channels, std", justify="right")
    table.add_column("paper's Table 1", justify="right")
    for layer, slope in slopes.items():
        row = [layer, f"{slope['mean']:.3f}"]
        row += [] if shared else [f"{slope['std']:.3f}"]
        table.add_row(*row, f"{paper[layer]:.3f}" if layer in paper else "-")
    return table
