"""The records of the claims' runs, one compressed file per claim, and small tables of what the
claims measure of them.

`results/claims/<claim>.jsonl.xz` holds one record per line, sorted by run id: those that were run
as `experiment=claim/<claim>`. An arm that several claims share is in one file only. A file is
written when its claim's runs are collected and not again when another claim changes, because git
keeps every version of a compressed file in full. `results/claims/<claim>.csv`, made from all
records, has one line per run of the claim. The former is the truth, the latter is for readers and
reviews."""

import csv
import io
import lzma
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rectifiers.results.claims import Claim, arm_hash, claim_exclusion_reason, runs_of
from rectifiers.results.eligibility import CLAIM, known
from rectifiers.results.measures import MEASURES, error, has_diverged
from rectifiers.results.origin import code_of, machine_of
from rectifiers.runs import record as records
from rectifiers.runs.record import Record, TrainingRecord
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import atomic_file

SUFFIX = ".jsonl.xz"
XZ_PRESET = 6  # fixed, so that equal records give equal bytes
MOST_NAMED = 20  # unusable lines
LARGEST_BYTES = 2**28  # of one file, unpacked


def owner(record: Record) -> str:
    """Return the claim whose file holds the record: the one that ran it, else the first by name
    that has its arm.

    Raises:
        InputError: where no claim has it.
    """
    claim_arms = known()["claims"]
    name = str(record.choices.get("experiment")).removeprefix(CLAIM)
    if name in claim_arms:
        return name
    arm = arm_hash(record.science)
    for name in sorted(claim_arms):
        if arm in claim_arms[name].values():
            return name
    raise InputError(f"run {record.run} is of no claim; collect the runs of `claims.py run`")


def load(folder: Path) -> list[TrainingRecord]:
    """Return the records in `folder` that answer claims, sorted by run id; none where there are no
    files.

    An unusable line is skipped with a warning on stderr; more than twenty are counted.

    Raises:
        InputError: where a file cannot be read.
    """
    loaded, unusable = [], []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        for number, line in enumerate(_lines(path), start=1):
            try:
                record = records.parse(line)
            except ValueError as error:
                unusable.append(f"line {number} of {path} is not a usable record ({error})")
                continue
            if isinstance(record, TrainingRecord) and claim_exclusion_reason(record) is None:
                loaded.append(record)
    for warning in unusable[:MOST_NAMED]:
        print(f"left out: {warning}", file=sys.stderr)
    if len(unusable) > MOST_NAMED:
        print(
            f"left out: {len(unusable) - MOST_NAMED:,} more lines of {folder}; take the committed "
            "files of this version of the code",
            file=sys.stderr,
        )
    return sorted(loaded, key=lambda record: record.run)


def _lines(path: Path) -> list[bytes]:
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


def add(folder: Path, new: Iterable[Record]) -> list[Path]:
    """Add records to their claims' files in `folder`, and return the files that changed.

    A record replaces an earlier one of the same run, in the file that has it. Files without a new
    record are not written.

    Raises:
        InputError: where a line of a file is no record, which would be lost; nothing is written.
    """
    committed: dict[str, dict[str, Record]] = {}
    file_of: dict[str, str] = {}  # a run's claim
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        claim = path.name.removesuffix(SUFFIX)
        try:
            committed[claim] = {record.run: record for record in map(records.parse, _lines(path))}
        except ValueError as error:
            raise InputError(
                f"{path} holds what is no record ({error}); take the committed one"
            ) from error
        file_of.update(dict.fromkeys(committed[claim], claim))
    changed: dict[str, dict[str, Record]] = {}
    for record in new:
        claim = file_of.get(record.run) or owner(record)
        if committed.get(claim, {}).get(record.run) != record:
            changed.setdefault(claim, dict(committed.get(claim, {})))[record.run] = record
    packed: dict[Path, bytes] = {}
    for claim, by_run in changed.items():
        lines = [records.to_json(record) + "\n" for _, record in sorted(by_run.items())]
        packed[folder / f"{claim}{SUFFIX}"] = lzma.compress(
            "".join(lines).encode(), preset=XZ_PRESET
        )
    for path, content in packed.items():
        with atomic_file(path) as file:
            file.write(content)
    return list(packed)


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
