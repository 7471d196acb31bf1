"""The sections of the page, each a function of the records; a new one is a function here and a name
in SECTIONS.

Their titles and first paragraphs stand in `page.html.j2`.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from statistics import fmean

from rectifiers.results.claims import Answer, runs_of
from rectifiers.results.claims_table import about_floor, in_order
from rectifiers.results.eligibility import PAPERS_SETTING, setting
from rectifiers.results.findings import chosen
from rectifiers.results.layout import Estimate, Table
from rectifiers.results.listing import Found
from rectifiers.results.numerical_floor import NumericalFloor
from rectifiers.results.page.arms import Arm, arms
from rectifiers.results.page.charts import Chart, Series, series
from rectifiers.results.signal import by_layer, expected
from rectifiers.results.statistics import mean_of
from rectifiers.runs.record import TrainingRecord

MAX_ARMS = 8  # in one chart: as many as there are colours
# claims whose runs' responses are drawn by layer: when, and which row of their histories that is
BY_LAYER = {
    "signal": ("as networks start", 0),  # its learning rate moves nothing
    "figure3": ("of 30 layers after training", -1),
    "mean_response": ("of 14 layers after training", -1),
}
ERROR = "val/top1_error_pct"
CURVES = {"top-1 error, %": ERROR, "training loss": "train_loss"}


@dataclass(frozen=True)
class PageData:
    """What sections are made from: all runs, the tables of those that belong into tables, and the
    claims' answers."""

    found: Sequence[Found]
    tables: Sequence[Table]
    answers: Sequence[Answer] = ()
    floor: NumericalFloor | None = None
    leaderboard: Sequence[Table] = ()

    def trained(self, is_own: bool = False) -> list[TrainingRecord]:
        """Return the committed runs that trained for more than an epoch, or the user's own."""
        records = [each.record for each in self.found if (each.folder is not None) == is_own]
        trained = [
            record for record in records if isinstance(record, TrainingRecord) and record.epochs > 1
        ]
        return [
            record
            for record in trained
            if record.status == "finished" and record.choices.get("debug") is None
        ]

    def of_kind(self, *kinds: str) -> list[Table]:
        """Return the tables of some kinds, in the order of TABLES.md."""
        return [table for table in self.tables if table.kind in kinds]


@dataclass(frozen=True)
class Section:
    """Charts, tables, and tables behind a line (`summary`) that opens them; `note` is the second
    paragraph.

    cards: claims that are drawn; lists: claims to be opened, by the heading above them.
    filtered: what the lines are called that a field above the tables or lists narrows down, if
    there is one."""

    anchor: str
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    summary: str = ""
    folded: Sequence[Table] = ()
    note: str = ""
    cards: Sequence[Answer] = ()
    lists: Mapping[str, Sequence[Answer]] = field(default_factory=dict)
    filtered: str = ""


def findings(data: PageData) -> Section | None:
    """The claims that FINDINGS.md begins with, in its order."""
    by_name = {each.claim.name: each for each in data.answers}
    cards = [by_name[name] for name in chosen() if name in by_name]
    return Section("findings", cards=cards) if cards else None


def leaderboard(data: PageData) -> Section | None:
    """The benchmark's entries, as in LEADERBOARD.md."""
    return (
        Section("leaderboard", tables=data.leaderboard, filtered="entries")
        if data.leaderboard
        else None
    )


def own_runs(data: PageData) -> Section | None:
    """The curves of the runs that are here, which no other section draws."""
    charts = _curves(data.trained(is_own=True))
    return Section("own", charts) if charts else None


def paper_tables(data: PageData) -> Section | None:
    """The paper's tables, as in TABLES.md: what has been run, and folded what has not."""
    tables = data.of_kind("errors", "networks")
    folded = [
        table
        for table in tables
        if table.kind == "errors" and not any(line.runs for line in table.lines)
    ]
    shown = [table for table in tables if table not in folded]
    summary = f"The paper's numbers in {len(folded)} tables of which nothing has been run"
    note = str(data.floor or "").replace("`", "")
    return Section("tables", (), shown, summary, folded, note) if tables else None


