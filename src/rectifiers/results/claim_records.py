"""The records of the claims' runs in one compressed file, and small tables of what the claims
measure of them.

`results/claims/records.jsonl.xz` holds a record per line, sorted by the runs' names;
`results/claims/<claim>.csv`, made from it, a line per run of the claim. The former is the truth,
the latter is for readers and reviews."""

import csv
import io
import lzma
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rectifiers.results.claims import Claim, claim_exclusion_reason, runs_of
from rectifiers.results.measures import MEASURES, error, has_diverged
from rectifiers.results.origin import code_of, machine_of
from rectifiers.runs import record as records
from rectifiers.runs.record import Record, TrainingRecord
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import atomic_file

FILE = "records.jsonl.xz"
MOST_NAMED = 20  # lines that are no records
LARGEST_BYTES = 2**30  # of all records, unpacked


def load(folder: Path) -> list[TrainingRecord]:
    """Return the records in `folder` that answer claims, in the order of their names; none where
    there is no file.

    A line that is no record is left out, with a sentence on stderr; of more than twenty the rest
    are counted.

    Raises:
        InputError: where the file cannot be read.
    """
    found, unusable = [], []
    for number, line in enumerate(_lines(folder), start=1):
        try:
            record = records.parse(line)
        except ValueError as error:
            unusable.append(f"line {number} of {folder / FILE} is not a usable record ({error})")
            continue
        if isinstance(record, TrainingRecord) and claim_exclusion_reason(record) is None:
            found.append(record)
    for each in unusable[:MOST_NAMED]:
        print(f"left out: {each}", file=sys.stderr)
    if len(unusable) > MOST_NAMED:
        more = f"{len(unusable) - MOST_NAMED:,} more"
        print(
            f"left out: {more} of its lines; take the committed file of this version of the code",
            file=sys.stderr,
        )
    return found


def _lines(folder: Path) -> list[bytes]:
    path = folder / FILE
    if not path.exists():
        return []
    try:
        unpacking = lzma.LZMADecompressor()
        content = unpacking.decompress(path.read_bytes(), max_length=LARGEST_BYTES)
        if not unpacking.eof:
            raise lzma.LZMAError(f"it is cut, or holds more than {LARGEST_BYTES:,} bytes")
        return content.splitlines()
    except (OSError, lzma.LZMAError) as error:
        raise InputError(
            f"{path} is not a usable file of records ({error}); take the committed one"
        ) from error


def add(folder: Path, new: Iterable[Record]) -> None:
    """Add records to the file in `folder`, each in place of an earlier one of the same run; all of
    them or none.

    Raises:
        InputError: where a line of the file is no record, which would be lost.
    """
    try:
        before = {record.run: record for record in map(records.parse, _lines(folder))}
    except ValueError as error:
        raise InputError(
            f"{folder / FILE} holds what is no record ({error}); take the committed one"
        ) from error
    after = before | {record.run: record for record in new}
    if after == before:
        return
    lines = [records.to_json(record) + "\n" for _, record in sorted(after.items())]
    with atomic_file(folder / FILE) as file:
        file.write(lzma.compress("".join(lines).encode()))


def as_csv(claim: Claim, found: Iterable[TrainingRecord]) -> str:
    """Return the runs of a claim as CSV: where each comes from, what the tests measure of it, and
    its error in percent.

    A measure is left empty where it does not exist, or where no test asks the arm for it.
    """
    measures = list(dict.fromkeys(test.measure_name() for test in claim.tests))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["seed", "arm", "run", "code", "machine", *measures, "top1_error_pct", "diverged"]
    )
    for arm, runs in runs_of(claim, found).items():
        tests = {test.measure_name(): test for test in claim.tests if arm in test.arms()}
        for seed, record in sorted(runs.items()):
            values = {
                name: MEASURES[test.measure](record, **test.settings)
                for name, test in tests.items()
            }
            where = [seed, arm, record.run, code_of(record), machine_of(record)]
            # a claim need not ask for the centre
            centre = error(record) if has_diverged(record) or "center" in record.protocols else None
            writer.writerow([*where, *map(values.get, measures), centre, has_diverged(record)])
    return text.getvalue()


def tables(
    folder: Path, claims: Iterable[Claim], found: Sequence[TrainingRecord]
) -> dict[Path, str]:
    """Return the text of `<claim>.csv` for every claim that has tests, by its path."""
    return {folder / f"{claim.name}.csv": as_csv(claim, found) for claim in claims if claim.tests}
