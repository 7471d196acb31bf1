"""The claims' records in their files, and the small tables that are made of them."""

import csv
import lzma
import os
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from committed import CLAIMS
from made_up import altered, ensemble, training
from rectifiers.claims.archive import (
    add,
    check_starts,
    claim_exclusion_reason,
    files,
    load,
    load_ensembles,
    owner,
    read,
    runs_of,
    strays,
)
from rectifiers.claims.claims import claims
from rectifiers.claims.documents import for_tables, runs_csv
from rectifiers.claims.figures import description
from rectifiers.claims.judge import answer
from rectifiers.cli.composition import compose_job
from rectifiers.results.documents import shows
from rectifiers.results.tables import document, layout, render_markdown
from rectifiers.runs.identity import science
from rectifiers.runs.record import TrainingRecord, to_json
from refusals import refused

SIGNAL, MODEL_A = (
    next(claim for claim in claims() if claim.name == name)
    for name in ("signal", "imagenette_model_a")
)
RECORDS = [
    record
    for path in chain(files(CLAIMS, SIGNAL.name), files(CLAIMS, MODEL_A.name))
    for record in read(path)
    if isinstance(record, TrainingRecord)
]


def signal_records(count: int) -> list[TrainingRecord]:
    """Return records that the claim `signal` ran, sorted by run id."""
    return [record for record in RECORDS if owner(record) == "signal"][:count]


def test_loading_returns_the_records_that_were_added(tmp_path: Path) -> None:
    one, two, three = signal_records(3)
    add(tmp_path / "a", [three, one, two])
    add(tmp_path / "b", [one, two, three])
    assert load(tmp_path / "a") == [one, two, three]
    for path in files(tmp_path / "a"):
        other = tmp_path / "b" / path.relative_to(tmp_path / "a")
        assert path.read_bytes() == other.read_bytes()


def test_later_runs_get_a_file_of_their_own(tmp_path: Path) -> None:
    records = signal_records(4)
    first, second, third = (tmp_path / "signal" / f"records{n}.jsonl.xz" for n in ("", ".2", ".3"))
    assert add(tmp_path, records[:2]) == [first]
    before = first.read_bytes()
    assert add(tmp_path, records[1:3]) == [second]
    assert add(tmp_path, records[3:]) == [third]
    assert add(tmp_path, records) == []
    assert first.read_bytes() == before
    assert load(tmp_path) == records


def test_ensembles_of_a_rows_arms_stand_in_it(tmp_path: Path, monkeypatch) -> None:
    runs = runs_of(MODEL_A, RECORDS)
    data = {"experiment": None, "debug": None, "data": "imagenette"}
    whole = ensemble(runs["relu"][0], runs["prelu"][0], choices=data)
    mixed = ensemble(runs["relu"][0], runs["prelu"][1], choices=data)
    seeds = ensemble(runs["relu"][0], runs["relu"][1], choices=data)
    other = ensemble(runs["relu"][1], runs["prelu"][1], choices=data)
    refused = {
        "of no claim": {"choices.debug": "smoke"},
        "not committed": {"protocols.ten_view.git_dirty": True},
        "other settings": {"protocols.ten_view.settings.scale_px": 112},
    }
    bad = [altered(other, changes) for changes in refused.values()]
    for record, reason in zip(bad, refused, strict=True):
        assert reason in str(claim_exclusion_reason(record))
    everything = [whole, mixed, seeds]
    assert add(tmp_path, everything) == [tmp_path / "ensembles" / "records.jsonl.xz"]
    assert load(tmp_path) == []
    found = load_ensembles(tmp_path)
    assert found == sorted([whole, mixed, seeds], key=lambda record: record.run)
    (table,) = (table for table in layout() if table["title"].startswith("Table 7"))
    row = {**table["rows"][0], "members": [[MODEL_A.name, arm] for arm in MODEL_A.arms]}
    tables = [{**table, "rows": [row]}]
    monkeypatch.setattr("rectifiers.claims.documents.layout", lambda: tables)
    shown = for_tables(RECORDS, found)
    assert [record.run for record in shown] == [whole.run]
    text = render_markdown(document(shown))
    error = runs["relu"][0].protocols["dense_multi_scale"].top1_error_pct  # of the first member
    assert f"top-1 | dense_multi_scale | - | {error:.2f} (n = 1) |" in text


CONTENT = "from_weights_content"


