"""The card of an activation and an initialiser: what theory predicts, the results on the tasks, and
what the network does at initialisation, as Markdown with a figure.

The measured parts are plain dictionaries."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from rectifiers.analysis.output import MEASURED, cell, new_figure
from rectifiers.benchmark import ranking
from rectifiers.benchmark.definition import SIZES, Entry, Size, benchmark
from rectifiers.benchmark.entries import EntryResults, search
from rectifiers.benchmark.ranking import BASELINES, Ranking, difference, score_text
from rectifiers.benchmark.run import refusal
from rectifiers.results.documents import listed, literal, markdown, write_svg
from rectifiers.results.statistics import Mean
from rectifiers.runs.config import RunConfig
from rectifiers.runs.provenance import code_fingerprint
from rectifiers.runtime.console import printable
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import write_text
from rectifiers.runtime.machine import name as processor_name
from rectifiers.runtime.schema import value_at

PARTS = {"theory": "Theory", "init": "At initialisation", "cost": "Cost"}  # besides the runs
BETTER = "he_backward"  # the initialiser that keeps the gradient, and not the signal
DEEP, TIMED = "deep50", "conv6"  # the tasks whose network starts, and whose steps are timed
SEEDS = 5  # draws of the network that starts
TITLES = {"relu": "ReLU", "prelu": "PReLU", "gelu": "GELU", "silu": "SiLU"}
THEORY_ROWS = {
    "weight_variance": "n Var[w] of the initialiser",
    "gain": "gain, 1/sqrt(E[f²])",
    "chi": "χ, factor on E[Δy²] per layer with that gain",
    "map_slope": "slope of the variance map",
    "fixed_point": "the variance that the gain preserves (attracts, repels or neutral)",
}

LIMITS = """Networks and data are small and training is short: a place here says nothing about
ImageNet. All entries have the same width, but not the same number of parameters. Only the learning
rate was tuned.
"""

INIT_COLUMNS = {
    "response_second": "log10 E[y²], measured",
    "theory.response": "theory",
    "theory.width_drift": "added by finite width",
    "gradient_second": "log10 E[Δy²], measured",
    "theory.gradient": "theory",
}


@dataclass(frozen=True)
class Card:
    """A card's numbers. parts: what was measured, by the names of PARTS; failed: for the other
    parts, why they were not. entries: the other entries with results, the baselines among them.
    command: what was typed. better: with the better start, where it ran."""

    results: EntryResults
    entries: Mapping[str, EntryResults]
    parts: Mapping[str, dict[str, Any]]
    failed: Mapping[str, str]
    command: str
    better: EntryResults | None = None

    def baselines(self, task: str) -> dict[str, EntryResults]:
        """Return the baselines that are complete on a task, without the entry itself."""
        others = {name: self.entries.get(name) for name in BASELINES if name != self.results.entry}
        return {name: e for name, e in others.items() if e is not None and e.gap(task) is None}

    def complete_tasks(self) -> list[str]:
        """Return the tasks that the entry is complete on."""
        return [task for task in self.results.tasks() if self.results.gap(task) is None]

    def markdown(self) -> str:
        """Return the card as Markdown, the answer first; its figure lies beside it."""
        name, spec = self.results.entry, benchmark()
        machine = f"code {code_fingerprint()} on {processor_name()}, {os.cpu_count()} cores"
        measured = {}
        for part, text in (("theory", _theory), ("init", _init), ("cost", _cost)):
            reason = f"Not measured: {self.failed.get(part)}\n"
            measured[PARTS[part]] = text(self.parts[part]) if part in self.parts else reason
        chapters = {"Theory": measured.pop("Theory"), "Results": _tasks(self)}
        if self.better is not None:
            chapters["Function or initialiser?"] = _starts(self, self.better)
        chapters |= measured
        origin = f"Benchmark {spec.version} ({spec.hash}), `{self.command}`, {machine}."
        chapters["Limits"] = f"{_limits(self)}\n{LIMITS}\n{origin}\n"
        body = "\n".join(f"## {title}\n\n{text}" for title, text in chapters.items())
        return f"# {name}\n\n{_headline(self)}\n![{name}]({name}.svg)\n\n{body}"

    def write(self, folder: Path) -> list[Path]:
        """Write <entry>.md and .svg into `folder`; return their paths."""
        name = self.results.entry
        paths = [folder / f"{name}{suffix}" for suffix in (".md", ".svg")]
        write_text(paths[0], self.markdown())
        write_svg(figure(self), paths[1], name)
        return paths


def measure(
    entry: Entry, names: Iterable[str] = PARTS
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return the parts of an entry's card that `names` asks for, and for those that could not be
    measured why."""
    from rectifiers.training.lightning import isolated

    parts, failed = {}, {}
    config = entry.config(benchmark().tasks[DEEP])
    with isolated(config):
        reason = refusal(config)
        for name in names:
            try:
                if reason is not None:
                    raise InputError(reason)
                parts[name] = _measure(name, entry, config)
            except InputError as error:
                failed[name] = printable(str(error))
    return parts, failed


