"""`results/TABLES.md` from records and the paper's numbers: no torch, and the same bytes from the
same records."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from rectifiers.results.documents import Table, estimate, literal, render
from rectifiers.results.frame import (
    PAPERS_DATA,
    PAPERS_SETTING,
    exclusion_reason,
    frame,
    known,
)
from rectifiers.results.listing import read
from rectifiers.results.paper import published, table_1_slopes
from rectifiers.results.statistics import mean_of
from rectifiers.runs.record import Record, TrainingRecord
from rectifiers.runs.record_parts import Errors
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import load_yaml
from rectifiers.runtime.schema import JsonObject, value_at

if TYPE_CHECKING:
    from pandas import DataFrame

Row = JsonObject
Groups = Mapping[str, "DataFrame"]  # the rows of `frame` by setting
TABLE_1 = {
    "channel-shared": ("table2/prelu_shared", "table1/prelu_shared"),
    "channel-wise": ("table2/prelu", "table1/prelu"),
}
TABLE_3 = {"VGG-19": "vgg19", "A": "model_a", "B": "model_b", "C": "model_c"}
FIGURES = {"Figure 2: the 22-layer model with ReLU": 3, "Figure 3: the 30-layer model with ReLU": 9}
FIGURE_ARMS = {"He": "he", "Xavier (1/n)": "xavier"}
MEASURES = ("ece", "nll", "brier")


def load(folder: Path) -> list[Record]:
    """Read the records of a folder that belong into tables, in the order of their names, one of
    each experiment, setting and seed."""
    loaded = [run.record for run in read(sorted(folder.glob("*.json")))]
    records = [record for record in loaded if exclusion_reason(record) is None]
    runs = frame(records).drop_duplicates("run")
    for key, same in runs.groupby(["experiment", "setting", "seed"]).run:
        if len(same) > 1:
            raise InputError(
                f"{folder} has two records of {key[0]} on {key[1]} with seed {key[2]}, "
                f"{' and '.join(same)}; remove one"
            )
    return records


@functools.cache
def layout() -> list[JsonObject]:
    """Return `tables.yaml`: the tables with their rows."""
    return load_yaml(Path(__file__).with_name("tables.yaml").read_text())


def render_markdown(tables: Sequence[Table]) -> str:
    """Return the whole document as Markdown."""
    return "\n".join([render("tables"), *(table.markdown() for table in tables)])


def document(
    records: Sequence[Record], conclusions: Mapping[str, str] | None = None
) -> list[Table]:
    """Return every table in the order of TABLES.md; `conclusions` stand below the headings that
    they name."""
    runs = frame(records)
    settings = (PAPERS_SETTING, *sorted(set(runs.setting) - {PAPERS_SETTING}))
    groups = {name: runs[runs.setting == name] for name in settings}

    parts = slopes(groups)
    for table in layout():
        title, rows = table["title"], table["rows"]
        parts.append(_beside_paper(table, groups))
        paired = (_paired(title, name, rows, group) for name, group in groups.items())
        parts += [differences for differences in paired if differences.rows]
        if title.startswith("Table 2"):
            parts.append(networks())

    parts += curves(groups)
    parts += [_protocols(name, group) for name, group in groups.items() if len(group)]
    if len(runs):
        parts.append(_origins(runs))
    return [_concluded(part, conclusions or {}) for part in parts]


def _concluded(table: Table, conclusions: Mapping[str, str]) -> Table:
    """The table with what is concluded from it before its note."""
    notes = filter(None, (conclusions.get(table.title), table.note))
    return replace(table, note="\n\n".join(notes))


def _origins(runs: "DataFrame") -> Table:
    """Every run with the code and the machine that made it, which its name does not tell."""
    head = ["experiment", "setting", "seed", "run", "code", "machine"]
    runs = runs.drop_duplicates("run").sort_values(head[:3])
    lines = runs[head].astype(str).map(literal).to_numpy().tolist()
    note = "`code` is the fingerprint of the source; a run with several was resumed by other code."
    return Table("The runs behind these tables", 2, head, lines, note)


def answers(row: Row, group: "DataFrame") -> "DataFrame":
    """Return the runs of a row that finished and were tested by its protocol, in the order of their
    seeds; in a row of the first, second ... scale of a protocol with its result there, and `px`."""
    runs = group[group.experiment.isin(row["experiments"]) & (group.protocol == row["protocol"])]
    runs = runs[runs.status == "finished"].sort_values("seed", kind="stable")
    if "scale" not in row:
        return runs

    place = row["scale"]
    runs = runs.loc[[len(result.by_scale) > place for result in runs.result]]
    by_scale = [{int(px): at for px, at in result.by_scale.items()} for result in runs.result]
    px = [sorted(scales)[place] for scales in by_scale]
    results = [scales[side] for scales, side in zip(by_scale, px, strict=True)]
    return runs.assign(px=px, result=results)


def _lost(row: Row, group: "DataFrame") -> int:
    runs = group[group.experiment.isin(row["experiments"])]
    return runs[runs.status == "diverged"].run.nunique()


def _heads(settings: Sequence[str]) -> tuple[list[str], str]:
    """Return our settings' columns, named by the data where that tells them apart, and the line
    that says what they are."""
    ours = [name for name in settings if name != PAPERS_SETTING]
    data = [name.partition(" (")[0] for name in ours]
    names = [n if data.count(n) == 1 else f"{n} {i}" for i, n in enumerate(data, start=1)]
    sizes = (name.partition(" (")[2].removesuffix(")") for name in ours)

    is_run = any(name.startswith((PAPERS_SETTING, f"{PAPERS_DATA} (")) for name in settings)
    lines = [] if is_run else ["Not run on ImageNet."]
    lines += [f"Ours on {name}: {size}." for name, size in zip(names, sizes, strict=True)]
    return [f"ours, {name}" for name in names], " ".join(lines)


def _beside_paper(table: JsonObject, groups: Groups) -> Table:
    """The paper's errors beside ours on all data that have runs."""
    rows = table["rows"]
    used = {
        name: group
        for name, group in groups.items()
        if any(len(answers(row, group)) or _lost(row, group) for row in rows)
    }
    heads, note = _heads(list(used))
    on_imagenet = used.pop(PAPERS_SETTING, None)

    lines = []
    for row, which in product(rows, ("top1", "top5")):
        paper = value_at(published(), f"{row.get('paper')}.{which}")
        cells = [f"{row['label']}, {which.replace('top', 'top-')}", row["protocol"]]
        cells.append("-" if paper is None else f"{paper:.2f}")

        if on_imagenet is not None:
            errors, difference = _errors(row, which, on_imagenet), "-"
            if errors and paper is not None and row.get("comparable", True):
                difference = f"{mean_of(errors).mean - paper:+.2f}"
            cells += [_ours(row, which, on_imagenet), difference]
        cells += [_ours(row, which, group) for group in used.values()]
        lines.append(cells)

    papers = ["ours, ImageNet", "difference"] if on_imagenet is not None else []
    head = ("", "protocol", "paper, ImageNet", *papers, *heads)
    return Table(table["title"], 2, head, lines, note)


