"""A card: what was measured of an entry besides its runs, and the page that is made of both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rectifiers.results.benchmark.definition import Benchmark
from rectifiers.results.benchmark.entries import BASELINES, LARGEST_BYTES, EntryResults
from rectifiers.results.benchmark.leaderboard import difference, shown
from rectifiers.results.benchmark.standing import Standing, scores, standing
from rectifiers.results.benchmark.verdict import sentences
from rectifiers.results.layout import Table
from rectifiers.runs.record_parts import Json
from rectifiers.runs.trust import check_overrides
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import read_bytes, write_text
from rectifiers.runtime.schema import Section

ROUNDING = 1e-9  # numbers below are what arithmetic leaves of 0


class Card(Section):
    """What `analysis.card` found of an entry; a part is null where it could not be measured, and
    `failed` says why."""

    benchmark: str  # hash of the benchmark's definition
    entry: str
    overrides: tuple[str, ...]
    code: str
    git_sha: str | None
    machine: str
    paper: Json | None
    start: Json | None
    trains: Json | None
    cost: Json | None
    failed: dict[str, str]  # by part


@dataclass(frozen=True)
class Chapter:
    """A titled part of a card: sentences, then tables."""

    title: str
    text: Sequence[str] = ()
    tables: Sequence[Table] = ()


def save(folder: Path, card: Card) -> Path:
    """Write a card's record and return where it is."""
    path = folder / f"{card.entry}.json"
    write_text(path, card.model_dump_json() + "\n")
    return path


def load(path: Path) -> Card:
    """Read a card's record.

    Raises:
        InputError: where it cannot be read, is none, or one whose overrides reach beyond `conf/`.
    """
    try:
        found = Card.model_validate_json(read_bytes(path, LARGEST_BYTES))
    except (OSError, ValidationError) as error:
        raise InputError(
            f"{path} is no usable card ({str(error).splitlines()[0]}); make it again"
        ) from error
    check_overrides(found.overrides, path)
    return found


def chapters(
    benchmark: Benchmark, card: Card, results: EntryResults, baselines: Mapping[str, EntryResults]
) -> list[Chapter]:
    """Return the parts of a card in the order of reading, the verdict first."""
    return [
        Chapter("Verdict", sentences(benchmark, card.paper, results, baselines)),
        _paper(card),
        _start(card),
        _trains(card),
        _how_well(benchmark, results, baselines),
        _cost(benchmark, card, results),
    ]


def _missing(card: Card, part: str) -> list[str]:
    return [f"Not measured: {card.failed[part]}"] if part in card.failed else []


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{0.0 if abs(value) < ROUNDING else value:.{digits}g}"


def _paper(card: Card) -> Chapter:
    title, found = "On paper", card.paper
    if found is None:
        return Chapter(title, _missing(card, "paper"))
    named = {
        "n Var[w] of the initialiser": found["weight_variance"],
        "gain, 1/sqrt(E[f²])": found["gain"],
        "χ, factor on gradients per layer with that gain": found["chi"],
        "slope of the variance map": found["map_slope"],
        "fixed point of the variance": found["fixed_point"],
        "χ₁ there": found["chi_1"],
        "fixed point of the correlation": found["correlation_fixed_point"],
        "depth scale of the variance, layers": found["variance_depth"],
        "depth scale of the correlation, layers": found["correlation_depth"],
        "share of N(0, 1) where f' lies within ±0.05": found["flat_share"],
    }
    tables = [
        Table(
            "",
            3,
            ("wide chains, no biases", ""),
            [[k, _number(v)] for k, v in named.items()],
        )
    ]
    if found["signal"]:
        head = (
            "layers",
            "log10 E[y²] from 1",
            "from 1.1",
            "log10 of the gradients left",
            "correlation of two inputs",
        )
        rows = [
            [
                depth,
                *map(_number, (row["kept"], row["off"], row["gradient"])),
                _number((found["correlations"] or {}).get(depth)),
            ]
            for depth, row in found["signal"].items()
        ]
        tables.append(Table("", 3, head, rows))
    text = [f"Unknown beyond this: {found['unknown']}."] if found["unknown"] else []
    if found["phase"]:
        kept = {
            "attracts": "attracts",
            "repels": "repels",
            "neutral": "is neutral: any variance is kept",
        }
        word = kept.get(found["fixed_point_word"], "is unknown")
        text.append(
            f"The start lies in the {found['phase']} phase; the variance that He's gain keeps "
            f"{word}."
        )
    return Chapter(title, text, tables)


