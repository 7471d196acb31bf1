"""A run's record as tables on the terminal."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rectifiers.results.origin import code_of, machine_of
from rectifiers.results.paper import table_1_slopes
from rectifiers.results.statistics import error_interval_pct
from rectifiers.runs.record import EnsembleRecord, Record, TrainingRecord
from rectifiers.runs.record_parts import ProtocolResult, Slopes
from rectifiers.runs.sections import MULTISTEP, PLATEAU
from rectifiers.runtime.console import styled, table
from rectifiers.runtime.schema import value_at

PAPERS_MODEL = "small14"  # Table 1's, also for smaller images
BAR = 36  # characters; a line has 80


def print_record(record: Record, console: Console) -> None:
    """Print a run's code, machine, errors, size, effort, and what its activations learned; of an
    ensemble its runs and errors."""
    origin = styled(f"code {code_of(record)} on {machine_of(record)}")
    if isinstance(record, EnsembleRecord):
        runs = ", ".join(member.run for member in record.members)
        head = Text(f"ensemble {record.run} of {runs}", style="bold")
        console.print(head, origin, errors_table(record.protocols))
        return

    groups = [name for name in ("model", "activation", "init", "data") if name in record.choices]
    title = " ".join(f"{name}={record.choices[name]}" for name in groups)
    head = styled(f"run {record.run}  {title}  seed={record.seed}", style="bold")
    console.print(head, origin, sep="\n")

    if record.diverged:
        where = f"diverged at step {record.diverged.step}, first seen at {record.diverged.layer}"
        console.print(styled(where, style="red"))
    if record.protocols:
        console.print(errors_table(record.protocols))
    console.print(*map(styled, effort(record).splitlines()), sep="\n")
    if record.slopes:
        console.print(slopes_table(record.slopes))
    if record.activation_parameters:
        console.print(parameters_table(record.activation_parameters))


def errors_table(protocols: Mapping[str, ProtocolResult]) -> Table:
    """Return one line per protocol: errors in percent with their interval, and the images."""
    rows = []
    for name in sorted(protocols):
        result = protocols[name]
        low, high = error_interval_pct(result.top1_errors, result.num_images)
        top5 = "-" if result.top5_error_pct is None else f"{result.top5_error_pct:.2f}"
        errors = (f"{result.top1_error_pct:.2f}", f"{low:.2f} to {high:.2f}", top5)
        rows.append((name, *errors, f"{result.num_images:,} of {result.split}"))
    head = ("protocol", "top-1 error %", "95 % interval", "top-5 error %", "images")
    return table(head, rows)


def effort(record: TrainingRecord) -> str:
    """Return the network's size and the cost of training in a few lines."""
    network, planned = record.network, record.science["trainer"]["max_epochs"]
    weights = network.parameters - network.slopes
    slopes = f" + {network.slopes:,} slopes" if network.slopes else ""
    drops = ", ".join(str(epoch) for epoch in record.drop_epochs) or "none"
    has_drops = value_at(record.science, "scheduler._target_") in (PLATEAU, MULTISTEP)
    dropped = f"learning rate dropped after epoch: {drops}; " if has_drops else ""
    speed = record.images_per_second
    rate = f", {speed:,.0f} training images per second" if speed else ""
    return (
        f"{network.depth} layers, {weights:,} parameters{slopes}\n"
        f"{network.multiply_adds:,} MACs per {network.input_px} x {network.input_px} image\n"
        f"{record.epochs} of {planned} epochs of {_images_per_epoch(record)}\n"
        f"{dropped}validated on {record.images.val:,} images\n"
        f"{record.wall_s:.0f} s{rate}"
    )


def _images_per_epoch(record: TrainingRecord) -> str:
    size = value_at(record.science, "data.batch_size")
    if batches := value_at(record.science, "trainer.overfit_batches"):
        return f"the same {batches} batches of {size} images"

    images = f"{record.images.train:,} images"
    if str(record.choices.get("model")).startswith(PAPERS_MODEL):
        images += " (paper: 75 epochs of ImageNet)"
    limit = value_at(record.science, "trainer.limit_train_batches")
    if isinstance(limit, int):
        return f"{limit} batches of {size} images"
    return f"{limit:.0%} of {images}" if isinstance(limit, float) else images


def slopes_table(slopes: Mapping[str, Slopes]) -> Table:
    """Return one line per layer: the learned slope as number and bar, and that of Table 1 where
    the layers are those of its network."""
    shared = all(slope.channels == 1 for slope in slopes.values())
    paper = table_1_slopes(shared)
    if slopes.keys() != paper.keys():
        paper = {}
    values = [slope.mean for slope in slopes.values()] + list(paper.values())
    low, high = min(0.0, *values), max(values)

    numbers = ("slope",) if shared else ("mean slope", "std")
    papers = ("paper's",) if paper else ()
    legend = f"= this run, {'o Table 1, ' if paper else ''}from {low:.2g} to {high:.2g}"
    rows = []
    for layer, slope in slopes.items():
        cells = [f"{slope.mean:.3f}"] if shared else [f"{slope.mean:.3f}", f"{slope.std:.3f}"]
        if paper:
            cells.append(f"{paper[layer]:.3f}")
        rows.append((layer, *cells, bar(slope.mean, paper.get(layer), low, high)))
    made = table(("layer", *numbers, *papers, legend), rows)
    made.columns[-1].no_wrap = True
    return made


def parameters_table(parameters: Mapping[str, Slopes]) -> Table:
    """Return one line per learned parameter of an activation: its values over the channels."""
    rows = []
    for name, spread in parameters.items():
        numbers = (spread.mean, spread.std, spread.min, spread.max)
        rows.append((name, *(f"{number:.3g}" for number in numbers), f"{spread.channels:,}"))
    return table(("learned parameter", "mean", "std", "smallest", "largest", "values"), rows)


def bar(slope: float, paper: float | None, low: float, high: float) -> str:
    """Return a bar from `low` to `slope`, with a mark at the paper's; BAR characters reach
    `high`."""
    per_character = (high - low) / BAR or 1.0
    drawn = list(("=" * round((slope - low) / per_character)).ljust(BAR + 1))
    if paper is not None:
        drawn[round((paper - low) / per_character)] = "o"
    return "".join(drawn).rstrip()
