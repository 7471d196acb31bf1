"""The golden results: no id, no committed number and no bit of a small run moves unnoticed."""

import json
import lzma

import pytest

import golden

KEPT = json.loads(golden.PLACE.read_text())
MINE = golden.this_processor()


@pytest.fixture(scope="module")
def ids() -> dict[str, str]:
    return golden.ids_of_records()


def test_no_committed_record_is_lost(ids: dict[str, str]) -> None:
    assert sorted(ids) == KEPT["records"]


def test_records_are_named_by_their_science(ids: dict[str, str]) -> None:
    assert {name: science for name, science in ids.items() if name != science} == {}


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