def error_curves(data: PageData) -> Section | None:
    """Error and loss after every epoch: the mean over seeds of every arm that is committed."""
    charts = _curves(data.trained())
    summary = "The epochs of the paper's Figures 2 and 3"
    return Section("curves", charts, (), summary, data.of_kind("curves")) if charts else None


def _curves(records: Sequence[TrainingRecord]) -> list[Chart]:
    charts = []
    for where, found in _arms_by_setting(records):
        lowest = [arm.name for arm in sorted(found, key=_last_error)[:MAX_ARMS]]
        shown = [arm for arm in found if arm.name in lowest]
        only = (
            f", the {MAX_ARMS} arms of {len(found)} with the lowest last error"
            if len(shown) < len(found)
            else ""
        )
        for name, key in CURVES.items():
            curves = [_curve(arm, key) for arm in shown]
            if any(curve.x for curve in curves):
                what = name.partition(",")[0].capitalize()
                description = (
                    f"{what} after each epoch, mean over seeds and its "
                    f"95\N{NO-BREAK SPACE}% interval, on {where}"
                )
                charts.append(
                    Chart(f"{what} on {where}{only}", description, "epoch", name, curves, band=True)
                )
    return charts


def _arms_by_setting(records: Sequence[TrainingRecord]) -> Iterator[tuple[str, list[Arm]]]:
    for where in sorted({setting(record) for record in records}):
        yield where, arms([record for record in records if setting(record) == where])


def _last_error(arm: Arm) -> float:
    errors = [run.history[-1].get(ERROR) for run in arm.runs]
    measured = [error for error in errors if error is not None]
    return fmean(measured) if measured else math.inf


def _curve(arm: Arm, key: str) -> Series:
    points = []
    epochs = zip_longest(*(run.history for run in arm.runs), fillvalue={})
    for epoch, rows in enumerate(epochs, start=1):
        values = [value for row in rows if (value := row.get(key)) is not None]
        if values:
            points.append((epoch, mean_of(values)))
    return series(f"{arm.name}, n = {len(arm.runs)}", points)


def slopes_by_depth(data: PageData) -> Section | None:
    """Table 1: learned slopes by layer, the paper's beside ours."""
    tables = data.of_kind("slopes")
    ours = [
        table
        for table in tables
        if any(isinstance(cell, Estimate) for line in table.lines for cell in line.cells)
    ]
    tables.sort(key=lambda table: table not in ours)
    charts = []
    for kind, at in (("channel-shared", 1), ("channel-wise", 3)) if ours else ():
        rows = [line.cells for line in tables[0].lines]
        paper = series(
            "paper, ImageNet", [(str(row[0]), mean_of([float(str(row[at]))])) for row in rows]
        )
        description = (
            f"Learned slope of every layer from the first to the last, {kind}: the paper's and ours"
        )
        lines = [paper, *(_column(table, at + 1) for table in ours)]
        charts.append(Chart(f"Slopes, {kind}", description, "layer", "slope", lines, scale="names"))
    return Section("slopes", charts, (), "Table 1", tables) if charts else None


def _column(table: Table, at: int) -> Series:
    where = "ImageNet" if table.setting == PAPERS_SETTING else table.setting.partition(" (")[0]
    cells = [(str(line.cells[0]), line.cells[at]) for line in table.lines]
    return series(
        f"ours, {where}",
        [(layer, cell.mean) for layer, cell in cells if isinstance(cell, Estimate)],
    )


def propagation(data: PageData) -> Section | None:
    """Section 2.2: the signal from layer to layer, as networks start and as trainings leave it."""
    charts = [
        _of_claim(answer, *BY_LAYER[answer.claim.name])
        for answer in data.answers
        if answer.claim.name in BY_LAYER and any(map(_responses, answer.records))
    ]
    for where, found in _arms_by_setting(
        [record for record in data.trained() if _responses(record)]
    ):
        lines = [_signal(arm.name, [_responses(run)[-1] for run in arm.runs]) for arm in found]
        charts.append(
            _layers_chart(f"after training on {where}", f"after the last epoch, on {where}", lines)
        )
    return Section("propagation", charts) if charts else None


