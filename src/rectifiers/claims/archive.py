"""The records of the claims' runs, in compressed files.

`results/claims/<claim>/records.jsonl.xz` holds one record per line, sorted by run id: those that
were run as `claim=<claim>`, and not again those that another claim shares. Runs that are collected
later go to `records.2.jsonl.xz` and so on, because git keeps every version of a compressed file in
full. The folder `ensembles` holds the averages of several claims' runs.
"""

import functools
import hashlib
import itertools
import lzma
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rectifiers.claims.claims import PLACE, Claim, claims, start_of
from rectifiers.results.frame import (
    CLAIM,
    RESULTS,
    experiment_of,
    protocol_exclusion_reason,
)
from rectifiers.runs import record as records
from rectifiers.runs.identity import arm_hash
from rectifiers.runs.record import EnsembleRecord, Member, Record, TrainingRecord
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import atomic_file, load_yaml, read_bytes

RECORDS = RESULTS / "claims"
RECORDS_NAME = re.compile(r"records(\.\d+)?\.jsonl\.xz")
SUFFIX = ".jsonl.xz"
ENSEMBLES = "ensembles"
XZ_PRESET = 6  # fixed, so that equal records give equal bytes
LARGEST_BYTES, LARGEST_PACKED = 2**28, 2**26  # of one file, unpacked and as it lies there
Runs = Mapping[str, Mapping[int, TrainingRecord]]  # by arm and seed
_ARMS: dict[str, str] = {}  # by run


def arm_of(run: TrainingRecord | Member) -> str:
    """Return the hash of a run's arm. It is kept by run, whose name holds its science."""
    if run.run not in _ARMS:
        _ARMS[run.run] = arm_hash(run.science)
    return _ARMS[run.run]


def arms_path(claim: Claim) -> Path:
    """Return the file that holds the hashes of the claim's arms."""
    return folder_of(RECORDS, claim.name) / "arms.yaml"


def digest(claim: Claim) -> str:
    """Return the hash of the claim's file, from which the hashes of its arms follow."""
    return hashlib.sha256((PLACE / f"{claim.name}.yaml").read_bytes()).hexdigest()[:12]


@functools.cache
def arm_hashes() -> dict[str, dict[str, str]]:
    """Return the hashes of the arms of each claim, those of its search among them, by name.

    `scripts/report.py claims` writes them to `results/claims/<claim>/arms.yaml`."""
    paths = {claim.name: arms_path(claim) for claim in claims()}
    known = {name: path for name, path in paths.items() if path.exists()}
    return {name: load_yaml(path.read_text())["arms"] for name, path in known.items()}


def claim_exclusion_reason(record: Record) -> str | None:
    """Return why a record, of a run or of an ensemble of runs, is of no claim, or None."""
    if record.choices.get("debug") is not None:
        return "it is of no claim"
    for run in record.trainings:
        arm = arm_of(run)
        if not any(arm in arms.values() for arms in arm_hashes().values()):
            return "its configuration is no claim's"
        if run.science["data"].get("split_seed", run.seed) != run.seed:
            return "its images are split by another seed than its own"
    tests = record.protocols.values()
    if record.provenance.git_dirty is not False or any(test.git_dirty for test in tests):
        return "its code was not committed"
    # a claim may choose other settings, a table not
    return protocol_exclusion_reason(record) if isinstance(record, EnsembleRecord) else None


def runs_of(claim: Claim, records: Iterable[TrainingRecord]) -> Runs:
    """Return the claim's runs; those of the seeds that it asks for."""
    hashes = arm_hashes().get(claim.name, {})
    if not hashes.keys() >= set(claim.arms):
        raise InputError(
            f"claim/{claim.name} has arms that are not known; call python scripts/report.py claims"
        )
    by_hash = _by_arm(records, hashes)
    return {arm: _of_seeds(by_hash[hashes[arm]], claim.seeds_of(arm)) for arm in claim.arms}


