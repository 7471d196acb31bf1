"""Runs are found, chosen and named."""

import re
from pathlib import Path

import pytest

from conftest import ROOT
from made_up import altered
from rectifiers.results.listing import find, gather, select
from rectifiers.runs import record as records
from rectifiers.runs.links import link_run
from refusals import refused

RECORDS = ROOT / "results" / "records"
FOUND = gather(RECORDS)
NAME = "0a3802792865"  # Table 2's PReLU on digits


def test_local_runs_come_before_committed_records(tmp_path: Path) -> None:
    folder = tmp_path / NAME
    record = records.load(RECORDS / f"{NAME}.json")
    records.write(folder / "record.json", record)
    found = gather(RECORDS, tmp_path)
    assert len(found) == len(FOUND)
    assert find(found, NAME).path.parent == folder
    records.write(folder / "record.json", altered(record, {"protocols.center.nll": 1.5}))
    found = gather(RECORDS, tmp_path)
    assert len(found) == len(FOUND) + 1
    both = [each for each in found if each.record.run == NAME]
    assert [each.path.parent for each in both] == [folder, RECORDS]
    assert find(found, NAME[:4]).path.parent == folder
    assert find(found, str(RECORDS / f"{NAME}.json")).origin == "committed"


def test_latest_names_the_run_begun_last(tmp_path: Path) -> None:
    for name in (NAME, "317e1d627db5"):
        record = records.load(RECORDS / f"{name}.json")
        records.write(tmp_path / name / "record.json", record)
    link_run(tmp_path / NAME, "a name")
    assert find(gather(RECORDS, tmp_path), "latest").record.run == NAME
    with refused("latest is not a run"):
        find(gather(RECORDS), "latest")


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ([], 20),
        (["activation=relu,prelu"], 15),
        (["optim.lr=1e-2", "init=he"], 15),
        (["status=finished", "experiment=table2/relu", "data.flip=true"], 5),
        ([f"run={NAME}"], 1),
        (["trainer.max_epochs=75", "data.pad_px=0"], 20),  # of which records hold no default
    ],
)
def test_filters_narrow(filters: list[str], count: int) -> None:
    assert len(select(FOUND, filters)) == count


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("activatoin=relu", "activatoin is not a key of these runs; did you mean activation"),
        ("activation=gelu", "no run has activation=gelu; there are: prelu, prelu_shared, relu"),
        ("relu", "relu is not a filter; give key=value, as in activation=prelu"),
    ],
)
def test_unusable_filter_names_usable_ones(text: str, sentence: str) -> None:
    with refused(f"^{re.escape(sentence)}"):
        select(FOUND, [text])


def test_a_run_is_found_by_prefix_or_path() -> None:
    assert find(FOUND, NAME[:5]).record.run == NAME
    assert find([], str(RECORDS / f"{NAME}.json")).record.run == NAME
    firsts = [each.record.run[0] for each in FOUND]
    shared = max(firsts, key=firsts.count)
    words = f"{shared} begins the names of {firsts.count(shared)} runs, .*; give more digits"
    with refused(words):
        find(FOUND, shared)
    typo = f"{NAME[:-1]}{'0' if NAME[-1] != '0' else '1'}"
    with refused(rf"{typo} is not a run.*; did you mean {NAME}"):
        find(FOUND, typo)