def _layers_chart(title: str, when: str, lines: Sequence[Series]) -> Chart:
    description = f"Root mean square of every layer's responses {when}; logarithms of base 10"
    return Chart(
        f"Responses {title}",
        description,
        "layer",
        "log10 of the RMS",
        lines[:MAX_ARMS],
        scale="names",
    )


def _of_claim(answer: Answer, when: str, at: int) -> Chart:
    """The arms of a claim, and what Eq. 9 says where it speaks of them: as they started."""
    measured, theory = [], []
    for arm, runs in runs_of(answer.claim, answer.records).items():
        rows = [found[at] for run in runs.values() if (found := _responses(run))]
        if not rows:
            continue
        measured.append(_signal(arm, rows))
        factors = expected(next(iter(runs.values()))) if at == 0 else None
        if factors and measured[-1].y:
            start = measured[-1].y[0] or 0.0
            points = [
                (layer, mean_of([start + math.log10(factor)])) for layer, factor in factors.items()
            ]
            theory.append(series(f"{arm}, Eq. 9", points))
    where, claim = setting(answer.records[0]), answer.claim.name
    return _layers_chart(
        f"{when}, claim/{claim} on {where}", f"{when}, on {where}", [*measured, *theory]
    )


def _responses(record: TrainingRecord) -> list[Mapping[str, float]]:
    """The layers' responses after each epoch, where they were kept."""
    return [found for row in record.history if (found := by_layer(record, row))]


def _signal(arm: str, rows: Sequence[Mapping[str, float]]) -> Series:
    """By layer the mean over runs of the logarithm of the root mean square; none where it is silent
    in a run."""
    layers = [layer for layer in rows[0] if all(layer in row for row in rows)]
    points = [(layer, mean_of([math.log10(row[layer]) for row in rows])) for layer in layers]
    return series(f"{arm}, n = {len(rows)}", points)


def error_against_cost(data: PageData) -> Section | None:
    """What every protocol costs an image, and the error that it buys."""
    charts = []
    tables = data.of_kind("protocols")
    for table in tables:
        measured: dict[str, list[tuple[float, Estimate, str]]] = {}
        for experiment, protocol, cost, error, *_ in (line.cells for line in table.lines):
            if isinstance(error, Estimate):
                point = (float(str(cost).replace(",", "")), error, str(protocol))
                measured.setdefault(str(experiment), []).append(point)
        lines = [
            series(
                name,
                [(cost, error.mean) for cost, error, _ in points],
                [protocol for *_, protocol in points],
            )
            for name, points in list(measured.items())[:MAX_ARMS]
        ]
        if any(len(line.x) > 1 for line in lines):
            description = (
                "Top-1 error of every test protocol against its multiply-adds an image, "
                f"on {table.setting}"
            )
            only = (
                f", {MAX_ARMS} experiments of {len(measured)}" if len(lines) < len(measured) else ""
            )
            title, x = f"Protocols on {table.setting}{only}", "multiply-adds an image"
            charts.append(Chart(title, description, x, "top-1 error, %", lines, scale="log"))
    return (
        Section("cost", charts, (), "Protocols, their cost and their calibration", tables)
        if tables
        else None
    )


def claims(data: PageData) -> Section | None:
    """The claims by verdict, in the order of CLAIMS.md; then the checks of the program."""
    lists: dict[str, list[Answer]] = {}
    for answer in sorted(in_order(data.answers), key=lambda each: each.claim.is_check):
        heading = (
            "checks: they follow from theory, and test the program"
            if answer.claim.is_check
            else answer.verdict
        )
        lists.setdefault(str(heading).capitalize(), []).append(answer)
    note = about_floor(data.answers, data.floor).replace("`", "") if data.floor else ""
    return Section("claims", note=note, lists=lists, filtered="claims") if lists else None


SECTIONS: Sequence[Callable[[PageData], Section | None]] = (
    findings,
    leaderboard,
    own_runs,
    paper_tables,
    error_curves,
    slopes_by_depth,
    propagation,
    error_against_cost,
    claims,
)
