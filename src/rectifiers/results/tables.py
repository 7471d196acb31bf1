"""`results/TABLES.md` from records and the paper's numbers: no torch, and the same bytes from the
same records."""

import functools
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from rectifiers.results.documents import Table, estimate
from rectifiers.results.frame import PAPERS_SETTING, exclusion_reason, frame, known, setting
from rectifiers.results.listing import read
from rectifiers.results.statistics import mcnemar, mean_of
from rectifiers.runs.record import Record, TrainingRecord
from rectifiers.runs.record_parts import Errors, ProtocolResult
from rectifiers.runtime.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame

Row = dict[str, Any]
Groups = Mapping[str, "DataFrame"]  # the rows of `frame` by setting
TABLE_1 = {
    "channel-shared": ("table2/prelu_shared", "table1/prelu_shared"),
    "channel-wise": ("table2/prelu", "table1/prelu"),
}
TABLE_3 = {
    "VGG-19": ("vgg19", "vgg_19"),
    **{x: (f"model_{x.lower()}", f"model_{x}") for x in "ABC"},
}
FIGURES = {"Figure 2: the 22-layer model with ReLU": 3, "Figure 3: the 30-layer model with ReLU": 9}
FIGURE_ARMS = {"He": "he", "Xavier (1/n)": "xavier"}
MEASURES = ("ece", "nll", "brier")
SMALLEST_P = 1e-300  # smaller ones lose their digits, and then are 0
HEAD = """# Tables

Made by `make table` from `results/records/` and the claims' runs in `results/claims/`; do not edit. Errors are in
percent; an interval is of 95 % over runs with different seeds (Student's t): it says what another seed would do, not
what other test images would. A run that diverged is in no mean and no pair; its row of errors counts it. Other data
than ImageNet says nothing about the paper's numbers. Arms with rates of their own have those that their searches on
validation images found best; other arms share one, the paper's, and each run drops it where its own validation error
stalls, so that a difference between them holds their drops, too. Runs that were chosen and tested on the same images,
as the paper's were, stand in tables of their own: those images decided when the rate drops, and flatter the run.
"""  # noqa: E501


def load(folder: Path) -> list[Record]:
    """Read the records of a folder that belong into tables, in the order of their names.

    Raises:
        InputError: where two records are of one experiment, setting and seed.
    """
    loaded = [run.record for run in read(sorted(folder.glob("*.json")))]
    records = [record for record in loaded if exclusion_reason(record) is None]
    runs: dict[tuple[Any, ...], str] = {}
    for record in records:
        key = (record.choices["experiment"], setting(record), record.seed)
        if key in runs:
            raise InputError(
                f"{folder} has two records of {key[0]} on {key[1]} with seed {key[2]}, "
                f"{runs[key]} and {record.run}; remove one"
            )
        runs[key] = record.run
    return records


@functools.cache
def published() -> dict[str, Any]:
    """Return `paper.yaml`, the numbers that the paper prints, each with its place and the texts it
    was read in; entries of confidence `recalled` are never targets."""
    return yaml.safe_load(Path(__file__).with_name("paper.yaml").read_text())


def table_1_slopes(shared: bool) -> dict[str, float]:
    """Return Table 1's learned slopes by layer, as printed: channel-shared, or the mean over
    channels."""
    column = "slope_channel_shared" if shared else "slope_channel_wise_mean"
    layers = published()["table_1_small_model"]["layers"]
    return {layer["name"]: layer[column]["value"] for layer in layers if column in layer}


@functools.cache
def layout() -> list[dict[str, Any]]:
    """Return `tables.yaml`: the tables with their rows."""
    return yaml.safe_load(Path(__file__).with_name("tables.yaml").read_text())


def render_markdown(tables: Sequence[Table]) -> str:
    """Return the whole document as Markdown."""
    return "\n".join([HEAD, *(table.markdown() for table in tables)])


def document(records: Sequence[Record]) -> list[Table]:
    """Return every table in the order of TABLES.md."""
    runs = frame(records)
    settings = (PAPERS_SETTING, *sorted(set(runs.setting) - {PAPERS_SETTING}))
    groups = {name: runs[runs.setting == name] for name in settings}
    parts = slopes(groups)
    for table in layout():
        parts.append(_beside_paper(table["title"], table["rows"], groups[PAPERS_SETTING]))
        for name, group in groups.items():
            if sum(len(answers(row, group)) > 0 for row in table["rows"]) > 1:
                title = f"{table['title'].split(':')[0]} on {name}"
                parts.append(_own(title, name, table["rows"], group))
        if table["title"].startswith("Table 2"):
            parts.append(networks())
    protocols = [_protocols(name, group) for name, group in groups.items() if len(group)]
    return [*parts, *curves(groups), *protocols, *([_origins(runs)] if len(runs) else [])]


