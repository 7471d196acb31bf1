"""`results/TABLES.md` from records and the paper's numbers: no torch, and the same bytes from the
same records."""

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from rectifiers.results.eligibility import PAPERS_SETTING, exclusion_reason, setting
from rectifiers.results.layout import Estimate, Line, Table, estimate
from rectifiers.results.listing import read
from rectifiers.results.origin import code_of, machine_of
from rectifiers.results.paper import published
from rectifiers.results.statistics import mcnemar, mean_of
from rectifiers.results.structure import curves, networks, slopes
from rectifiers.runs.record import Record
from rectifiers.runs.record_parts import Errors, ProtocolResult
from rectifiers.runtime.errors import InputError

Row = dict[str, Any]
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
    found = [each.record for each in read(sorted(folder.glob("*.json")))]
    found = [record for record in found if exclusion_reason(record) is None]
    seen: dict[tuple, str] = {}
    for record in found:
        key = (record.choices["experiment"], setting(record), record.seed)
        if key in seen:
            raise InputError(
                f"{folder} has two records of {key[0]} on {key[1]} with seed {key[2]}, "
                f"{seen[key]} and "
                f"{record.run}; remove one"
            )
        seen[key] = record.run
    return found


@functools.cache
def layout() -> list[dict[str, Any]]:
    """Return `tables.yaml`: the tables with their rows."""
    return yaml.safe_load(Path(__file__).with_name("tables.yaml").read_text())


def render_markdown(found: Sequence[Record]) -> str:
    """Return the whole document as Markdown."""
    return "\n".join([HEAD, *(table.markdown() for table in document(found))])


def document(found: Sequence[Record]) -> list[Table]:
    """Return every table in the order of TABLES.md."""
    settings = sorted({setting(record) for record in found} - {PAPERS_SETTING})
    groups = {
        name: [r for r in found if setting(r) == name] for name in (PAPERS_SETTING, *settings)
    }
    parts = slopes(groups)
    for table in layout():
        parts.append(_beside_paper(table["title"], table["rows"], groups[PAPERS_SETTING]))
        for name, group in groups.items():
            if sum(bool(runs_of(row, group)) for row in table["rows"]) > 1:
                parts.append(
                    _own(f"{table['title'].split(':')[0]} on {name}", name, table["rows"], group)
                )
        if table["title"].startswith("Table 2"):
            parts.append(networks())
    protocols = [_protocols(name, group) for name, group in groups.items() if group]
    return [*parts, *curves(groups), *protocols, *([_origins(found)] if found else [])]


def _origins(found: Sequence[Record]) -> Table:
    """Every run with the code and the machine that made it, which its name does not tell."""
    called = {r.run: (str(r.choices["experiment"]), setting(r), r.seed) for r in found}
    lines = [
        Line([*map(str, called[r.run]), r.run, code_of(r), machine_of(r)])
        for r in sorted(found, key=lambda r: called[r.run])
    ]
    head = ("experiment", "setting", "seed", "run", "code", "machine")
    return Table("origins", "", "The runs behind these tables", 2, head, lines)


def _of(row: Row, group: Iterable[Record]) -> list[Record]:
    """The runs of a row's experiments in the order of their seeds, whatever became of them."""
    return sorted(
        (r for r in group if r.choices["experiment"] in row["experiments"]), key=lambda r: r.seed
    )


def runs_of(row: Row, group: Iterable[Record]) -> list[Record]:
    """Return the runs of a row that finished and were tested by its protocol."""
    tested = [
        r for r in _of(row, group) if r.status == "finished" and row["protocol"] in r.protocols
    ]
    return [r for r in tested if len(_scales(row, r)) > row.get("scale", -1)]


def _lost(row: Row, group: Iterable[Record]) -> int:
    return sum(r.status == "diverged" for r in _of(row, group))


def _scales(row: Row, record: Record) -> list[int]:
    return sorted(map(int, record.protocols[row["protocol"]].by_scale))


def result_of(row: Row, record: Record) -> Errors:
    """Return the protocol's result, or that of the row's scale in it: the first, the second ... of
    those it has."""
    result = record.protocols[row["protocol"]]
    return result.by_scale[str(_scales(row, record)[row["scale"]])] if "scale" in row else result


def label_of(row: Row, group: Sequence[Record]) -> str:
    """Return the row's name, with the scale that its runs have, or the paper's."""
    if "scale" not in row:
        return row["label"]
    scales = next((_scales(row, run) for run in runs_of(row, group)), row["papers_scales"])
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


