"""The real W&B client against a stand-in for its server: what is told, and what no fault of the server may cost."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT
from rectifiers.runs import record as records
from rectifiers.tracking import client, sent
from rectifiers.tracking.client import Tracked
from rectifiers.tracking.mirror import mirrored, publish
from tracking.stub import Stub, serving

SETTINGS = {"name": "wandb", "project": "p", "mode": "auto", "log_checkpoint": False, "finish_timeout_s": 20}


@pytest.fixture
def record() -> dict[str, Any]:
    """A committed run of Table 2's PReLU on digits, cut to twelve epochs."""
    committed = [records.load(path) for path in sorted((ROOT / "results" / "records").glob("*.json"))]
    wanted = ("table2/prelu", "digits")
    found = next(r for r in committed if (r["choices"]["experiment"], r["choices"]["data"]) == wanted)
    return {**found, "history": found["history"][:12], "epochs": 12}


@pytest.fixture
def folder(tmp_path: Path, record: dict[str, Any]) -> Path:
    made = tmp_path / record["run"]
    made.mkdir()
    (made / "last.ckpt").write_bytes(b"weights")
    return made


def tracked(record: dict[str, Any], folder: Path, **settings: Any) -> Tracked:
    return Tracked(SETTINGS | settings, folder, record["choices"], record["science"], record["provenance"])


