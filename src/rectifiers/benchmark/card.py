"""One card: what an activation and an initialiser are worth, by theory, at the start, in small
chains and on the tasks, as Markdown with a figure.

The measured parts are plain dictionaries of `rectifiers.analysis.card`. Each is kept in `cache_dir`
as soon as it is done, so an interrupted card goes on."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rectifiers.benchmark import ranking
from rectifiers.benchmark.definition import Entry, benchmark
from rectifiers.benchmark.ranking import BASELINES, difference_text, score_text, scores_of
from rectifiers.benchmark.run import MAX_BYTES, EntryResults, refusal
from rectifiers.cli.composition import compose_job
from rectifiers.results.documents import markdown, write_svg
from rectifiers.runs.config import RunConfig
from rectifiers.runs.identity import run_id
from rectifiers.runs.provenance import code_fingerprint
from rectifiers.runtime.console import printable
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import read_bytes, write_text
from rectifiers.runtime.processor import name as processor_name
from rectifiers.runtime.signals import deferring_signals, stop_if_requested

PARTS = ("paper", "start", "trains", "cost")  # what is measured besides the runs
DEEP, TIMED = "deep50", "chain14"  # the tasks whose network starts, and whose steps are timed
TITLES = {"relu": "ReLU", "prelu": "PReLU"}
MEASURED, THEORY, DERIVATIVE = "#1b6ca8", "#444444", "#c8553d"
GUESSING = math.log(10)  # nats, the loss at which the colours end
DEPTH_SCALES = 6  # about as deep as chains train (Schoenholz et al. 2017)
ROUNDING = 1e-9  # smaller numbers are 0 but for rounding
PAPER = {
    "weight_variance": "n Var[w] of the initialiser",
    "gain": "gain, 1/sqrt(E[f²])",
    "chi": "χ, factor on gradients per layer with that gain",
    "map_slope": "slope of the variance map",
    "fixed_point_word": "the variance that the gain keeps: attracts, repels or is neutral",
    "fixed_point": "fixed point of the variance",
    "chi_1": "χ₁ there",
    "phase": "phase there",
    "correlation_fixed_point": "fixed point of the correlation",
    "variance_depth": "depth scale of the variance, layers",
    "correlation_depth": "depth scale of the correlation, layers",
    "flat_share": "share of N(0, 1) where f' lies within ±0.05",
}
SIGNAL = {
    "kept": "log10 E[y²] from 1",
    "off": "from 1.1",
    "gradient": "log10 of the gradients left",
}


@dataclass(frozen=True)
class Chapter:
    """A titled part of a card: sentences, then tables."""

    title: str
    text: Sequence[str] = ()
    tables: Sequence[pd.DataFrame] = ()


@dataclass(frozen=True)
class Card:
    """A card's numbers. parts: what was measured, by `paper`, `start`, `trains` and `cost`; failed:
    why a part was not. baselines: the results of ReLU and PReLU where there are any."""

    results: EntryResults
    baselines: Mapping[str, EntryResults]
    parts: Mapping[str, dict[str, Any]]
    failed: Mapping[str, str]

    def chapters(self) -> list[Chapter]:
        """Return the parts in the order of reading, the headline numbers first."""
        makers = {"paper": _paper, "start": _start, "trains": _trains, "cost": _cost}
        chapters = {
            name: make(self.parts[name])
            if name in self.parts
            else Chapter(name.capitalize(), [f"Not measured: {self.failed[name]}"])
            for name, make in makers.items()
        }
        cost = chapters.pop("cost")
        return [_headline(self), *chapters.values(), _tasks(self), cost]

    def facts(self) -> str:
        """Return what made the card, in one line."""
        command = f"python scripts/benchmark.py {' '.join(self.results.overrides)}"
        machine = f"code {code_fingerprint()} on {processor_name()}, {os.cpu_count()} cores"
        return f"Benchmark {benchmark().version} ({benchmark().hash}), `{command}`, {machine}."

    def markdown(self) -> str:
        """Return the card as Markdown; its figure lies beside it."""
        name = self.results.entry
        parts = [f"# {name}", self.facts(), f"![{name}]({name}.svg)"]
        for chapter in self.chapters():
            tables = (markdown(list(t.columns), t.to_numpy().tolist()) for t in chapter.tables)
            parts += [f"## {chapter.title}", *chapter.text, *(t.rstrip("\n") for t in tables)]
        return "\n\n".join(parts) + "\n"

    def write(self, folder: Path) -> list[Path]:
        """Write <entry>.md and .svg into `folder`; return their paths."""
        name = self.results.entry
        paths = [folder / f"{name}{suffix}" for suffix in (".md", ".svg")]
        write_text(paths[0], self.markdown())
        write_svg(figure(self), paths[1], name)
        return paths


def measure(entry: Entry) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return the measured parts of an entry's card, and for the others why they were not measured.

    Raises:
        Stopped: where a signal asked for it; the same call goes on with the next part.
    """
    from rectifiers.training.lightning import isolated

    parts, failed = {}, {}
    config = entry.config(benchmark().tasks[DEEP])
    with deferring_signals(), isolated(config):
        reason = refusal(config)
        for name in PARTS:
            try:
                if reason is not None:
                    raise InputError(reason)
                parts[name] = _cached(name, entry, config)
            except InputError as error:
                failed[name] = printable(str(error))
            stop_if_requested("while the card was measured")
    return parts, failed


