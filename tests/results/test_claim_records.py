"""The claims' records in one file, and the small tables that are made of them."""

import csv
import lzma
from pathlib import Path

import pytest

from conftest import ROOT
from made_up import altered
from rectifiers.results.claim_figures import is_stale
from rectifiers.results.claim_records import FILE, add, as_csv, load
from rectifiers.results.claims import answer, claims
from rectifiers.runs.record import to_json
from rectifiers.runtime.errors import InputError

COMMITTED = ROOT / "results" / "claims"
RECORDS = load(COMMITTED)
SIGNAL = next(claim for claim in claims() if claim.name == "signal")


def test_every_committed_record_answers_a_claim_and_is_there_once_in_the_order_of_names() -> None:
    lines = lzma.decompress((COMMITTED / FILE).read_bytes()).decode().splitlines()
    assert [to_json(record) for record in RECORDS] == lines
    names = [record.run for record in RECORDS]
    assert names == sorted(set(names))


def test_records_come_back_equal_and_the_same_ones_give_the_same_bytes(tmp_path: Path) -> None:
    one, two, three = RECORDS[:3]
    add(tmp_path / "a", [three, one])
    add(tmp_path / "a", [two])
    add(tmp_path / "b", [one, two, three])
    assert load(tmp_path / "a") == [one, two, three]
    assert (tmp_path / "a" / FILE).read_bytes() == (tmp_path / "b" / FILE).read_bytes()


def test_a_record_replaces_that_of_its_run_and_none_is_added_with_one_that_is_none(
    tmp_path: Path,
) -> None:
    one, two = RECORDS[:2]
    add(tmp_path, [one, two])
    add(tmp_path, [altered(two, {"wall_s": 1.5})])
    assert [record.wall_s for record in load(tmp_path)] == [one.wall_s, 1.5]
    before = (tmp_path / FILE).read_bytes()
    wrong = two.model_copy(update={"wall_s": float("nan")})
    with pytest.raises(ValueError, match="expected value"):
        add(tmp_path, [altered(one, {"wall_s": 1.5}), wrong])
    assert (tmp_path / FILE).read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"no xz"])
def test_a_damaged_file_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(
        InputError, match=rf"{FILE} is not a usable file of records \(.*take the committed one"
    ):
        load(tmp_path)


@pytest.mark.parametrize("line", [b"{}\n", b"\xff\n"])
def test_a_line_that_is_no_record_is_left_out_and_named_and_not_lost(
    tmp_path: Path, line: bytes, capsys
) -> None:
    whole = lzma.compress(line + to_json(RECORDS[0]).encode())
    (tmp_path / FILE).write_bytes(whole)
    assert load(tmp_path) == RECORDS[:1]
    assert (
        f"left out: line 1 of {tmp_path / FILE} is not a usable record (" in capsys.readouterr().err
    )
    with pytest.raises(
        InputError, match=rf"{FILE} holds what is no record \(.*take the committed one"
    ):
        add(tmp_path, RECORDS[1:2])
    assert (tmp_path / FILE).read_bytes() == whole


def test_of_many_lines_that_are_no_records_twenty_are_named_and_the_rest_counted(
    tmp_path: Path, capsys
) -> None:
    (tmp_path / FILE).write_bytes(lzma.compress(b"{}\n" * 1500))
    assert load(tmp_path) == []
    *named, last = capsys.readouterr().err.splitlines()
    assert [f"left out: line {i} of" in line for i, line in enumerate(named, start=1)] == [
        True
    ] * 20
    assert last.startswith("left out: 1,480 more of its lines; take the committed file")


def test_a_table_has_each_run_with_its_origin_and_the_measures_of_the_tests() -> None:
    rows = list(csv.DictReader(as_csv(SIGNAL, RECORDS).splitlines()))
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
    tested = answer(SIGNAL, RECORDS).tested[0]
    assert [float(row["signal_kept"]) for row in rows if row["arm"] == "he"] == [
        value for (value,) in tested.measured
    ]


def test_a_figure_is_stale_when_a_number_of_a_seed_changes() -> None:
    path = ROOT / "results" / "figures" / "claims" / "signal.svg"
    assert not is_stale(answer(SIGNAL, RECORDS), path)
    assert is_stale(answer(SIGNAL, RECORDS), path.with_name("none.svg"))
    changed = [record for record in RECORDS if record.seed < SIGNAL.seeds - 1]
    assert is_stale(answer(SIGNAL, changed), path)