def _start(card: Card) -> Chapter:
    title, found = "At the start", card.start
    if found is None:
        return Chapter(title, _missing(card, "start"))
    layers = found["layers"]
    places = sorted({0, len(layers) // 4, len(layers) // 2, 3 * len(layers) // 4, len(layers) - 1})
    rows = []
    for place in places:
        row = layers[place]
        numbers = (row["theory"], row["width_drift"], row["theory_gradient"])
        response, drift, gradient = map(_number, numbers)
        measured = [_interval(row["measured"]), _interval(row["gradient"])]
        rows.append([str(place + 1), measured[0], response, drift, measured[1], gradient])
    head = (
        "layer",
        "log10 E[y²], measured",
        "theory",
        "finite width adds",
        "log10 E[Δy²], measured",
        "theory",
    )
    text = [
        f"A chain of {len(layers)} layers of {found['width']} units on {found['images']} "
        f"images, {found['seeds']} "
        "draws with 95 % intervals; the last layer's gradient is 1. Theory is of infinite width."
    ]
    return Chapter(title, text, [Table("", 3, head, rows)])


def _interval(mean: Mapping[str, Any] | None) -> str:
    if mean is None:
        return "gone"
    return _number(mean["mean"]) + (
        "" if mean["low"] is None else f" ({mean['low']:.3g} to {mean['high']:.3g})"
    )


def _trains(card: Card) -> Chapter:
    title, found = "What trains", card.trains
    if found is None:
        return Chapter(title, _missing(card, "trains"))
    below = found["trained_below"]

    def cell(loss: float | None) -> str:
        return "diverged" if loss is None else f"**{loss:.2f}**" if loss < below else f"{loss:.2f}"

    by_gain = [
        [str(depth), *map(cell, row)]
        for depth, row in zip(found["depths"], found["losses"], strict=True)
    ]
    if found["depth_scales"]:
        scales = ["∞" if scale is None else f"{scale:.2g}" for scale in found["depth_scales"]]
        by_gain.append(["depth scale", *scales])
    by_rate = [
        [str(depth), *map(cell, row)]
        for depth, row in zip(found["rate_depths"], found["rate_losses"], strict=True)
    ]
    text = [
        f"The training loss after {found['steps']} steps of SGD on real images, one draw; "
        f"bold: below {below:g}, where "
        f"guessing has 2.30. By gain, times the initialiser's weights, at the first of the rates "
        f"{' and '.join(f'{rate:g}' for rate in found['map_rates'])} that trains; the depth "
        "scale is the theory's, "
        "1/|ln χ₁| layers."
    ]
    gains, rates = ([f"{value:g}" for value in found[key]] for key in ("gains", "rates"))
    return Chapter(
        title,
        text,
        [
            Table("", 3, ("layers \\ gain", *gains), by_gain),
            Table("", 3, ("layers \\ learning rate", *rates), by_rate),
        ],
    )


def _how_well(
    benchmark: Benchmark, results: EntryResults, baselines: Mapping[str, EntryResults]
) -> Chapter:
    rows = []
    for name, task in benchmark.tasks.items():
        where = standing(benchmark, name, results)
        if not where.searched and not where.refused:
            continue
        if not where.is_complete:
            rows.append(
                [
                    name,
                    where.refused or f"incomplete, {where.missing} runs missing",
                    "-",
                    "-",
                    "-",
                    "-",
                ]
            )
            continue
        own = scores(benchmark, where)
        others = (None if base == results.entry else baselines.get(base) for base in BASELINES)
        beside = [_beside(benchmark, name, own, base) for base in others]
        lost = f"{sum(run.diverged for run in where.judged.values())} of {len(own)}"
        rate = f"{where.rate:g}{_at_border(task.rates, where)}"
        rows.append([name, f"{shown(task, own)}{_spread(own, task.reach)}", rate, *beside, lost])
    head = (
        "task",
        "error on test, %, or seeds that train",
        "rate",
        *(f"minus {base} (95 %)" for base in BASELINES),
        "diverged",
    )
    text = [
        f"At its own best learning rate, {benchmark.seeds} seeds, paired with ReLU and PReLU "
        "at theirs (He's gain); "
        "in brackets the least and the largest of the seeds."
    ]
    return Chapter("How well", text, [Table("", 3, head, rows)])


def _beside(
    benchmark: Benchmark, task: str, own: Sequence[float], base: EntryResults | None
) -> str:
    where = base and standing(benchmark, task, base)
    return (
        difference(benchmark.tasks[task], own, scores(benchmark, where))
        if where and where.is_complete
        else "-"
    )


def _at_border(rates: Sequence[float], where: Standing) -> str:
    return ", an end of the grid" if where.rate in (min(rates), max(rates)) else ""


def _spread(own: Sequence[float], reach: float | None) -> str:
    return "" if reach else f" [{min(own):.2f} to {max(own):.2f}]"


def _cost(benchmark: Benchmark, card: Card, results: EntryResults) -> Chapter:
    rows = []
    if (found := card.cost) is not None:
        ratio = found["seconds_ratio"]
        quartiles = (
            f"{ratio['median']:.2f} (quartiles {ratio['low']:.2f} to {ratio['high']:.2f}, "
            f"{ratio['rounds']} rounds)"
        )
        rows.append(["seconds per training step over ReLU's, interleaved", quartiles])
        rows.append(["memory of a training step over ReLU's", f"{found['bytes_ratio']:.2f}"])
    judged = [run for run in results.runs if run.seed < benchmark.seeds]
    if judged:
        rows.append(
            [
                "judged runs that diverged",
                f"{sum(run.diverged for run in judged)} of {len(judged)}",
            ]
        )
    dead = [
        run.dead_share for run in judged if run.task == "chain14" and run.dead_share is not None
    ]
    if dead:
        share = f"{100 * sum(dead) / len(dead):.1f} %"
        rows.append(["units that are positive on no validation image at the end of chain14", share])
    return Chapter("What it costs", _missing(card, "cost"), [Table("", 3, ("", ""), rows)])