def search_runs(claim: Claim, records: Iterable[TrainingRecord]) -> Runs:
    """Return the runs that choose the claim's learning rates, by `Claim.searched` and seed."""
    hashes = arm_hashes().get(claim.name, {})
    by_hash, seeds = _by_arm(records, hashes), claim.search.seeds if claim.search else ()
    known = (name for name in claim.searched() if name in hashes)
    return {name: _of_seeds(by_hash[hashes[name]], seeds) for name in known}


def check_starts(claim: Claim, records: Sequence[TrainingRecord]) -> None:
    """Check that each run of an arm that starts from another arm's weights started from the run of
    its seed, as its record says, and that there is one such run."""
    hashes = arm_hashes().get(claim.name, {})
    for arm, overrides in {**claim.arms, **claim.searched()}.items():
        if arm not in hashes or not (source := start_of(overrides)):
            continue
        trained = _by_arm(records, hashes)[hashes[source]]
        started: dict[int, TrainingRecord] = {}
        for run in (record for record in records if arm_of(record) == hashes[arm]):
            label = f"claim/{claim.name}: run {run.run} of arm {arm}"
            if (first := started.setdefault(run.seed, run)) is not run:
                raise InputError(
                    f"{label} and run {first.run} have one seed and start from different weights; "
                    "remove the record of one"
                )
            if run.seed not in trained:
                raise InputError(
                    f"{label} starts from the run of arm {source} with seed {run.seed}, whose "
                    "record is missing; collect it, too"
                )
            name = trained[run.seed].run
            if not any(f"run {name} " in sentence for sentence in run.warnings):
                raise InputError(
                    f"{label} did not start from run {name} of arm {source}; remove its record, "
                    "and make it again"
                )


def neighbours() -> dict[str, list[str]]:
    """Return by the hash of an arm those of its neighbours in the grid of learning rates, which any
    claim may name."""
    by_arm: dict[str, list[str]] = {}
    for claim in claims():
        hashes = arm_hashes().get(claim.name, {})
        for arm, others in claim.neighbours.items():
            if arm in hashes:
                known = [hashes[other] for other in others if other in hashes]
                by_arm.setdefault(hashes[arm], []).extend(known)
    return by_arm


def neighbouring_runs(
    records: Iterable[TrainingRecord],
) -> dict[str, list[Mapping[int, TrainingRecord]]]:
    """Return by the hash of an arm the runs of each of its neighbours, by seed."""
    by_arm = neighbours()
    runs = _by_arm(records, {other: other for others in by_arm.values() for other in others})
    return {arm: [runs[other] for other in others] for arm, others in by_arm.items()}


def _by_arm(
    records: Iterable[TrainingRecord], arms: Mapping[str, str]
) -> dict[str, dict[int, TrainingRecord]]:
    """The records of these arms, by the hash of their arm and by seed."""
    by_hash: dict[str, dict[int, TrainingRecord]] = {hash_: {} for hash_ in arms.values()}
    for record in records:
        if (arm := arm_of(record)) in by_hash:
            by_hash[arm][record.seed] = record
    return by_hash


def _of_seeds(
    runs: Mapping[int, TrainingRecord], seeds: Sequence[int]
) -> dict[int, TrainingRecord]:
    """Those of an arm's runs that have one of these seeds."""
    return {seed: run for seed, run in runs.items() if seed in seeds}


def owner(record: Record) -> str:
    """Return the name of the folder that holds the record: that of the claim that ran it, else of
    the first by name that has its arm; ensembles have one of their own."""
    if isinstance(record, EnsembleRecord):
        return ENSEMBLES
    arms = arm_hashes()
    name = str(experiment_of(record.choices)).removeprefix(CLAIM)
    owners = [name] if name in arms else []
    owners += [name for name in sorted(arms) if arm_of(record) in arms[name].values()]
    if not owners:
        raise InputError(f"run {record.run} is of no claim; collect the runs of `claims.py run`")
    return owners[0]


