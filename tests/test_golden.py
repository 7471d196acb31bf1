"""The golden results: no id, no committed number and no bit of a small run moves unnoticed."""

import json
import lzma

import pytest

import golden
from committed import stored
from rectifiers.claims.archive import arm_hashes, claim_exclusion_reason, owner
from rectifiers.runs.record import to_json

KEPT = json.loads(golden.PLACE.read_text())
MINE = golden.this_processor()


def test_no_committed_record_is_lost() -> None:
    assert golden.differences(KEPT["records"], golden.counts_of_runs()) == []


def test_records_are_named_by_their_science() -> None:
    records = [record for lines in stored().values() for _, record in lines]
    assert [r.run for r in records if r.run != golden.run_id(r.science)] == []


def test_committed_files_hold_each_run_once() -> None:
    of_claims = [place for place in stored() if place.startswith("claims/")]
    runs = []
    for place in of_claims:
        names = [record.run for _, record in stored()[place]]
        assert names == sorted(names)
        runs += names
    assert len(of_claims) > 50
    assert len(set(runs)) == len(runs)


def test_committed_files_are_what_collecting_writes() -> None:
    for place, lines in stored().items():
        if place.startswith("claims/"):
            records = [record for _, record in lines]
            assert [to_json(record).encode() for record in records] == [text for text, _ in lines]
            assert {owner(record) for record in records} == {place.split("/")[1]}
            assert [reason for r in records if (reason := claim_exclusion_reason(r))] == []


@pytest.mark.process
def test_configurations_keep_their_ids() -> None:
    assert golden.differences(KEPT["ids"], golden.composed_ids()) == []
    assert golden.differences(arm_hashes(), golden.composed_arms()) == []


@pytest.mark.process
def test_effects_and_tables_keep_their_numbers() -> None:
    expected = json.loads(lzma.decompress(golden.NUMBERS.read_bytes()))
    assert golden.differences(expected, golden.numbers()) == []


@pytest.mark.slow
@pytest.mark.skipif(
    MINE not in KEPT["runs"],
    reason=f"no golden runs of {MINE}: golden.py write runs, at the commit that it names",
)
def test_small_runs_keep_every_bit() -> None:
    assert golden.differences(KEPT["runs"][MINE], golden.golden_runs()) == []