def _cached(name: str, entry: Entry, config: RunConfig) -> dict[str, Any]:
    """Return a part from the cache, whose key is the entry's settings and the code, or measure
    it."""
    groups = {"entry": config.activation.as_dict(), "init": config.init.as_dict()}
    key = run_id({**groups, "code": code_fingerprint()})
    path = config.cache_dir / "cards" / f"{name}-{key}.json"
    if not path.is_file():
        write_text(path, json.dumps(_measure(name, entry, config), allow_nan=False))
    part: dict[str, Any] = json.loads(read_bytes(path, MAX_BYTES))
    return part


def _measure(name: str, entry: Entry, config: RunConfig) -> dict[str, Any]:
    """Return a part of an entry's card; `config` is that of the deep task."""
    from rectifiers.analysis.card import cost, paper, start, trainability

    if name == "paper":
        chain = trainability.Chain(config)
        return paper.theory_section(chain.activation, chain.weight_variance)
    if name == "start":
        return start.init_section(config)
    if name == "trains":
        depths = {*trainability.MAP_DEPTHS, *trainability.RATE_DEPTHS}
        return trainability.trainability_section(
            {depth: _chain(entry, depth) for depth in sorted(depths)}
        )
    task, relu = benchmark().tasks[TIMED], Entry((f"activation={cost.BASELINE}",), entry.places)
    return cost.cost({"entry": entry.config(task), cost.BASELINE: relu.config(task)})


def _chain(entry: Entry, depth: int) -> RunConfig:
    """Return the configuration of a chain of `depth` layers, otherwise as the deep task has it."""
    task = benchmark().tasks[DEEP]
    overrides = entry.run_overrides(task, task.rates[0], seed=0)
    others = (override for override in overrides if not override.startswith("model.depth="))
    return compose_job((*others, f"model.depth={depth - 1}"))[0]


def _headline(card: Card) -> Chapter:
    """The probabilities of improvement over the baselines, and what limits them."""
    results, rows = card.results, []
    for base in (base for base in card.baselines if base != results.entry):
        if (pair := ranking.improvement(results, card.baselines[base])) is not None:
            tasks, chance = pair
            label = f"probability to beat {TITLES[base]} (95 %)"
            rows.append([label, str(chance), chance.verdict, str(tasks)])
    text = [] if rows else ["No results of ReLU or PReLU to compare with: run these, too."]
    text += [f"{task}: {gap}." for task in results.tasks() if (gap := results.gap(task))]
    if judged := [run for task in results.tasks() for run in results.judged(task)]:
        lost = f"{sum(run.diverged for run in judged)} of {len(judged)}"
        rows.append(["judged runs that diverged", lost, "-", str(len(results.tasks()))])
    return Chapter("Headline", text, [pd.DataFrame(rows, columns=["", "", "verdict", "tasks"])])


def _tasks(card: Card) -> Chapter:
    results, rows = card.results, []
    tasks = {name: benchmark().tasks[name] for name in results.tasks()}
    scores = scores_of(results, tasks)
    for name, values in scores.items():
        task, rate = tasks[name], results.rate(name)
        end = ", an end of the grid" if rate in (min(task.rates), max(task.rates)) else ""
        spread = "" if task.reach else f" [{min(values):.2f} to {max(values):.2f}]"
        row = [name, f"{score_text(task, values)}{spread}", f"{rate:g}{end}"]
        for base in BASELINES:
            other = card.baselines.get(base)
            others = scores_of(other, {name: task}) if other and base != results.entry else {}
            row.append(difference_text(task, values, others[name]) if others else "-")
        rows.append(row)
    head = ["task", "error on test, %, or seeds that train", "rate"]
    head += [f"minus {base} (95 %)" for base in BASELINES]
    text = (
        f"At its own best learning rate, {benchmark().seeds} seeds, paired with ReLU and PReLU at "
        "theirs; in brackets the least and the largest of the seeds."
    )
    return Chapter("How well", [text], [pd.DataFrame(rows, columns=head)])