def _beside_paper(title: str, rows: Sequence[Row], group: Sequence[Record]) -> Table:
    lines = []
    for row in rows:
        runs, lost = runs_of(row, group), _lost(row, group)
        for which in ("top1", "top5"):
            paper = paper_value(row, which)
            ours: str | Estimate = f"({lost} diverged)" if lost else "not run"
            difference = "-"
            if runs:
                ours = Estimate(
                    mean_of([getattr(result_of(row, r), f"{which}_error_pct") for r in runs]),
                    lost=lost,
                )
                if paper is not None and row.get("comparable", True):
                    difference = f"{ours.mean.mean - paper:+.2f}"
            label = f"{label_of(row, group)}, {which.replace('top', 'top-')}"
            printed = "-" if paper is None else f"{paper:.2f}"
            lines.append(
                Line([label, row["protocol"], printed, ours, difference], _names(_of(row, group)))
            )
    head = ("ImageNet val", "protocol", "paper", "ours", "difference")
    return Table("errors", PAPERS_SETTING, title, 2, head, lines)


def _names(runs: Iterable[Record]) -> list[str]:
    return [run.run for run in runs]


def _own(title: str, name: str, rows: Sequence[Row], group: Sequence[Record]) -> Table:
    """Our errors, each arm beside the one it is compared with, seed by seed on the same images."""
    by_label = {row["label"]: row for row in rows}
    lines, used = [], []
    for row in rows:
        runs, lost = runs_of(row, group), _lost(row, group)
        if not runs and not lost:
            continue
        used += _of(row, group)
        error = estimate([result_of(row, r).top1_error_pct for r in runs])
        label = label_of(row, group) + (f" ({lost} diverged)" if lost else "")
        other = by_label.get(row.get("against", ""))
        pairs = _pairs(row, other, group) if other else []
        difference = estimate([a.top1_error_pct - b.top1_error_pct for a, b in pairs], sign="+")
        cells = [label, row["protocol"], error, difference, _mcnemar(pairs)]
        lines.append(Line(cells, _names(_of(row, group))))
    against = sorted({row["against"] for row in rows if "against" in row and runs_of(row, group)})
    minus = f"minus {' or '.join(against)}, paired by seed" if against else "paired difference"
    head = ("", "protocol", "top-1 error", minus, "McNemar: only it right / only the other, p")
    images = ", ".join(
        f"{n:,}" for n in sorted({x.num_images for r in used for x in r.protocols.values()})
    )
    codes = ", ".join(sorted({code for r in used for code in r.codes}))
    shas = ", ".join(sorted({(r.provenance.git_sha or "none")[:7] for r in used}))
    note = f"Tested on {images} images. Trained by code {codes} (commit {shas})."
    return Table("errors", name, title, 3, head, lines, note)


def _pairs(row: Row, other: Row, group: Sequence[Record]) -> list[tuple[Errors, Errors]]:
    """Results of both arms for the seeds that both have, on the same data."""
    theirs = {(r.seed, r.provenance.data): r for r in runs_of(other, group)}
    paired = [(run, theirs.get((run.seed, run.provenance.data))) for run in runs_of(row, group)]
    return [(result_of(row, run), result_of(other, partner)) for run, partner in paired if partner]


def _mcnemar(pairs: Sequence[tuple[Errors, Errors]]) -> str:
    """One test a seed; they share their images, so they are shown and not pooled."""
    tests = []
    for ours, theirs in pairs:
        if not isinstance(ours, ProtocolResult) or not isinstance(
            theirs, ProtocolResult
        ):  # of one scale
            return "-"
        first, second, p = mcnemar(ours.is_correct(), theirs.is_correct())
        tests.append(
            f"{first}/{second} {f'{p:.2g}' if p > SMALLEST_P else f'below {SMALLEST_P:g}'}"
        )
    return "; ".join(tests) or "-"


def _protocols(where: str, group: Sequence[Record]) -> Table:
    """Error, calibration and cost of every protocol, over the seeds of each experiment."""
    lines = []
    finished = [r for r in group if r.status == "finished"]
    for experiment in sorted({str(r.choices["experiment"]) for r in group}):
        runs = [r for r in finished if r.choices["experiment"] == experiment]
        results = {
            name: [r.protocols[name] for r in runs if name in r.protocols]
            for r in runs
            for name in r.protocols
        }
        for protocol, found in sorted(
            results.items(), key=lambda item: (item[1][0].multiply_adds, item[0])
        ):
            measures = [
                [value for x in found if (value := getattr(x, key)) is not None] for key in MEASURES
            ]
            cost, error = f"{found[0].multiply_adds:,}", estimate([x.top1_error_pct for x in found])
            cells = [
                experiment,
                protocol,
                cost,
                error,
                *(estimate(values, 4) for values in measures),
            ]
            lines.append(Line(cells, _names(r for r in runs if protocol in r.protocols)))
    measured = ("multiply-adds an image", "top-1 error", "calibration error", "NLL", "Brier score")
    head = ("experiment", "protocol", *measured)
    return Table("protocols", where, f"Protocols and their cost on {where}", 2, head, lines)
