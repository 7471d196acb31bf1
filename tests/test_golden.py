"""The golden results: no id, no committed number and no bit of a small run moves unnoticed."""

import json
import lzma

import pytest

import golden
from committed import stored

KEPT = json.loads(golden.PLACE.read_text())
MINE = golden.this_processor()


def test_no_committed_record_is_lost() -> None:
    assert golden.differences(KEPT["records"], golden.counts_of_runs()) == []


def test_records_are_named_by_their_science() -> None:
    records = [record for lines in stored().values() for _, record in lines]
    assert [r.run for r in records if r.run != golden.run_id(r.science)] == []


@pytest.mark.process
def test_configurations_keep_their_ids() -> None:
    assert golden.differences(KEPT["ids"], golden.composed_ids()) == []


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