def better_start(entry: Entry, theory: Mapping[str, Any]) -> Entry | None:
    """Return the entry with the start that keeps its gradient; None unless it has He's, with which
    by theory the gradient explodes before the depth of the deepest task.

    Where the gradient vanishes instead, theory knows no better start."""
    deepest = max(task.depth or 0 for task in benchmark().tasks.values())
    is_he = entry.name == entry.with_init("he").name
    if not is_he or theory.get("limits", {}).get("explosion", deepest) >= deepest:
        return None
    return entry.with_init(BETTER)


def tasks_to_start_better(results: EntryResults, size: Size) -> list[str]:
    """Return the tasks of a size on which a better start is tried: those of errors that ran, where
    no learning rate trains on one of them, and the shallowest of the others that none trains."""
    spec = benchmark()
    errors = [task for task in spec.of_size(size, is_error=True) if results.rate(task) is not None]
    tasks = errors if any(map(results.has_failed, errors)) else []
    failed = [task for task in spec.of_size(size, is_error=False) if results.has_failed(task)]
    return tasks + [task for task in failed if not {*spec.shallower(task)} & {*failed}]


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
    """Where nothing trains; the place among the entries, the differences to ReLU, and the depth
    that trains."""
    results, name, lines = card.results, card.results.entry, []
    if failed := [task for task in results.tasks() if _is_news(results, task)]:
        lines.append(f"{_failure(card, failed)}\n")
    entries = {**card.entries, name: results}
    complete = set(card.complete_tasks())

    for size in SIZES:
        ranked = ranking.ranked_tasks(entries, size)
        tasks = [task for task in ranked if task in complete]
        where = f"{name} on {listed(tasks)} alone" if tasks and tasks != ranked else name
        where += " (four times the epochs)" if size == "late" else ""
        sentences = [f"{where}: {_place(Ranking.of(entries, tasks), name)}."] if tasks else []
        if tasks and name != ranking.REFERENCE:
            sentences.append(f"{_against_relu(results, entries[ranking.REFERENCE], tasks)}.")
        if (depth := ranking.depth_reached(results, size)) is not None:
            sentences.append(
                f"Trains to depth {depth}." if depth else "Trains at none of the depths."
            )
        if sentences:
            lines.append(f"{' '.join(sentences)}\n")
    return "\n".join(lines) or "No task is complete of both this entry and ReLU.\n"


def _is_news(results: EntryResults, name: str) -> bool:
    """Return whether nothing trains on a task, which the depth that trains does not say, too."""
    task = benchmark().tasks[name]
    is_beyond = task.depth is not None and bool(ranking.depth_reached(results, task.size))
    return results.has_failed(name) and not is_beyond


