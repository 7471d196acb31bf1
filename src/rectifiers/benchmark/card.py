"""One card: what an activation and an initialiser are worth, by theory, at the start and on the
tasks, as Markdown with a figure.

The measured parts are plain dictionaries. Each is cached in `cache_dir` as soon as it is done, so
an interrupted card goes on."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rectifiers.analysis.output import MAPS, MEASURED, THEORY, cell, column, lookup, new_figure
from rectifiers.benchmark import ranking
from rectifiers.benchmark.definition import Entry, benchmark
from rectifiers.benchmark.ranking import BASELINES, difference_text, score_text, scores_of
from rectifiers.benchmark.run import MAX_BYTES, EntryResults, refusal
from rectifiers.results.documents import markdown, write_svg
from rectifiers.runs.config import RunConfig
from rectifiers.runs.identity import run_id
from rectifiers.runs.provenance import code_fingerprint
from rectifiers.runtime.console import printable
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import read_bytes, write_text
from rectifiers.runtime.machine import name as processor_name
from rectifiers.runtime.signals import deferring_signals, stop_if_requested

PARTS = {"theory": "Theory", "init": "At the start", "cost": "What it costs"}  # besides the runs
DEEP, TIMED = "deep50", "chain14"  # the tasks whose network starts, and whose steps are timed
SEEDS = 5  # draws of the network that starts
TITLES = {"relu": "ReLU", "prelu": "PReLU"}
THEORY_ROWS = {
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

INIT_COLUMNS = {
    "response_second": "log10 E[y²], measured",
    "theory.response": "theory",
    "theory.width_drift": "finite width adds",
    "gradient_second": "log10 E[Δy²], measured",
    "theory.gradient": "theory",
}


@dataclass(frozen=True)
class Card:
    """A card's numbers. parts: what was measured, by the names of PARTS; failed: why a part was
    not. baselines: the results of ReLU and PReLU where there are any."""

    results: EntryResults
    baselines: Mapping[str, EntryResults]
    parts: Mapping[str, dict[str, Any]]
    failed: Mapping[str, str]

    def markdown(self) -> str:
        """Return the card as Markdown, the headline first; its figure lies beside it."""
        name, spec = self.results.entry, benchmark()
        command = f"python scripts/benchmark.py {' '.join(self.results.overrides)}"
        machine = f"code {code_fingerprint()} on {processor_name()}, {os.cpu_count()} cores"
        chapters = {"Headline": _headline(self), "How well": _tasks(self)}
        for part, text in (("theory", _theory), ("init", _init), ("cost", _cost)):
            reason = f"Not measured: {self.failed.get(part)}\n"
            chapters[PARTS[part]] = text(self.parts[part]) if part in self.parts else reason
        origin = f"Benchmark {spec.version} ({spec.hash}), `{command}`, {machine}."
        body = "\n".join(f"## {title}\n\n{text}" for title, text in chapters.items())
        return f"# {name}\n\n{origin}\n\n![{name}]({name}.svg)\n\n{body}"

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
    from rectifiers.analysis import propagation
    from rectifiers.analysis.setup import AnalysisSetup
    from rectifiers.benchmark import measurements

    if name == "init":
        return propagation.analyse(config, seeds=SEEDS, inputs="data")
    if name == "cost":
        baseline = Entry((f"activation={measurements.BASELINE}",), entry.places)
        entries = {"entry": entry, measurements.BASELINE: baseline}
        task = benchmark().tasks[TIMED]
        return measurements.cost({name: other.config(task) for name, other in entries.items()})
    network, layers = AnalysisSetup(config).network(config.seed)
    activation = network.sites()[0].after
    assert activation is not None  # a layer follows
    return measurements.theory(activation, layers[1].fan_in * layers[1].std_asked ** 2)


def _headline(card: Card) -> str:
    """The probabilities of improvement over the baselines, and what limits them."""
    results, rows = card.results, []
    for base in (base for base in card.baselines if base != results.entry):
        if (pair := ranking.improvement(results, card.baselines[base])) is not None:
            tasks, chance = pair
            label = f"probability to beat {TITLES[base]} (95 %)"
            rows.append([label, str(chance), chance.verdict, str(tasks)])
    text = "" if rows else "No results of ReLU or PReLU to compare with: run these, too.\n\n"
    text += "".join(f"{task}: {gap}.\n\n" for task in results.tasks() if (gap := results.gap(task)))
    if judged := [run for task in results.tasks() for run in results.judged(task)]:
        lost = f"{sum(run.diverged for run in judged)} of {len(judged)}"
        rows.append(["judged runs that diverged", lost, "-", str(len(results.tasks()))])
    return text + markdown(["", "", "verdict", "tasks"], rows)


def _tasks(card: Card) -> str:
    results, rows = card.results, []
    tasks = {name: benchmark().tasks[name] for name in results.tasks()}
    for name, values in scores_of(results, tasks).items():
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
    text = (
        f"At its own best learning rate, {benchmark().seeds} seeds, paired with ReLU and PReLU at "
        "theirs; in brackets the least and the largest of the seeds.\n\n"
    )
    return text + markdown([*head, *(f"minus {base} (95 %)" for base in BASELINES)], rows)


def _theory(part: dict[str, Any]) -> str:
    rows = [[title, cell(part.get(key))] for key, title in THEORY_ROWS.items()]
    reason = f"Unknown beyond this: {part['unknown']}.\n\n" if "unknown" in part else ""
    return reason + markdown(["wide chains, no biases", ""], rows)


def _init(part: dict[str, Any]) -> str:
    layers, rows = part["layers"], []
    for place in sorted({0, *(k * len(layers) // 4 for k in (1, 2, 3)), len(layers) - 1}):
        rows.append([str(place + 1), *(cell(lookup(layers[place], key)) for key in INIT_COLUMNS)])
    text = (
        f"A chain of {len(layers)} layers of {layers[1]['fan_in']} units on images, {SEEDS} draws, "
        "± half of the 95 % interval; the last layer's gradient is 1. Theory is of infinite "
        "width.\n\n"
    )
    return text + markdown(["layer", *INIT_COLUMNS.values()], rows)


def _cost(part: dict[str, Any]) -> str:
    ratio = part["seconds_ratio"]
    quartiles = f"quartiles {ratio['low']:.2f} to {ratio['high']:.2f}, {ratio['rounds']} rounds"
    rows = [
        ["seconds of a training step, interleaved", f"{ratio['median']:.2f} ({quartiles})"],
        ["memory of a training step", f"{part['bytes_ratio']:.2f}"],
    ]
    return markdown(["over ReLU's", ""], rows)


def figure(card: Card) -> Figure:
    """Draw the function, a deep chain's start, and the errors; a part that was not measured stays
    empty."""
    drawn = new_figure(9, 7, card.results.entry)
    function, forward, backward, errors = drawn.subplots(2, 2).flat
    if curve := card.parts.get("theory", {}).get("curve"):
        function.plot(curve["z"], curve["f"], color=MEASURED, label="f")
        function.plot(curve["z"], curve["slope"], color=MAPS, lw=1, label="f'")
        function.set(title="the function", xlabel="y", ylim=(-2, 4))
        function.legend()
    if layers := card.parts.get("init", {}).get("layers"):
        _plot_depth(forward, layers, "response", "responses: log10 E[y²]")
        _plot_depth(backward, layers, "gradient", "gradients: log10 E[Δy²], last layer 1")
    _plot_errors(errors, {card.results.entry: card.results, **card.baselines})
    return drawn


def _plot_depth(axes: Axes, layers: list[dict[str, Any]], moment: str, title: str) -> None:
    depths, label = range(1, len(layers) + 1), "measured, 95 %"
    mean, low, high = (column(layers, f"{moment}_second.{key}") for key in ("mean", "low", "high"))
    axes.plot(depths, mean, color=MEASURED, label=label)
    axes.fill_between(depths, low, high, color=MEASURED, alpha=0.2)
    expected = column(layers, f"theory.{moment}")
    axes.plot(depths, expected, "--", color=THEORY, label="infinite width")
    axes.set(title=title, xlabel="layer")
    axes.legend(fontsize=8)


def _plot_errors(axes: Axes, entries: Mapping[str, EntryResults]) -> None:
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
