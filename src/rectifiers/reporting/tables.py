"""`results/TABLES.md` from records and the paper's numbers: no torch, and the same bytes from the same records."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from rectifiers.reporting.paper import published
from rectifiers.reporting.statistics import Mean, mcnemar, mean_of
from rectifiers.runs import record as records

Record = dict[str, Any]
PAPERS_DATA = "imagenet"


def why_not(record: Record) -> str | None:
    """Return why a record does not belong into a table, or None."""
    choices = record["choices"]
    if choices.get("experiment") is None:
        return "it is of no experiment"
    if choices.get("debug") is not None:
        return f"debug={choices['debug']} measures nothing"
    if record["provenance"].get("git_dirty") is not False:
        return "its code was not committed"
    return None


def load(folder: Path) -> list[Record]:
    """Read the records of a folder that belong into tables, in the order of their names."""
    found = [records.load(path) for path in sorted(folder.glob("*.json"))]
    return [record for record in found if why_not(record) is None]


def tables(found: Sequence[Record]) -> str:
    """Return the whole document."""
    rows = yaml.safe_load(Path(__file__).with_name("tables.yaml").read_text())
    parts = [
        "# Tables\n\nMade by `make table` from `results/records/`; do not edit. Errors are in percent; an interval is "
        "of 95 % over runs with different seeds (Student's t). Other data than ImageNet says nothing about the paper's "
        "numbers.\n"
    ]
    for table in rows:
        parts.append(f"## {table['title']}\n\n{_against_paper(table['rows'], found)}")
        for setting in sorted({_setting(r) for row in table["rows"] for r in _runs(row, found)} - {_PAPERS}):
            of_it = [r for r in found if _setting(r) == setting]
            parts.append(f"### {table['title'].split(':')[0]} on {setting}\n\n{_own(table['rows'], of_it)}")
    parts += [f"## Protocols and their cost on {s}\n\n{_protocols(g)}" for s, g in _by_setting(found)]
    return "\n".join(parts)


def _runs(row: dict[str, Any], found: Iterable[Record]) -> list[Record]:
    """The runs that answer a row, one a seed."""
    runs = [r for r in found if r["choices"]["experiment"] in row["experiments"] and row["protocol"] in r["protocols"]]
    return sorted(runs, key=_seed)


def _trained(record: Record) -> Record:
    """The record itself, or the first of the runs that an ensemble is made of."""
    return record["members"][0] if "members" in record else record


def _seed(record: Record) -> int:
    return _trained(record)["science"]["seed"]


_PAPERS = "the paper's setting"


def _setting(record: Record) -> str:
    """The data, and in what the run is smaller than the paper's."""
    trained = _trained(record)
    science = trained["science"]
    data, width, epochs = record["choices"]["data"], science["model"]["width"], science["optim"]["epochs"]
    if data == PAPERS_DATA and width == 1:
        return _PAPERS
    images = next(iter(record["protocols"].values()))["seen"] if record["protocols"] else 0
    return (
        f"{data} (width {width:g}, {science['data']['crop_px']} px, {epochs} epoch{'s' * (epochs != 1)} of "
        f"{trained['train_images']:,} images, {images:,} test images)"
    )


def _by_setting(found: Sequence[Record]) -> list[tuple[str, list[Record]]]:
    return [(s, [r for r in found if _setting(r) == s]) for s in sorted({_setting(r) for r in found})]


def _result(row: dict[str, Any], record: Record) -> dict[str, Any]:
    result = record["protocols"][row["protocol"]]
    return result["by_scale"][row["scale"]] if "scale" in row else result


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def _interval(mean: Mean, digits: int = 2, sign: str = "") -> str:
    text = f"{mean.mean:{sign}.{digits}f}"
    if mean.low is None:
        return f"{text} (n = 1)"
    return f"{text} ({mean.low:{sign}.{digits}f} to {mean.high:{sign}.{digits}f}, n = {mean.n})"


def _published(row: dict[str, Any], which: str) -> float | None:
    """The paper's number, or None where it prints none or it is only recalled."""
    path = f"{row['paper']}{'' if row['paper'].endswith('_') else '.'}{which}"
    *parents, leaf = path.split(".")
    node: Any = published()
    for key in parents:
        node = node[key]
    entry = node.get(leaf)
    return None if entry is None or entry["confidence"] == "recalled" else entry["value"]