def _failure(card: Card, failed: Sequence[str]) -> str:
    """Return on which tasks no learning rate trains, and whether a better start helps."""
    results, reach = card.results, benchmark().reach
    tried = sorted({run.rate for run in results.runs if run.task in failed})
    sentences = [
        f"No learning rate trains {results.entry} on {listed(failed)}: at rates from {tried[0]:g} "
        f"to {tried[-1]:g}, each run of the search diverges or stays above a training loss of "
        f"{reach:g}."
    ]
    if better := card.better:
        shared = [task for task in failed if better.gap(task) is None or better.has_failed(task)]
        lost = [task for task in shared if better.has_failed(task)]
        if learned := [task for task in shared if task not in lost]:
            sentences.append(
                f"With init={BETTER}, which keeps the gradient, it trains on {listed(learned)}: "
                "this failure is He's initialiser's, not the function's."
            )
        if lost:
            sentences.append(
                f"On {listed(lost)} it does not train with init={BETTER} either: He's initialiser "
                "alone does not explain this failure."
            )
    elif all(word == "init=he" for word in results.overrides if word.startswith("init")):
        layers = card.parts.get("theory", {}).get("limits", {}).get("vanishing", inf)
        depths = {task: benchmark().tasks[task].depth or 0 for task in failed}
        if deeper := [task for task in failed if depths[task] > layers]:
            sentences.append(
                f"By theory the gradient vanishes after about {layers} layers with He's rule, and "
                f"no better start is known: on {listed(deeper)} the failure may well be the "
                "function's."
            )
    return " ".join(sentences)


def _place(ranks: Ranking, name: str) -> str:
    """Return "place 2 to 7 of 38"."""
    if name not in ranks.placed:
        return "a control, which is not ranked"
    return f"place {ranks.place_text(name)} of {len(ranks.placed)}"


def _against_relu(results: EntryResults, relu: EntryResults, tasks: Sequence[str]) -> str:
    """Return "Its error is lower than ReLU's by 0.8 points on conv6 (0.3 to 1.3). No clear
    difference from ReLU on mlp"."""
    parts: dict[str, list[str]] = {"lower": [], "higher": []}
    unclear = []
    for task in tasks:
        mean = difference(results, relu, task)
        if not mean.excludes_zero:
            unclear.append(task)
        else:
            low, high = sorted((abs(mean.low), abs(mean.high)))
            text = f"{task} ({low:.1f} to {high:.1f})"
            way = parts["lower" if mean.mean < 0 else "higher"]
            way.append(f"{abs(mean.mean):.1f} points on {text}")

    texts = [f"Its error is {way} than ReLU's by {listed(p)}" for way, p in parts.items() if p]
    if unclear:
        texts.append(f"No clear difference from ReLU on {listed(unclear)}")
    return ". ".join(texts)


def _limits(card: Card) -> str:
    """What is incomplete, and the judged runs that diverged."""
    results = card.results
    gaps = {task: results.gap(task) for task in results.tasks()}
    lines = [f"{task}: {literal(gap)}.\n\n" for task, gap in gaps.items() if gap]

    judged = [run for task in results.tasks() for run in results.judged(task)]
    if judged:
        lost = sum(run.diverged for run in judged)
        lines.append(f"{lost} of {len(judged)} judged runs diverged.\n")
    return "".join(lines)


def _tasks(card: Card) -> str:
    results = card.results
    rows: dict[bool, list[list[str]]] = {True: [], False: []}  # of errors, and of seeds that train
    for name in card.complete_tasks():
        is_error = benchmark().tasks[name].depth is None
        rates, chosen = search(name, results.runs)
        at_end = ", an end of the searched rates" if chosen in (rates[0], rates[-1]) else ""
        row = [name, score_text(results, name), f"{chosen:g}{at_end}"]

        others = card.baselines(name)
        row += [_beside(results, others.get(base), name) for base in BASELINES]
        rows[is_error].append(row)

    titles = [TITLES[base] for base in BASELINES]
    errors = ["task", "test error, %", "learning rate", *(f"minus {title}" for title in titles)]
    trained = ["task", "seeds that train", "learning rate", *titles]
    text = (
        "Each entry trains at the learning rate that its own search chose. Differences are in "
        "points, paired by seed, with 95 % intervals.\n\n"
    )
    tables = [(errors, rows[True]), (trained, rows[False])]
    return text + "\n".join(markdown(*table) for table in tables if table[1])