def inspected(folder: Path) -> list[dict[str, Any]]:
    """What the one local file of the run holds, as W&B's own reader tells it."""
    (file,) = [path for path in (folder / "wandb").glob("*run-*") if not path.is_symlink()]
    done = subprocess.run(
        [Path(sys.executable).with_name("wandb"), "leet", "inspect", "--json", str(file)],
        env={**os.environ, "WANDB_ERROR_REPORTING": "false"}, capture_output=True, text=True, check=True,
        cwd=folder,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def rows_of(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = [{k: v for k, v in x["history"]["item"].items() if k[0] != "_"} for x in told if x["type"] == "history"]
    return [row for row in rows if row]


def as_logged(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if value is not None} for row in record["history"]]


def cut_short(run: Tracked, history: list[dict[str, Any]], by: BaseException) -> None:
    def body() -> None:
        with mirrored(run) as mirror:
            mirror.epochs(history)
            raise by

    with pytest.raises(type(by)):
        body()


def until(fact: Callable[[], bool]) -> None:
    for _ in range(200):
        if fact():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come true in 20 s")


def test_online_it_holds_what_the_record_holds(record: dict[str, Any], folder: Path, server: Stub) -> None:
    name = record["run"]
    assert publish(record, folder, SETTINGS | {"log_checkpoint": True}) is None
    run, summary = server.runs[name], server.summaries[name]
    config = {key: value["value"] for key, value in json.loads(run["config"]).items() if key != "_wandb"}
    rows = [{k: v for k, v in server.history[name][step].items() if k[0] != "_"} for step in server.steps(name)]
    assert rows == as_logged(record)
    assert (run["project"], run["groupName"], run["tags"]) == ("p", "table2", ["prelu", "he", "small14"])
    assert config["science"] == json.loads(json.dumps(record["science"]))
    assert (config["activation"], config["init"], config["seed"]) == ("prelu", "he", record["science"]["seed"])
    assert config["provenance"]["data"] == record["provenance"]["data"]
    assert config["provenance"]["lock"] == record["provenance"]["lock"]
    for protocol, result in record["protocols"].items():
        for key in ("top1_error_pct", "top5_error_pct", "seen"):
            assert summary[f"{protocol}/{key}"] == result[key]
        assert summary[f"{protocol}/top1_low_pct"] < result["top1_error_pct"] < summary[f"{protocol}/top1_high_pct"]
    table = next(json.loads(body) for path, body in server.files.items() if "media/table/paper_vs_measured" in path)
    lines = [dict(zip(table["columns"], line, strict=True)) for line in table["data"]]
    ours = next(line for line in lines if line["protocol"] == "ten_view" and line["measure"] == "top-1")
    assert ours["measured"] == record["protocols"]["ten_view"]["top1_error_pct"]
    assert ours["n"] == record["protocols"]["ten_view"]["seen"]
    assert (ours["paper"], ours["row"]) == (32.64, "Table 2: PReLU, channel-wise")
    assert ours["difference"] is None  # digits are not ImageNet
    assert {"slopes_against_depth", "error_against_cost"} <= summary.keys()
    kinds = {made["artifactCollectionName"]: made for made in server.artifacts}
    assert kinds[f"checkpoint-{name}"]["committed"]
    assert [server.artifacts[int(used["artifactID"][2:])]["artifactTypeName"] for used in server.used] == ["dataset"]
    manifests = b"".join(body for path, body in server.files.items() if path.endswith("/manifest"))
    assert f"hash://sha256/{record['provenance']['data']}".encode() in manifests
    assert server.exits[name] == 0
    assert sent.is_sent(folder, record)
    assert not sent.is_sent(folder, {**record, "protocols": {}})


def test_offline_it_holds_the_same_and_the_sync_sends_it(
    record: dict[str, Any], folder: Path, server: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as logged_out:
        logged_out.delenv("WANDB_API_KEY")
        logged_out.setenv("NETRC", os.devnull)
        assert publish(record, folder, SETTINGS) is None
    assert server.calls == []
    told = inspected(folder)
    assert rows_of(told) == as_logged(record)
    merged: dict[str, Any] = {}
    for line in told:
        merged |= line.get("summary", {}).get("update", {})
    assert merged["ten_view/top1_error_pct"] == record["protocols"]["ten_view"]["top1_error_pct"]
    assert told[-1]["exit"].get("exit_code", 0) == 0
    assert not sent.is_sent(folder, record)
    assert publish(record, folder, SETTINGS | {"mode": "online"}, fall_back=False) is None
    assert server.steps(record["run"]) == list(range(1, 13))
    assert sent.is_sent(folder, record)


def test_wandbs_own_sync_sends_the_same(record: dict[str, Any], folder: Path, server: Stub) -> None:
    assert publish(record, folder, SETTINGS | {"mode": "offline"}) is None
    (place,) = (folder / "wandb").glob("offline-run-*")
    command = [Path(sys.executable).with_name("wandb"), "sync", str(place)]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    assert server.steps(record["run"]) == list(range(1, 13))
    assert server.summaries[record["run"]]["center/seen"] == record["protocols"]["center"]["seen"]
    # and ours does not send the rows again
    assert publish(record, folder, SETTINGS | {"mode": "online"}, fall_back=False) is None
    assert server.steps(record["run"]) == list(range(1, 13))


def test_a_restart_goes_on_in_the_same_run_and_tells_nothing_twice(
    record: dict[str, Any], folder: Path, server: Stub
) -> None:
    history = record["history"]
    cut_short(tracked(record, folder), history[:5], SystemExit(75))
    assert server.exits[record["run"]] == 75
    with mirrored(tracked(record, folder)) as mirror:  # epoch 5 is done again, as after a kill before its checkpoint
        mirror.epochs(history[:5])
        mirror.epochs(history[:6])
        mirror.finished(record)
    assert server.steps(record["run"]) == list(range(1, 13))  # the stand-in refuses a step that it has
    assert list(server.runs) == [record["run"]]
    assert server.exits[record["run"]] == 0


def test_an_offline_restart_leaves_one_whole_file(record: dict[str, Any], folder: Path) -> None:
    for upto in (3, 7):
        cut_short(tracked(record, folder, mode="offline"), record["history"][:upto], KeyboardInterrupt())
    told = inspected(folder)
    assert rows_of(told) == as_logged(record)[:7]
    assert told[-1]["exit"]["exit_code"] == 130


@pytest.mark.parametrize("fault", ["401", "403", "nonsense", "refused"])
def test_a_server_that_cannot_be_used_leaves_the_run_whole_offline(
    record: dict[str, Any], folder: Path, server: Stub, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    server.fault = fault
    if fault == "refused":
        monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    note = publish(record, folder, SETTINGS)
    assert note is not None
    assert note.startswith(f"W&B does not have run {record['run']} (")
    assert note.endswith("`python scripts/report.py sync` sends it")
    assert rows_of(inspected(folder)) == as_logged(record)
    assert not sent.is_sent(folder, record)


@pytest.mark.parametrize("fault", ["silent", "500"])
def test_a_server_that_does_not_answer_is_given_up(
    record: dict[str, Any], folder: Path, server: Stub, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    server.fault = fault
    monkeypatch.setattr(client, "INIT_TIMEOUT_S", 2)
    assert publish(record, folder, SETTINGS) is not None
    assert rows_of(inspected(folder)) == as_logged(record)


@pytest.mark.parametrize(
    "fault", ["403", "nonsense", "gone", *(pytest.param(fault, marks=pytest.mark.slow) for fault in ("500", "silent"))]
)
def test_a_server_that_fails_midway_costs_nothing(
    record: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    name = record["run"]
    with serving() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
        started = time.monotonic()
        with mirrored(tracked(record, folder, finish_timeout_s=3)) as mirror:
            mirror.epochs(record["history"][:4])
            until(lambda: name in server.runs)
            if fault == "gone":
                server.shutdown()
                server.server_close()
            server.fault = fault
            mirror.epochs(record["history"][:8])
            mirror.finished(record)
        took = time.monotonic() - started
        assert mirror.note is not None
        assert rows_of(inspected(folder)) == as_logged(record)
        assert not sent.is_sent(folder, record)
        assert took < 60
    with serving() as later:
        monkeypatch.setenv("WANDB_BASE_URL", later.url)
        assert publish(record, folder, SETTINGS | {"mode": "online"}, fall_back=False) is None
        assert later.steps(name) == list(range(1, 13))


def test_no_key_is_written_anywhere(record: dict[str, Any], folder: Path, server: Stub) -> None:
    publish(record, folder, SETTINGS)
    assert not [path for path in folder.rglob("*") if path.is_file() and b"k" * 40 in path.read_bytes()]


def test_online_without_a_key_says_so_and_asks_nothing(
    record: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", os.devnull)
    note = publish(record, folder, SETTINGS | {"mode": "online"})
    assert note is not None
    assert "no key is known, and `wandb login` stores one" in note


def test_disabled_by_the_environment_there_is_nothing(
    record: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert publish(record, folder, SETTINGS) is None
    assert not (folder / "wandb").exists()