def _against_paper(rows: Sequence[dict[str, Any]], found: Sequence[Record]) -> str:
    lines = []
    for row in rows:
        runs = [r for r in _runs(row, found) if _setting(r) == _PAPERS and r["status"] == "finished"]
        for which in ("top1", "top5"):
            paper = _published(row, which)
            line = [
                f"{row['label']}, {which.replace('top', 'top-')}",
                row["protocol"],
                "-" if paper is None else f"{paper:.2f}",
            ]
            if runs:
                ours = mean_of([_result(row, r)[f"{which}_error_pct"] for r in runs])
                paper = paper if row.get("comparable", True) else None
                line += [_interval(ours), "-" if paper is None else f"{ours.mean - paper:+.2f}"]
            else:
                line += ["not run", "-"]
            lines.append(line)
    return _markdown(("ImageNet val", "protocol", "paper", "ours", "difference"), lines)


def _own(rows: Sequence[dict[str, Any]], found: Sequence[Record]) -> str:
    """Our errors on other data, each arm beside the one it is compared with, seed by seed on the same images."""
    by_label = {row["label"]: row for row in rows}
    lines = []
    for row in rows:
        runs = [r for r in _runs(row, found) if r["status"] == "finished"]
        if not runs:
            continue
        lost = len(_runs(row, found)) - len(runs)
        label = row["label"] + (f" ({lost} diverged)" if lost else "")
        line = [label, row["protocol"], _interval(mean_of([_result(row, r)["top1_error_pct"] for r in runs]))]
        other = by_label.get(row.get("against", ""))
        pairs = _pairs(row, other, found) if other else []
        if pairs:
            differences = [a["top1_error_pct"] - b["top1_error_pct"] for a, b in pairs]
            line += [_interval(mean_of(differences), sign="+"), _mcnemar(pairs)]
        else:
            line += ["-", "-"]
        lines.append(line)
    against = sorted({row["against"] for row in rows if "against" in row})
    head = (
        "",
        "protocol",
        "top-1 error",
        f"minus {' or '.join(against)}, paired by seed",
        "McNemar: only it right / only the other, p",
    )
    codes = sorted({code for r in found for code in r["codes"]})
    shas = sorted({r["provenance"]["git_sha"][:7] for r in found})
    return _markdown(head, lines) + f"\nTrained by code {', '.join(codes)} (commit {', '.join(shas)}).\n"


def _pairs(row: dict[str, Any], other: dict[str, Any], found: Sequence[Record]) -> list[tuple[Any, Any]]:
    """Results of both arms for the seeds that both have, on the same data."""
    theirs = {(_seed(r), r["provenance"]["data"]): r for r in _runs(other, found) if r["status"] == "finished"}
    pairs = []
    for run in _runs(row, found):
        partner = theirs.get((_seed(run), run["provenance"]["data"]))
        if partner and run["status"] == "finished":
            pairs.append((_result(row, run), _result(other, partner)))
    return pairs


def _mcnemar(pairs: Sequence[tuple[Any, Any]]) -> str:
    """One test a seed; they share their images, so they are shown and not pooled."""
    told = []
    for ours, theirs in pairs:
        if "top1_hits" not in ours or "top1_hits" not in theirs:
            return "-"
        first, second, p = mcnemar(hits(ours), hits(theirs))
        told.append(f"{first}/{second} {p:.2g}")
    return "; ".join(told)


def hits(result: dict[str, Any]) -> list[bool]:
    """Return which images of the split a result has right, in the split's order."""
    bits = "".join(f"{int(digit, 16):04b}" for digit in result["top1_hits"])
    return [bit == "1" for bit in bits[: result["seen"]]]


def _protocols(found: Sequence[Record]) -> str:
    """Error, calibration and cost of every protocol, over the seeds of each experiment."""
    lines = []
    for experiment in sorted({r["choices"]["experiment"] for r in found}):
        runs = [r for r in found if r["choices"]["experiment"] == experiment and r["status"] == "finished"]
        names = {name for r in runs for name in r["protocols"]}
        cost = {
            name: next(r["protocols"][name]["multiply_adds"] for r in runs if name in r["protocols"]) for name in names
        }
        for name in sorted(names, key=lambda name: (cost[name], name)):
            results = [r["protocols"][name] for r in runs if name in r["protocols"]]
            measures = [[x[key] for x in results if x[key] is not None] for key in ("ece", "nll", "brier")]
            lines.append(
                [
                    experiment,
                    name,
                    f"{cost[name]:,}",
                    _interval(mean_of([x["top1_error_pct"] for x in results])),
                    *(_interval(mean_of(values), 4) if values else "-" for values in measures),
                ]
            )
    head = (
        "experiment",
        "protocol",
        "multiply-adds an image",
        "top-1 error",
        "calibration error",
        "NLL",
        "Brier score",
    )
    return _markdown(head, lines)
