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
