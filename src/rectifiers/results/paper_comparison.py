"""One run's errors beside the numbers that the paper prints for its experiment."""

from dataclasses import dataclass

from rectifiers.results.eligibility import PAPERS_SETTING, exclusion_reason, setting
from rectifiers.results.origin import code_of, machine_of
from rectifiers.results.statistics import error_interval_pct
from rectifiers.results.tables import label_of, layout, paper_value, result_of, runs_of
from rectifiers.runs.record import Record
from rectifiers.runs.record_parts import Errors


@dataclass(frozen=True)
class Comparison:
    """An error of a run in percent, with its 95 % interval over the n test images, and the paper's value if it has one.

    difference: ours minus the paper's, only where the run is at the paper's setting and the row can be compared.
    code, machine: of the run, whose name does not tell them.
    """

    row: str
    protocol: str
    measure: str
    paper: float | None
    measured: float
    n: int
    low: float
    high: float
    difference: float | None
    code: str
    machine: str


def paper_comparison(record: Record) -> list[Comparison]:
    """Return every row of the tables that this run is a part of; then its other protocols, with no paper's value."""
    found, used = [], set()
    counts = exclusion_reason(record) is None
    papers_setting = counts and setting(record) == PAPERS_SETTING
    for table in layout() if counts else ():
        for row in table["rows"]:
            if runs_of(row, [record]):
                used.add(row["protocol"])
                comparable = papers_setting and row.get("comparable", True)
                name = f"{table['title'].partition(':')[0]}: {label_of(row, [record])}"
                result = result_of(row, record)
                protocol = row["protocol"]
                found += [_compare(record, name, protocol, w, result, paper_value(row, w), comparable) for w in WHICH]
    for name, result in sorted(record.protocols.items()):
        if name not in used:
            found += [_compare(record, "", name, which, result, None, False) for which in WHICH]
    return [comparison for comparison in found if comparison is not None]


WHICH = ("top1", "top5")


def _compare(
    record: Record, row: str, protocol: str, which: str, result: Errors, paper: float | None, comparable: bool
) -> Comparison | None:
    top1 = which == "top1"
    measured = result.top1_error_pct if top1 else result.top5_error_pct
    correct = result.top1_correct if top1 else result.top5_correct
    if measured is None or correct is None:
        return None
    n = result.num_images
    low, high = error_interval_pct(n - correct, n)
    difference = measured - paper if comparable and paper is not None else None
    numbers = (paper, measured, n, low, high, difference)
    return Comparison(row, protocol, which.replace("top", "top-"), *numbers, code_of(record), machine_of(record))
