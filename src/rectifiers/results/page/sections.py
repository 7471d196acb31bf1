"""The sections of the page, each a function of the records; a new one is a function here and a name in SECTIONS."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from rectifiers.results.claims import Answer, runs_of
from rectifiers.results.claims_table import about_floor
from rectifiers.results.claims_table import tables as claim_tables
from rectifiers.results.eligibility import PAPERS_SETTING, setting
from rectifiers.results.layout import Estimate, Table
from rectifiers.results.page.arms import Arm, arms
from rectifiers.results.page.blocks import Block, Chart, Folded, Material, Part, Series
from rectifiers.results.signal import by_layer, expected
from rectifiers.results.statistics import mean_of
from rectifiers.runs.record import TrainingRecord

MOST_ARMS = 8  # in one chart: as many as there are colours
BY_LAYER = {  # claims whose runs' responses are drawn by layer: when, and which row of their histories that is
    "signal": ("as networks start", 0),  # its learning rate moves nothing
    "figure3": ("of 30 layers after training", -1),
    "mean_response": ("of 14 layers after training", -1),
}
CURVES = {"top-1 error, %": "val/top1_error_pct", "training loss": "train_loss"}


def paper_tables(material: Material) -> Block | None:
    """The paper's tables, as in TABLES.md."""
    tables = material.of_kind("errors", "networks")
    lead = (
        "The paper's numbers, ours with their 95 % intervals over runs with different seeds (Student's t), and the "
        "difference. Only runs that are what an experiment is stand here, and only those at the paper's size beside "
        "its numbers; “runs” tells where a number comes from, by which code and on which machine."
    )
    lead += f" {material.floor}".replace("`", "") if material.floor else ""
    waiting = [table for table in tables if table.kind == "errors" and not any(line.runs for line in table.lines)]
    beside = {table.title.partition(" on ")[0] for table in tables if table not in waiting}
    folded = [table for table in waiting if table.title.partition(":")[0] not in beside]
    shown = [table for table in tables if table not in folded]
    parts: list[Part] = [
        *shown,
        *([Folded(f"{len(folded)} tables of which nothing has been run", folded)] if folded else []),
    ]
    return Block("tables", "The paper's tables", lead, parts) if tables else None


def error_curves(material: Material) -> Block | None:
    """Error and loss after every epoch: the mean over seeds of every arm."""
    trained = material.trained()
    charts = []
    for where in sorted({setting(record) for record in trained}):
        found = arms([record for record in trained if setting(record) == where])
        last = {arm.name: _last(arm, "val/top1_error_pct") for arm in found}
        lowest = sorted(last, key=lambda name: last[name])[:MOST_ARMS]
        shown = [arm for arm in found if arm.name in lowest]
        left_out = (
            f", the {MOST_ARMS} arms of {len(found)} with the lowest last error" if len(shown) < len(found) else ""
        )
        for name, key in CURVES.items():
            series = [_curve(arm, key) for arm in shown]
            if any(each.x for each in series):
                what = name.partition(",")[0].capitalize()
                told = f"{what} after each epoch, mean over seeds and its 95 % interval, on {where}"
                charts.append(Chart(f"{what} on {where}{left_out}", told, "epoch", name, series, band=True))
    lead = "After each epoch, on the centre view: the mean over seeds, and a band for its 95 % interval."
    tables = material.of_kind("curves")
    parts: list[Part] = [*charts, *([Folded("The epochs of the paper's Figures 2 and 3", tables)] if tables else [])]
    return Block("curves", "Error by epoch", lead, parts) if charts else None


def slopes_by_depth(material: Material) -> Block | None:
    """Table 1: learned slopes by layer, the paper's beside ours."""
    tables = material.of_kind("slopes")
    ours = [table for table in tables if any(isinstance(cell, Estimate) for line in table.lines for cell in line.cells)]
    charts = []
    for kind, at in (("channel-shared", 1), ("channel-wise", 3)):
        paper = Series("paper, ImageNet")
        for line in tables[0].lines if tables else ():
            paper.add(str(line.cells[0]), mean_of([float(str(line.cells[at]))]))
        measured = [_column(table, at + 1, f"ours, {table.setting.partition(' (')[0]}") for table in ours]
        told = f"Learned slope of every layer from the first to the last, {kind}: the paper's and ours"
        if measured:
            charts.append(Chart(f"Slopes, {kind}", told, "layer", "slope", [paper, *measured], scale="names"))
    lead = (
        "Table 1: the slope that each layer has learned, from the first to the last; of slopes per channel, the mean. "
        "All start at 0.25."
    )
    return Block("slopes", "Slopes by depth", lead, [*charts, Folded("Table 1", tables)]) if charts else None


def propagation(material: Material) -> Block | None:
    """Section 2.2: the signal from layer to layer, as networks start and as trainings leave it."""
    charts = [
        _of_claim(answer, *BY_LAYER[answer.claim.name])
        for answer in material.answers
        if answer.claim.name in BY_LAYER and any(map(_rows_of, answer.records))
    ]
    trained = [record for record in material.trained() if _rows_of(record)]
    for where in sorted({setting(record) for record in trained}):
        found = arms([record for record in trained if setting(record) == where])
        series = [_signal(f"{arm.name}, n = {len(arm.runs)}", [_rows_of(r)[-1] for r in arm.runs]) for arm in found]
        told = f"Root mean square of every layer's responses after the last epoch, on {where}; logarithms of base 10"
        title = f"Responses after training on {where}"
        charts.append(Chart(title, told, "layer", "log10 of the RMS", series[:MOST_ARMS], scale="names"))
    lead = (
        "The root mean square of what each layer's activations answer, from the first to the last: as networks start, "
        "beside the product of Eq. 9, and as trainings leave it. Bars are 95 % intervals over seeds."
    )
    return Block("propagation", "Signal by layer", lead, charts) if charts else None


