"""One run's errors beside the numbers that the paper prints for its experiment."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rectifiers.results.eligibility import PAPERS_SETTING, exclusion_reason, setting
from rectifiers.results.origin import code_of, machine_of
from rectifiers.results.statistics import error_interval_pct
from rectifiers.results.tables import label_of, layout, paper_value, result_of
from rectifiers.runs.record import Record
from rectifiers.runs.record_parts import Errors


@dataclass(frozen=True)
class Comparison:
    """An error of a run in percent, with its 95 % interval over the n test images, and the paper's
    value if it has one.

    difference: ours minus the paper's, only where the run is at the paper's setting and the row can
    be compared.
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
    """Return every row of the tables that this run is a part of; then its other protocols, with no
    paper's value."""
    rows: list[Comparison] = []
    is_eligible = exclusion_reason(record) is None
    is_whole = is_eligible and setting(record) == PAPERS_SETTING
    for table in layout() if is_eligible else ():
        for row in table["rows"]:
            result = result_of(row, record)
            if result is not None and record.choices["experiment"] in row["experiments"]:
                name = f"{table['title'].partition(':')[0]}: {label_of(row, [record])}"
                paper = {measure: paper_value(row, measure) for measure in ("top1", "top5")}
                is_comparable = is_whole and row.get("comparable", True)
                rows += _errors(record, name, row["protocol"], result, paper, is_comparable)
    in_tables = {comparison.protocol for comparison in rows}
    for protocol, tested in sorted(record.protocols.items()):
        if protocol not in in_tables:
            rows += _errors(record, "", protocol, tested, {"top1": None, "top5": None}, False)
    return rows


def _errors(
    record: Record,
    row: str,
    protocol: str,
    result: Errors,
    paper: Mapping[str, float | None],
    is_comparable: bool,
) -> Iterator[Comparison]:
    for measure, printed in paper.items():
        measured, correct = (
            getattr(result, f"{measure}_error_pct"),
            getattr(result, f"{measure}_correct"),
        )
        if measured is not None and correct is not None:
            n = result.num_images
            interval = error_interval_pct(n - correct, n)
            difference = measured - printed if is_comparable and printed is not None else None
            label, origin = measure.replace("top", "top-"), (code_of(record), machine_of(record))
            yield Comparison(
                row, protocol, label, printed, measured, n, *interval, difference, *origin
            )