def test_a_run_that_started_from_other_weights_is_found() -> None:
    claim = next(claim for claim in claims() if claim.name == "cifar_deepening")

    def made(arm: str, seed: int, **more: Any) -> TrainingRecord:
        config, _ = compose_job((f"claim={claim.name}", *claim.arms[arm], f"seed={seed}"))
        images = {"train": 100, "val": 50, "test": 50}
        return training(science=science(config), images=images, **more)

    shallow = [made("shallow", seed) for seed in (0, 1)]
    right = made("deepened", 0, warnings=[f"14 layers start from run {shallow[0].run} (conv1)"])
    check_starts(claim, [*shallow, right])
    wrong = made("deepened", 0, warnings=[f"14 layers start from run {shallow[1].run} (conv1)"])
    with refused(f"{wrong.run} of arm deepened did not start from run"):
        check_starts(claim, [*shallow, wrong])
    with refused("shallow with seed 0, whose record is missing"):
        check_starts(claim, [shallow[1], right])
    other = altered(right, {"science.init": {**right.science["init"], CONTENT: "0" * 32}})
    with refused("have one seed and start from different weights"):
        check_starts(claim, [*shallow, right, other])


def test_what_belongs_to_no_claim_is_found(tmp_path: Path) -> None:
    add(tmp_path, signal_records(1))
    assert strays(tmp_path) == set()
    names = ("stray.md", "gone/records.jsonl.xz", "signal/records.old.jsonl.xz", "signal/page.md")
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    found = {tmp_path / name for name in ("stray.md", "gone", *names[2:])}
    assert strays(tmp_path) == found


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    place = tmp_path / "claims"
    place.mkdir()
    (place / "signal").symlink_to(tmp_path / "elsewhere")
    for action in (lambda: add(place, signal_records(1)), lambda: strays(place)):
        with refused("signal is a link"):
            action()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_rerun_stays_in_its_file(tmp_path: Path) -> None:
    (record,) = signal_records(1)
    add(tmp_path, [record])
    rerun = altered(record, {"wall_s": 1.5, "choices.claim": "xavier14"})
    assert owner(rerun) == "xavier14"
    assert add(tmp_path, [rerun]) == [tmp_path / "signal" / "records.jsonl.xz"]
    assert load(tmp_path) == [rerun]


def test_failed_add_changes_no_file(tmp_path: Path) -> None:
    one, two = signal_records(2)
    add(tmp_path, [one, two])
    before = (tmp_path / "signal" / "records.jsonl.xz").read_bytes()
    wrong = two.model_copy(update={"wall_s": float("nan")})
    with pytest.raises(ValueError, match="expected value"):
        add(tmp_path, [altered(one, {"wall_s": 1.5}), wrong])
    assert (tmp_path / "signal" / "records.jsonl.xz").read_bytes() == before


@pytest.mark.parametrize("content", ["", "no xz", "{}", "\xff", "bomb", "giant", "link", "pipe"])
def test_damaged_file_is_never_overwritten(tmp_path: Path, monkeypatch, content: str) -> None:
    one, two = signal_records(2)
    path = tmp_path / "signal" / "records.jsonl.xz"
    path.parent.mkdir()
    if content == "link":
        path.symlink_to(CLAIMS / "signal" / "records.jsonl.xz")
    elif content == "pipe":
        os.mkfifo(path)
    elif content == "giant":
        path.touch()
        os.truncate(path, 2**40)
    elif content == "bomb":
        monkeypatch.setattr("rectifiers.claims.archive.LARGEST_BYTES", 2**20)
        path.write_bytes(lzma.compress(b"\n" * 2**21))
    elif content in ("{}", "\xff"):  # one line among usable ones
        path.write_bytes(lzma.compress(f"{content}\n{to_json(one)}".encode("latin-1")))
    else:
        path.write_text(content)
    before = path.lstat()
    for action in (lambda: load(tmp_path), lambda: add(tmp_path, [two])):
        with refused(r"records\.jsonl\.xz is not a usable file of records"):
            action()
    after = path.lstat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_table_lists_each_run_and_its_measures() -> None:
    rows = list(csv.DictReader(runs_csv(SIGNAL, RECORDS).splitlines()))
    assert [(row["arm"], int(row["seed"])) for row in rows] == [
        (a, s) for a in SIGNAL.arms for s in range(SIGNAL.seeds)
    ]
    by_run = {record.run: record for record in RECORDS}
    for row in rows:
        record = by_run[row["run"]]
        assert row["code"] == record.provenance.code
        assert row["machine"] == f"{record.provenance.machine.cpu}, 1 thread"
        assert float(row["top1_error_pct"]) == record.protocols["center"].top1_error_pct
        assert row["diverged"] == "False"
    tested = answer(SIGNAL, RECORDS).tests[0]
    assert [float(row["signal_kept"]) for row in rows if row["arm"] == "he"] == [
        value for (value,) in tested.measured
    ]


def test_a_figure_is_stale_when_its_numbers_change() -> None:
    path = CLAIMS / "signal" / "figure.svg"
    assert shows(path, description(answer(SIGNAL, RECORDS)))
    changed = [record for record in RECORDS if record.seed < SIGNAL.seeds - 1]
    assert not shows(path, description(answer(SIGNAL, changed)))