def _of_claim(answer: Answer, when: str, at: int) -> Chart:
    """The arms of a claim, and what Eq. 9 says where it speaks of them: as they started."""
    measured, theory = [], []
    for arm, runs in runs_of(answer.claim, answer.records).items():
        rows = [_rows_of(run)[at] for run in runs.values() if _rows_of(run)]
        if not rows:
            continue
        series = _signal(f"{arm}, n = {len(rows)}", rows)
        measured.append(series)
        factors = expected(next(iter(runs.values()))) if at == 0 else None
        if factors and series.y:
            line = Series(f"{arm}, Eq. 9")
            for layer, factor in factors.items():
                line.add(layer, mean_of([(series.y[0] or 0.0) + math.log10(factor)]))
            theory.append(line)
    where = setting(answer.records[0])
    told = f"Root mean square of every layer's responses {when}, on {where}; logarithms of base 10"
    title = f"Responses {when}, claim/{answer.claim.name} on {where}"
    return Chart(title, told, "layer", "log10 of the RMS", [*measured, *theory][:MOST_ARMS], scale="names")


def _rows_of(record: TrainingRecord) -> list[Mapping[str, float]]:
    """The layers' responses after each epoch, where they were kept."""
    return [found for row in record.history if (found := by_layer(record, row))]


def _signal(name: str, rows: Sequence[Mapping[str, float]]) -> Series:
    """By layer the mean over runs of the logarithm of the root mean square; none where it is silent in a run."""
    series = Series(name)
    for layer in rows[0]:
        if all(layer in row for row in rows):
            series.add(layer, mean_of([math.log10(row[layer]) for row in rows]))
    return series


def error_against_cost(material: Material) -> Block | None:
    """What every protocol costs an image, and the error that it buys."""
    charts: list[Chart] = []
    tables = material.of_kind("protocols")
    for table in tables:
        by_experiment: dict[str, Series] = {}
        for experiment, protocol, cost, error, *_ in (line.cells for line in table.lines):
            if isinstance(error, Estimate):
                series = by_experiment.setdefault(str(experiment), Series(str(experiment)))
                series.add(float(str(cost).replace(",", "")), error.mean, str(protocol))
        drawn = list(by_experiment.values())[:MOST_ARMS]
        if any(len(each.x) > 1 for each in drawn):
            told = f"Top-1 error of every test protocol against its multiply-adds an image, on {table.setting}"
            only = f", {MOST_ARMS} experiments of {len(by_experiment)}" if len(drawn) < len(by_experiment) else ""
            title, x = f"Protocols on {table.setting}{only}", "multiply-adds an image"
            charts.append(Chart(title, told, x, "top-1 error, %", drawn, scale="log"))
    lead = "Every protocol by what it costs an image and the error that it buys; bars are 95 % intervals over seeds."
    parts: list[Part] = [*charts, Folded("Protocols, their cost and their calibration", tables)]
    return Block("cost", "Error against cost", lead, parts) if tables else None


def claims(material: Material) -> Block | None:
    """What the paper and the notes claim, with verdicts, as in CLAIMS.md."""
    if not material.answers:
        return None
    verdicts, *others = [_without_runs(table) for table in claim_tables(material.answers)]
    lead = (
        "Every claim with what its runs say: supported, contradicted, or null, by a criterion that was written before "
        "the runs, or whose note says when. Contradicted and null ones come first. Their records lie in results/claims."
    )
    lead += f" {about_floor(material.answers, material.floor)}".replace("`", "") if material.floor else ""
    return Block("claims", "Claims", lead, [verdicts, Folded("Arms, and what was not run", others)])


def _without_runs(table: Table) -> Table:
    """Without names of runs, which the page's list does not have: there are hundreds, of seconds each."""
    return replace(table, lines=[replace(line, runs=()) for line in table.lines])


SECTIONS: Sequence[Callable[[Material], Block | None]] = (
    paper_tables,
    error_curves,
    slopes_by_depth,
    propagation,
    error_against_cost,
    claims,
)


def _curve(arm: Arm, key: str) -> Series:
    series = Series(f"{arm.name}, n = {len(arm.runs)}")
    for epoch in range(max(run.epochs for run in arm.runs)):
        values = [run.history[epoch].get(key) for run in arm.runs if run.epochs > epoch]
        there = [value for value in values if value is not None]
        if there:
            series.add(epoch + 1, mean_of(there))
    return series


def _last(arm: Arm, key: str) -> float:
    values = [run.history[-1].get(key) for run in arm.runs]
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else float("inf")


def _column(table: Table, at: int, name: str) -> Series:
    series = Series(name if table.setting != PAPERS_SETTING else "ours, ImageNet")
    for line in table.lines:
        cell = line.cells[at]
        if isinstance(cell, Estimate):
            series.add(str(line.cells[0]), cell.mean)
    return series