def load(folder: Path) -> list[TrainingRecord]:
    """Return the records in `folder` that answer claims, sorted by run id."""
    found = _read_usable(files(folder))
    return [record for record in found if isinstance(record, TrainingRecord)]


def load_ensembles(folder: Path) -> list[EnsembleRecord]:
    """Return the records in `folder` of ensembles of claims' runs, sorted by id."""
    found = _read_usable(files(folder, ENSEMBLES))
    return [record for record in found if isinstance(record, EnsembleRecord)]


def _read_usable(paths: Iterable[Path]) -> list[Record]:
    found = (record for path in paths for record in read(path))
    usable = (record for record in found if claim_exclusion_reason(record) is None)
    return sorted(usable, key=lambda record: record.run)


def files(folder: Path, claim: str = "*") -> list[Path]:
    """Return the files of records below a folder, of one claim or of all."""
    paths = folder.glob(f"{claim}/records*{SUFFIX}")
    return sorted(path for path in paths if RECORDS_NAME.fullmatch(path.name))


def folder_of(folder: Path, name: str) -> Path:
    """Return the folder of a claim; raise an InputError where it is a link: nothing is written
    through one."""
    if (place := folder / name).is_symlink():
        raise InputError(f"{place} is a link; put the claim's folder in its place")
    return place


def strays(folder: Path) -> set[Path]:
    """Return what lies below a folder of claims and belongs to none, and what is made for one."""
    names = {ENSEMBLES, *(claim.name for claim in claims())}
    places = {folder_of(folder, name) for name in names}
    inside = {path for place in places for path in place.glob("*")}
    return (set(folder.iterdir()) - places) | (inside - set(files(folder)))


def read(path: Path) -> list[Record]:
    """Return the records of a claim's file, which anybody may have made."""
    try:
        unpacking = lzma.LZMADecompressor()
        packed = read_bytes(path, LARGEST_PACKED)
        content = unpacking.decompress(packed, max_length=LARGEST_BYTES)
        if not unpacking.eof:
            raise lzma.LZMAError(f"it is cut, or holds more than {LARGEST_BYTES:,} bytes")
        return list(map(records.parse, content.splitlines()))
    except (OSError, lzma.LZMAError, ValueError) as error:
        message = f"{path} is not a usable file of records ({error}); take the committed one"
        raise InputError(message) from error


def add(folder: Path, new: Iterable[Record]) -> list[Path]:
    """Add records to their claims' files in `folder`, and return the files that changed.

    A record replaces an earlier one of the same run, in the file that has it; those of other runs
    get a new file. Files without a new record are not written."""
    committed = {path: {record.run: record for record in read(path)} for path in files(folder)}
    path_of = {run: path for path, by_run in committed.items() for run in by_run}
    changed = set()
    for record in new:
        path = path_of.get(record.run) or _next_path(folder, owner(record))
        by_run = committed.setdefault(path, {})
        if by_run.get(record.run) != record:
            by_run[record.run] = record
            changed.add(path)

    packed: dict[Path, bytes] = {}  # before the first is written, so that an error writes none
    for path in sorted(changed):
        by_run = committed[path]
        lines = "".join(records.to_json(by_run[run]) + "\n" for run in sorted(by_run))
        packed[path] = lzma.compress(lines.encode(), preset=XZ_PRESET)

    for path, content in packed.items():
        with atomic_file(path) as file:
            file.write(content)
    return list(packed)


def _next_path(folder: Path, claim: str) -> Path:
    """Return the first file of a claim's that is not there."""
    names = itertools.chain(["records"], (f"records.{part}" for part in itertools.count(2)))
    place = folder_of(folder, claim)
    paths = (place / f"{name}{SUFFIX}" for name in names)
    return next(path for path in paths if not path.exists())