def _errors(row: Row, which: str, group: "DataFrame") -> list[float]:
    return [getattr(result, f"{which}_error_pct") for result in answers(row, group).result]


def _ours(row: Row, which: str, group: "DataFrame") -> str:
    """Our error with its interval; how many runs diverged, and a scale that is not the paper's."""
    runs, lost = answers(row, group), _lost(row, group)
    parts = []
    if len(runs) or not lost:
        parts.append(estimate(_errors(row, which, group)))
    if "scale" in row and len(runs) and runs.px.iloc[0] != row["papers_px"]:
        parts.append(f"at {runs.px.iloc[0]} px")
    if lost:
        parts.append(f"({lost} diverged)")
    return " ".join(parts)


def _paired(title: str, name: str, rows: Sequence[Row], group: "DataFrame") -> Table:
    """Each arm beside the one it is compared with, seed by seed on the same images."""
    by_label = {row["label"]: row for row in rows}
    lines: list[list[str]] = []
    experiments: list[str] = []
    for row in (row for row in rows if "against" in row):
        against = by_label[row["against"]]
        ours, others = answers(row, group), answers(against, group)
        both = ours.merge(others, on=["seed", "images"], suffixes=("", "_other"))
        pairs: list[tuple[Errors, Errors]] = list(zip(both.result, both.result_other, strict=True))
        if not pairs:
            continue

        experiments += [*row["experiments"], *against["experiments"]]
        difference = estimate([a.top1_error_pct - b.top1_error_pct for a, b in pairs], sign="+")
        label = f"{row['label']} minus {against['label']}"
        lines.append([label, row["protocol"], difference])

    used = group[group.experiment.isin(experiments)]
    images = ", ".join(f"{n:,}" for n in sorted(used.num_images.dropna().astype(int).unique()))
    codes = ", ".join(sorted({code for record in used.record for code in record.codes}))
    commits = {(record.provenance.git_sha or "none")[:7] for record in used.record}
    note = (
        f"Tested on {images} images. Trained by code {codes} (commit {', '.join(sorted(commits))})."
    )
    head = ("", "protocol", "top-1 error, paired by seed")
    return Table(f"{title.partition(':')[0]} on {name}", 3, head, lines, note)


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
    measured = ("MACs per image", "top-1 error", "calibration error", "NLL", "Brier score")
    head = ("experiment", "protocol", *measured)
    return Table(f"Protocols and their cost on {name}", 2, head, lines)