def _origins(runs: "DataFrame") -> Table:
    """Every run with the code and the machine that made it, which its name does not tell."""
    head = ["experiment", "setting", "seed", "run", "code", "machine"]
    runs = runs.drop_duplicates("run").sort_values(head[:3])
    lines = runs[head].astype(str).to_numpy().tolist()
    return Table("The runs behind these tables", 2, head, lines)


def _of(row: Row, group: "DataFrame") -> "DataFrame":
    """The runs of a row's experiments in the order of their seeds, whatever became of them."""
    runs = group[group.experiment.isin(row["experiments"])]
    return runs.sort_values("seed", kind="stable")


def answers(row: Row, group: "DataFrame") -> "DataFrame":
    """Return the runs of a row that finished and were tested by its protocol, with its result."""
    runs = _of(row, group)
    runs = runs[runs.protocol == row["protocol"]]
    results = runs.record.map(functools.partial(result_of, row)).astype(object)
    return runs.assign(result=results)[results.notna()]


def _lost(row: Row, group: "DataFrame") -> int:
    runs = _of(row, group)
    return runs[runs.status == "diverged"].run.nunique()


def _scales(row: Row, record: Record) -> list[int]:
    return sorted(map(int, record.protocols[row["protocol"]].by_scale))


def result_of(row: Row, record: Record) -> Errors | None:
    """Return what the row's protocol, or its first, second ... scale in it, gave for a run that
    finished; None where it has no such result."""
    if record.status != "finished" or row["protocol"] not in record.protocols:
        return None
    result = record.protocols[row["protocol"]]
    if "scale" not in row:
        return result
    scales = _scales(row, record)
    return result.by_scale[str(scales[row["scale"]])] if len(scales) > row["scale"] else None


def label_of(row: Row, records: Sequence[Record]) -> str:
    """Return the row's name, with the scale that its runs have, or the paper's."""
    if "scale" not in row:
        return row["label"]
    scales = _scales(row, records[0]) if records else row["papers_scales"]
    return row["label"].format(scales[row["scale"]])


def paper_value(row: Row, which: str) -> float | None:
    """Return the paper's number (`which` of top1, top5), or None where it prints none or it is only
    recalled."""
    path = f"{row['paper']}{'' if row['paper'].endswith('_') else '.'}{which}"
    *parents, leaf = path.split(".")
    node: Any = published()
    for key in parents:
        node = node[key]
    entry = node.get(leaf)
    return None if entry is None or entry["confidence"] == "recalled" else entry["value"]


def _beside_paper(title: str, rows: Sequence[Row], group: "DataFrame") -> Table:
    lines = []
    for row, which in product(rows, ("top1", "top5")):
        runs, lost, paper = answers(row, group), _lost(row, group), paper_value(row, which)
        ours, difference = f"({lost} diverged)" if lost else "not run", "-"
        if len(runs):
            errors = [getattr(result, f"{which}_error_pct") for result in runs.result]
            ours = estimate(errors) + (f" ({lost} diverged)" if lost else "")
            if paper is not None and row.get("comparable", True):
                difference = f"{mean_of(errors).mean - paper:+.2f}"
        label = f"{label_of(row, list(runs.record))}, {which.replace('top', 'top-')}"
        printed = "-" if paper is None else f"{paper:.2f}"
        lines.append([label, row["protocol"], printed, ours, difference])
    head = ("ImageNet val", "protocol", "paper", "ours", "difference")
    return Table(title, 2, head, lines)


def _own(title: str, name: str, rows: Sequence[Row], group: "DataFrame") -> Table:
    """Our errors, each arm beside the one it is compared with, seed by seed on the same images."""
    by_label = {row["label"]: row for row in rows}
    lines, experiments = [], []
    for row in rows:
        runs, lost = answers(row, group), _lost(row, group)
        if runs.empty and not lost:
            continue
        experiments += row["experiments"]
        error = estimate([result.top1_error_pct for result in runs.result])
        label = label_of(row, list(runs.record)) + (f" ({lost} diverged)" if lost else "")
        pairs: list[tuple[Errors, Errors]] = []
        if "against" in row:
            others = answers(by_label[row["against"]], group)
            both = runs.merge(others, on=["seed", "images"], suffixes=("", "_other"))
            pairs = list(zip(both.result, both.result_other, strict=True))
        difference = estimate([a.top1_error_pct - b.top1_error_pct for a, b in pairs], sign="+")
        lines.append([label, row["protocol"], error, difference, _mcnemar(pairs)])
    against = {row["against"] for row in rows if "against" in row and len(answers(row, group))}
    minus = f"minus {' or '.join(sorted(against))}, paired by seed"
    minus = minus if against else "paired difference"
    head = ("", "protocol", "top-1 error", minus, "McNemar: only it right / only the other, p")
    used = group[group.experiment.isin(experiments)]
    images = ", ".join(f"{n:,}" for n in sorted(used.num_images.dropna().astype(int).unique()))
    codes = ", ".join(sorted({code for record in used.record for code in record.codes}))
    commits = {(record.provenance.git_sha or "none")[:7] for record in used.record}
    note = (
        f"Tested on {images} images. Trained by code {codes} (commit {', '.join(sorted(commits))})."
    )
    return Table(title, 3, head, lines, note)