def _number(value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or "-"
    return f"{0.0 if abs(value) < ROUNDING else value:.3g}"


def _paper(part: dict[str, Any]) -> Chapter:
    named = [[title, _number(part[key])] for key, title in PAPER.items()]
    tables = [pd.DataFrame(named, columns=["wide chains, no biases", ""])]
    if part["signal"]:
        correlations = part["correlations"] or {}
        rows = [
            [depth, *(_number(row[key]) for key in SIGNAL), _number(correlations.get(depth))]
            for depth, row in part["signal"].items()
        ]
        head = ["layers", *SIGNAL.values(), "correlation of two inputs"]
        tables.append(pd.DataFrame(rows, columns=head))
    text = [f"Unknown beyond this: {part['unknown']}."] if part["unknown"] else []
    return Chapter("On paper", text, tables)


def _start(part: dict[str, Any]) -> Chapter:
    layers, rows = part["layers"], []
    for place in sorted({0, *(k * len(layers) // 4 for k in (1, 2, 3)), len(layers) - 1}):
        layer = layers[place]
        forward = [_mean(layer["measured"]), _number(layer["theory"])]
        backward = [_mean(layer["gradient"]), _number(layer["theory_gradient"])]
        rows.append([str(place + 1), *forward, _number(layer["width_drift"]), *backward])
    head = ["layer", "log10 E[y²], measured", "theory", "finite width adds"]
    text = (
        f"A chain of {len(layers)} layers of {part['width']} units on {part['images']} images, "
        f"{part['seeds']} draws with 95 % intervals; the last layer's gradient is 1. Theory is of "
        "infinite width."
    )
    table = pd.DataFrame(rows, columns=[*head, "log10 E[Δy²], measured", "theory"])
    return Chapter("At the start", [text], [table])


def _mean(mean: Mapping[str, Any] | None) -> str:
    if mean is None or mean["low"] is None:
        return "gone" if mean is None else _number(mean["mean"])
    return f"{_number(mean['mean'])} ({mean['low']:.3g} to {mean['high']:.3g})"


def _trains(part: dict[str, Any]) -> Chapter:
    tables = []
    for rows, depths, axis, title in (
        ("losses", "depths", "gains", "layers \\ gain"),
        ("rate_losses", "rate_depths", "rates", "layers \\ learning rate"),
    ):
        cells = [
            [str(depth), *("diverged" if loss is None else f"{loss:.2f}" for loss in losses)]
            for depth, losses in zip(part[depths], part[rows], strict=True)
        ]
        if axis == "gains" and part["depth_scales"]:
            scales = ("∞" if scale is None else f"{scale:.2g}" for scale in part["depth_scales"])
            cells.append(["depth scale", *scales])
        tables.append(pd.DataFrame(cells, columns=[title, *map("{:g}".format, part[axis])]))
    rates = " and ".join(f"{rate:g}" for rate in part["map_rates"])
    text = (
        f"The training loss after {part['steps']} steps of SGD on real images, one draw; guessing "
        f"has 2.30, and below {part['trained_below']:g} a chain counts as trained. By gain, times "
        f"the initialiser's weights, at the first of the rates {rates} that trains it; the depth "
        "scale is the theory's, 1/|ln χ₁| layers."
    )
    return Chapter("What trains", [text], tables)


def _cost(part: dict[str, Any]) -> Chapter:
    ratio = part["seconds_ratio"]
    quartiles = f"quartiles {ratio['low']:.2f} to {ratio['high']:.2f}, {ratio['rounds']} rounds"
    rows = [
        ["seconds of a training step, interleaved", f"{ratio['median']:.2f} ({quartiles})"],
        ["memory of a training step", f"{part['bytes_ratio']:.2f}"],
    ]
    return Chapter("What it costs", (), [pd.DataFrame(rows, columns=["over ReLU's", ""])])


def figure(card: Card) -> Figure:
    """Draw a card: the function, a deep chain's start, what trains, and the errors; a part that was
    not measured stays empty."""
    drawn = Figure(figsize=(13, 7), layout="constrained")
    drawn.suptitle(card.results.entry)
    axes, parts = drawn.subplots(2, 3).flat, card.parts
    if curve := parts.get("paper", {}).get("curve"):
        axes[0].plot(curve["z"], curve["f"], color=MEASURED, label="f")
        axes[0].plot(curve["z"], curve["slope"], color=DERIVATIVE, lw=1, label="f'")
        axes[0].set(title="the function", xlabel="y", ylim=(-2, 4))
        axes[0].legend()
    if "start" in parts:
        layers = parts["start"]["layers"]
        _plot_depth(axes[1], layers, "measured", "theory", "responses: log10 E[y²]")
        title = "gradients: log10 E[Δy²], last layer 1"
        _plot_depth(axes[2], layers, "gradient", "theory_gradient", title)
    if part := parts.get("trains"):
        title, below = f"loss after {part['steps']} steps (x: trains)", part["trained_below"]
        _plot_cells(axes[3], part["losses"], part["depths"], part["gains"], below)
        if part["depth_scales"]:
            scales = [math.inf if scale is None else scale for scale in part["depth_scales"]]
            depths, ends = np.log2(part["depths"]), (-0.5, len(part["depths"]) - 0.5)
            x = np.log2(np.maximum(np.multiply(DEPTH_SCALES, scales), 1e-9))
            y = np.interp(x, depths, range(len(depths)), *ends)
            axes[3].plot(range(len(y)), y, color="white", label=f"{DEPTH_SCALES} depth scales")
            axes[3].legend(fontsize=8, facecolor=THEORY, labelcolor="white", loc="upper right")
        axes[3].set(title=title, xlabel="gain, times the initialiser's", ylabel="layers")
        _plot_cells(axes[4], part["rate_losses"], part["rate_depths"], part["rates"], below)
        axes[4].set(title="the same by learning rate", xlabel="learning rate", ylabel="layers")
    _plot_errors(axes[5], {card.results.entry: card.results, **card.baselines})
    return drawn


def _plot_depth(axes: Any, layers: list[dict], key: str, theory: str, title: str) -> None:
    means = {place: layer[key] for place, layer in enumerate(layers, 1) if layer[key]}
    axes.plot(list(means), [m["mean"] for m in means.values()], color=MEASURED, label="measured")
    if all(mean["low"] is not None for mean in means.values()):
        low, high = ([mean[bound] for mean in means.values()] for bound in ("low", "high"))
        axes.fill_between(list(means), low, high, color=MEASURED, alpha=0.2)
    expected = [math.nan if layer[theory] is None else layer[theory] for layer in layers]
    axes.plot(range(1, len(layers) + 1), expected, "--", color=THEORY, label="infinite width")
    axes.set(title=title, xlabel="layer")
    axes.legend(fontsize=8)


def _plot_cells(axes: Any, rows: list[list], depths: list, columns: list, below: float) -> None:
    values = [[GUESSING if loss is None else min(loss, GUESSING) for loss in row] for row in rows]
    axes.imshow(values, cmap="viridis_r", vmin=0, vmax=GUESSING, aspect="auto", origin="lower")
    for y, row in enumerate(rows):
        for x, loss in enumerate(row):
            label = "div" if loss is None else "x" if loss < below else ""
            axes.text(x, y, label, ha="center", va="center", color="white", fontsize=8)
    axes.set_xticks(range(len(columns)), [f"{c:g}" for c in columns], rotation=60, fontsize=8)
    axes.set_yticks(range(len(depths)), depths)


def _plot_errors(axes: Any, entries: Mapping[str, EntryResults]) -> None:
    tasks = {name: task for name, task in benchmark().tasks.items() if task.reach is None}
    scores = {name: scores_of(results, tasks) for name, results in entries.items()}
    names = [name for name in tasks if any(name in values for values in scores.values())]
    for i, (entry, values) in enumerate(scores.items()):
        x = [names.index(name) + 0.2 * (i - 1) for name in values for _ in values[name]]
        y = [score for name in values for score in values[name]]
        axes.plot(x, y, "o", ms=4, alpha=0.7, color=f"C{i}", label=entry)
    axes.set(title="error on test, %, each seed", yscale="log")
    axes.set_xticks(range(len(names)), names, rotation=30, fontsize=8, ha="right")
    axes.legend(fontsize=8)