def _trainings(group: "DataFrame", *experiments: str) -> list[TrainingRecord]:
    runs = group[group.experiment.isin(experiments)].drop_duplicates("run")
    return [record for record in runs.record if isinstance(record, TrainingRecord)]


def slopes(groups: Groups) -> list[Table]:
    """Table 1: the learned slope of every layer, the mean over channels, beside ours."""
    tables = []
    for kind, experiments in TABLE_1.items():
        runs = {}
        for name, group in groups.items():
            if records := _trainings(group[group.status == "finished"], *experiments):
                runs[name] = records

        lines = []
        for layer, slope in table_1_slopes(kind == "channel-shared").items():
            cells = [layer, f"{slope:.3f}"]
            for records in runs.values():
                means = [record.slopes[layer].mean for record in records if layer in record.slopes]
                cells.append(estimate(means, 3))
            lines.append(cells)

        heads, note = _heads(list(runs))
        ours = ["ours, ImageNet"] if PAPERS_SETTING in runs else []
        head = ("layer", "paper, ImageNet", *ours, *heads)
        tables.append(Table(f"Table 1: learned slopes, {kind}", 2, head, lines, note))
    return tables


def networks() -> Table:
    """Table 3: depth and complexity as printed, and what follows from the rows of `conf/model/`."""
    lines = []
    for label, option in TABLE_3.items():
        ours, paper = known()["networks"][option], published()["table_3"][option]
        cells = [label, str(paper["layers"]), str(ours["depth"])]
        cells += [f"{paper['operations']:.2f}", f"{ours['multiply_adds'] / 1e10:.4f}"]
        lines.append([*cells, f"{ours['parameters']:,}"])
    layers = ("layers, paper", "ours")
    operations = ("10^10 operations, paper", "10^10 MACs, ours")
    head = ("", *layers, *operations, "parameters, ours")
    return Table("Table 3: the large models at 224 px", 2, head, lines)


def curves(groups: Groups) -> list[Table]:
    """Figures 2 and 3: the error of the centre view after each epoch; the paper only plots it."""
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
                    f"Not run on ImageNet. [Claims](CLAIMS.md) with {figure} in their name test "
                    "it on smaller networks and images."
                )
                tables.append(Table(heading, level, note=note))
    return tables