def _starts(card: Card, better: EntryResults) -> str:
    """Compare the better start with He's, and with ReLU."""
    rows = []
    for name in better.tasks():
        if (with_he := _score_or_failure(card.results, name)) == "-":
            continue  # of an earlier call, or its data are not there
        row = [name, with_he]
        if better.has_failed(name):
            row += [_score_or_failure(better, name), "-", "-"]
        elif better.gap(name) is None:
            relu = card.baselines(name).get(ranking.REFERENCE)
            row += [score_text(better, name), f"{better.rate(name):g}"]
            row.append(_beside(better, relu, name))
        else:
            row += ["-", "-", "-"]
        rows.append(row)

    theory = card.parts["theory"]
    text = (
        f"By theory the gradient's square grows χ = {cell(theory['chi'])} times per layer with "
        f"He's rule. {BETTER} keeps it instead. These runs "
        f"are of the entry {better.entry}, and count for no place of {card.results.entry}.\n\n"
    )
    head = ["task: error, %, or seeds that train", "He", BETTER, "learning rate"]
    head.append(f"{BETTER} minus ReLU in points, or ReLU's seeds")
    return text + markdown(head, rows)


def _beside(results: EntryResults, base: EntryResults | None, task: str) -> str:
    """Return the difference from a baseline, or where seeds that train are counted, the baseline's
    own; "-" without it."""
    if base is None:
        return "-"
    if benchmark().tasks[task].depth is None:
        return difference(results, base, task).signed()
    return score_text(base, task)


def _score_or_failure(results: EntryResults, task: str) -> str:
    if results.has_failed(task):
        return "nothing trains"
    return "-" if results.gap(task) else score_text(results, task)


def _theory(part: dict[str, Any]) -> str:
    known = {title: part[key] for key, title in THEORY_ROWS.items() if part.get(key) is not None}
    rows = [[title, cell(value)] for title, value in known.items()]
    table = markdown(["fully connected layers of infinite width, without biases", ""], rows)
    return f"{part['markdown']}\n\n{table}"


def _init(part: dict[str, Any]) -> str:
    layers, rows = part["layers"], []
    for place in sorted({0, *(k * len(layers) // 4 for k in (1, 2, 3)), len(layers) - 1}):
        rows.append([str(place + 1), *(cell(value_at(layers[place], key)) for key in INIT_COLUMNS)])
    text = (
        f"{len(layers)} fully connected layers of {layers[1]['fan_in']} units on images, mean of "
        f"{SEEDS} draws ± half of the 95 % interval. The last layer's gradient is scaled to 1. "
        "Theory is for infinite width.\n\n"
    )
    return text + markdown(["layer", *INIT_COLUMNS.values()], rows)


def _cost(part: dict[str, Any]) -> str:
    ratio = part["seconds_ratio"]
    quartiles = f"quartiles {ratio['low']:.2f} to {ratio['high']:.2f}, {ratio['rounds']} rounds"
    rows = [
        ["time of a training step (both timed in turns)", f"{ratio['median']:.2f} ({quartiles})"],
        ["memory of a training step", f"{part['bytes_ratio']:.2f}"],
    ]
    return markdown(["divided by ReLU's", ""], rows)


def figure(card: Card) -> Figure:
    """Draw the differences of errors to the baselines, with intervals: a row each, by task."""
    drawn = new_figure(8, 6, card.results.entry)
    axes = drawn.subplots()
    rows: list[tuple[str, Mean | None]] = []
    for task in card.complete_tasks():
        if benchmark().tasks[task].depth is None:
            rows.append((f"{task}: minus", None))
            for base, other in card.baselines(task).items():
                rows.append((TITLES[base], difference(card.results, other, task)))

    for y, (_, mean) in enumerate(rows):
        if mean is not None:
            axes.plot([mean.low, mean.high], [y, y], color=MEASURED)
            axes.plot(mean.mean, y, "o", ms=4, color=MEASURED)

    axes.axvline(0, color="0.7", lw=1)
    axes.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize=8)
    axes.set_ylim(max(len(rows), 1) - 0.5, -0.5)
    axes.set_title("difference in points of error, 95 % CI: better | worse", fontsize=10)
    return drawn