def _mcnemar(pairs: Sequence[tuple[Errors, Errors]]) -> str:
    """One test a seed; they share their images, so they are shown and not pooled."""
    tests = []
    for pair in pairs:
        correct = [result.is_correct() for result in pair if isinstance(result, ProtocolResult)]
        if len(correct) < 2:  # of one scale
            return "-"
        first, second, p = mcnemar(*correct)
        small = f"{p:.2g}" if p > SMALLEST_P else f"below {SMALLEST_P:g}"
        tests.append(f"{first}/{second} {small}")
    return "; ".join(tests) or "-"


def _protocols(name: str, group: "DataFrame") -> Table:
    """Error, calibration and cost of every protocol, over the seeds of each experiment."""
    tested = group[(group.status == "finished") & group.protocol.notna()]
    costs = tested.groupby(["experiment", "protocol"]).multiply_adds.transform("first")
    ordered = tested.assign(cost=costs).groupby(["experiment", "cost", "protocol"])
    lines = []
    for (experiment, cost, protocol), runs in ordered:
        measures = [estimate(list(runs[measure].dropna()), 4) for measure in MEASURES]
        cells = [experiment, protocol, f"{int(cost):,}", estimate(list(runs.top1_error_pct))]
        lines.append([*cells, *measures])
    measured = ("multiply-adds an image", "top-1 error", "calibration error", "NLL", "Brier score")
    head = ("experiment", "protocol", *measured)
    return Table(f"Protocols and their cost on {name}", 2, head, lines)


def _trainings(group: "DataFrame", *experiments: str) -> list[TrainingRecord]:
    runs = group[group.experiment.isin(experiments)].drop_duplicates("run")
    return [record for record in runs.record if isinstance(record, TrainingRecord)]


def slopes(groups: Groups) -> list[Table]:
    """Table 1: the learned slope of every layer, the mean over channels, beside ours."""
    tables = []
    paper = {kind: table_1_slopes(kind == "channel-shared") for kind in TABLE_1}
    head = ["layer", *(f"{kind}, {whose}" for kind in TABLE_1 for whose in ("paper", "ours"))]
    for name, group in groups.items():
        is_paper = name == PAPERS_SETTING
        finished = group[group.status == "finished"]
        runs = {kind: _trainings(finished, *names) for kind, names in TABLE_1.items()}
        if not is_paper and not any(runs.values()):
            continue
        lines = []
        for layer in paper["channel-wise"]:
            cells = [layer]
            for kind, records in runs.items():
                means = [record.slopes[layer].mean for record in records if layer in record.slopes]
                cells += [f"{paper[kind][layer]:.3f}", estimate(means, 3, absent="not run")]
            lines.append(cells)
        title = "Table 1: learned slopes" if is_paper else f"Table 1 on {name}"
        tables.append(Table(title, 2 if is_paper else 3, head, lines))
    return tables


def networks() -> Table:
    """Table 3: depth and complexity as printed, and what follows from the rows of `conf/model/`."""
    lines = []
    for label, (option, key) in TABLE_3.items():
        ours, paper = known()["networks"][option], published()["table_3_architectures"][key]
        cells = [label, str(paper["depth_conv_plus_fc"]["value"]), str(ours["depth"])]
        cells += [f"{paper['complexity']['value']:.2f}", f"{ours['multiply_adds'] / 1e10:.4f}"]
        lines.append([*cells, f"{ours['parameters']:,}"])
    layers = ("layers, paper", "ours")
    operations = ("10^10 operations, paper", "10^10 multiply-adds, ours")
    head = ("", *layers, *operations, "parameters, ours")
    return Table("Table 3: the large models at 224 px", 2, head, lines)


def curves(groups: Groups) -> list[Table]:
    """Figures 2 and 3: the error of the centre view after each epoch; the paper plots it and prints
    no numbers."""
    tables = []
    head = ("epoch", *(f"{arm}, top-1 error" for arm in FIGURE_ARMS))
    for title, epochs in FIGURES.items():
        name = title.partition(":")[0]
        figure = name.lower().replace(" ", "")
        for group_name, group in groups.items():
            is_paper = group_name == PAPERS_SETTING
            heading, level = (title, 2) if is_paper else (f"{name} on {group_name}", 3)
            arms = [_trainings(group, f"{figure}/{arm}") for arm in FIGURE_ARMS.values()]
            lines = []
            for epoch in range(epochs):
                errors = [
                    [run.curve("val/top1_error_pct")[epoch] for run in runs if run.epochs > epoch]
                    for runs in arms
                ]
                lines.append([str(epoch + 1), *map(estimate, errors)])
            if any(arms):
                tables.append(Table(heading, level, head, lines))
            elif is_paper:
                note = (
                    f"Not run. [Claims](CLAIMS.md) with {figure} in their name ask it of "
                    "smaller networks and images."
                )
                tables.append(Table(heading, level, note=note))
    return tables
