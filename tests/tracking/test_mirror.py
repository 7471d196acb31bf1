"""The real W&B client against a stand-in for its server: what is sent, and that no failure of the
server ends a run."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from conftest import ROOT
from rectifiers.results.origin import machine_of
from rectifiers.runs import record as records
from rectifiers.runs.record import TrainingRecord
from rectifiers.runs.sections import Logger
from rectifiers.tracking import client
from rectifiers.tracking.client import Tracked
from rectifiers.tracking.mirror import conclude, mirrored, publish
from tracking.stub import Stub, serving

pytestmark = pytest.mark.process

SETTINGS = Logger(name="wandb", project="p", finish_timeout_s=20)


@pytest.fixture
def record() -> TrainingRecord:
    """A committed run of Table 2's PReLU on digits, cut to twelve epochs."""
    committed = [
        records.load_training(path)
        for path in sorted((ROOT / "results" / "records").glob("*.json"))
    ]
    wanted = ("table2/prelu", "digits")
    found = next(r for r in committed if (r.choices["experiment"], r.choices["data"]) == wanted)
    return found.model_copy(update={"history": found.history[:12], "epochs": 12})


@pytest.fixture
def folder(tmp_path: Path, record: TrainingRecord) -> Path:
    made = tmp_path / record.run
    made.mkdir()
    (made / "last.ckpt").write_bytes(b"weights")
    return made


def tracked(record: dict[str, Any], folder: Path, **settings: Any) -> Tracked:
    return Tracked(
        SETTINGS.model_copy(update=settings),
        folder,
        record.choices,
        record.science,
        record.provenance,
    )


def inspected(folder: Path) -> list[dict[str, Any]]:
    """Return what the run's one local file holds, as W&B's own reader shows it."""
    (file,) = [path for path in (folder / "wandb").glob("*run-*") if not path.is_symlink()]
    done = subprocess.run(
        [Path(sys.executable).with_name("wandb"), "leet", "inspect", "--json", str(file)],
        env={**os.environ, "WANDB_ERROR_REPORTING": "false"},
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def rows_of(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = [
        {k: v for k, v in x["history"]["item"].items() if k[0] != "_"}
        for x in told
        if x["type"] == "history"
    ]
    return [row for row in rows if row]


def as_logged(record: TrainingRecord) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in row.items() if value is not None} for row in record.history
    ]


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


def test_an_online_run_holds_what_the_record_holds(
    record: TrainingRecord, folder: Path, server: Stub
) -> None:
    name = record.run
    assert publish(record, folder, SETTINGS.model_copy(update={"log_checkpoint": True})) is None
    run, summary = server.runs[name], server.summaries[name]
    config = {
        key: value["value"] for key, value in json.loads(run["config"]).items() if key != "_wandb"
    }
    rows = [
        {k: v for k, v in server.history[name][step].items() if k[0] != "_"}
        for step in server.steps(name)
    ]
    assert rows == as_logged(record)
    assert (run["project"], run["groupName"], run["tags"]) == (
        "p",
        "table2",
        ["prelu", "he", "small14"],
    )
    assert config["science"] == json.loads(json.dumps(record.science))
    assert (config["activation"], config["init"], config["seed"]) == (
        "prelu",
        "he",
        record.science["seed"],
    )
    assert config["provenance"]["data"] == record.provenance.data
    assert config["provenance"]["lock"] == record.provenance.lock
    for protocol, result in record.protocols.items():
        for key in ("top1_error_pct", "top5_error_pct", "num_images"):
            assert summary[f"{protocol}/{key}"] == getattr(result, key)
        assert (
            summary[f"{protocol}/top1_low_pct"]
            < result.top1_error_pct
            < summary[f"{protocol}/top1_high_pct"]
        )
    table = next(
        json.loads(body)
        for path, body in server.files.items()
        if "media/table/paper_vs_measured" in path
    )
    lines = [dict(zip(table["columns"], line, strict=True)) for line in table["data"]]
    ours = next(
        line for line in lines if line["protocol"] == "ten_view" and line["measure"] == "top-1"
    )
    assert ours["measured"] == record.protocols["ten_view"].top1_error_pct
    assert ours["n"] == record.protocols["ten_view"].num_images
    assert (ours["paper"], ours["row"]) == (32.64, "Table 2: PReLU, channel-wise")
    assert ours["difference"] is None  # digits are not ImageNet
    assert (ours["code"], ours["machine"]) == (record.codes[0], machine_of(record))
    assert {"slopes_against_depth", "error_against_cost"} <= summary.keys()
    kinds = {made["artifactCollectionName"]: made for made in server.artifacts}
    assert kinds[f"checkpoint-{name}"]["committed"]
    assert [
        server.artifacts[int(used["artifactID"][2:])]["artifactTypeName"] for used in server.used
    ] == ["dataset"]
    manifests = b"".join(body for path, body in server.files.items() if path.endswith("/manifest"))
    assert f"hash://sha256/{record.provenance.data}".encode() in manifests
    assert server.exits[name] == 0
    assert client.is_sent(folder, record)
    assert not client.is_sent(folder, record.model_copy(update={"protocols": {}}))


def test_an_offline_run_holds_the_same_and_sync_sends_it(
    record: TrainingRecord, folder: Path, server: Stub, monkeypatch: pytest.MonkeyPatch
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
    assert merged["ten_view/top1_error_pct"] == record.protocols["ten_view"].top1_error_pct
    assert told[-1]["exit"].get("exit_code", 0) == 0
    assert not client.is_sent(folder, record)
    assert (
        publish(record, folder, SETTINGS.model_copy(update={"mode": "online"}), fall_back=False)
        is None
    )
    assert server.steps(record.run) == list(range(1, 13))
    assert client.is_sent(folder, record)


def test_wandb_sync_sends_the_same(record: dict[str, Any], folder: Path, server: Stub) -> None:
    assert publish(record, folder, SETTINGS.model_copy(update={"mode": "offline"})) is None
    (place,) = (folder / "wandb").glob("offline-run-*")
    command = [Path(sys.executable).with_name("wandb"), "sync", str(place)]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    assert server.steps(record.run) == list(range(1, 13))
    assert (
        server.summaries[record.run]["center/num_images"] == record.protocols["center"].num_images
    )
    # and ours does not send the rows again
    assert (
        publish(record, folder, SETTINGS.model_copy(update={"mode": "online"}), fall_back=False)
        is None
    )
    assert server.steps(record.run) == list(range(1, 13))


def test_a_restart_continues_the_same_run_and_logs_no_row_twice(
    record: TrainingRecord, folder: Path, server: Stub
) -> None:
    history = record.history
    cut_short(tracked(record, folder), history[:5], SystemExit(75))
    assert server.exits[record.run] == 75
    with mirrored(
        tracked(record, folder)
    ) as mirror:  # epoch 5 is done again, as after a kill before its checkpoint
        mirror.epochs(history[:5])
        mirror.epochs(history[:6])
        mirror.finished(record)
    assert server.steps(record.run) == list(range(1, 13))  # the stand-in refuses a step that it has
    assert list(server.runs) == [record.run]
    assert server.exits[record.run] == 0


def test_an_offline_restart_leaves_one_complete_file(record: TrainingRecord, folder: Path) -> None:
    for upto in (3, 7):
        cut_short(
            tracked(record, folder, mode="offline"), record.history[:upto], KeyboardInterrupt()
        )
    told = inspected(folder)
    assert rows_of(told) == as_logged(record)[:7]
    assert told[-1]["exit"]["exit_code"] == 130


@pytest.mark.parametrize("failure", ["401", "403", "nonsense", "refused"])
def test_an_unusable_server_leaves_the_run_complete_offline(
    record: TrainingRecord,
    folder: Path,
    server: Stub,
    monkeypatch: pytest.MonkeyPatch,
    failure: str,
) -> None:
    server.failure = failure
    if failure == "refused":
        monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    note = publish(record, folder, SETTINGS)
    assert note is not None
    assert note.startswith(f"W&B does not have all of run {record.run} (")
    assert note.endswith("`python scripts/report.py sync` sends it")
    assert rows_of(inspected(folder)) == as_logged(record)
    assert not client.is_sent(folder, record)


@pytest.mark.parametrize("failure", ["silent", "500"])
def test_a_server_that_does_not_answer_is_abandoned(
    record: TrainingRecord,
    folder: Path,
    server: Stub,
    monkeypatch: pytest.MonkeyPatch,
    failure: str,
) -> None:
    server.failure = failure
    monkeypatch.setattr(client, "INIT_TIMEOUT_S", 2)
    assert publish(record, folder, SETTINGS) is not None
    assert rows_of(inspected(folder)) == as_logged(record)


@pytest.mark.parametrize(
    "failure",
    [
        "403",
        "nonsense",
        "gone",
        *(pytest.param(failure, marks=pytest.mark.slow) for failure in ("500", "silent")),
    ],
)
def test_a_server_that_fails_midway_loses_nothing(
    record: TrainingRecord, folder: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    name = record.run
    with serving() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
        started = time.monotonic()
        with mirrored(tracked(record, folder, finish_timeout_s=3)) as mirror:
            mirror.epochs(record.history[:4])
            until(lambda: name in server.runs)
            if failure == "gone":
                server.shutdown()
                server.server_close()
            server.failure = failure
            mirror.epochs(record.history[:8])
            mirror.finished(record)
        took = time.monotonic() - started
        assert mirror.note is not None
        assert rows_of(inspected(folder)) == as_logged(record)
        assert not client.is_sent(folder, record)
        assert took < 60
    with serving() as later:
        monkeypatch.setenv("WANDB_BASE_URL", later.url)
        assert (
            publish(record, folder, SETTINGS.model_copy(update={"mode": "online"}), fall_back=False)
            is None
        )
        assert later.steps(name) == list(range(1, 13))


def test_a_refused_checkpoint_is_reported(
    record: TrainingRecord, folder: Path, server: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`finish()` does not report a refused checkpoint; the client's own log does."""
    taken = server.on_CreateArtifact
    refusing = lambda sent: None if sent["input"]["artifactTypeName"] == "model" else taken(sent)  # noqa: E731
    monkeypatch.setattr(server, "on_CreateArtifact", refusing)
    note = publish(record, folder, SETTINGS.model_copy(update={"log_checkpoint": True}))
    assert note is not None
    assert "CreateArtifact is not offered here" in note
    assert not client.is_sent(folder, record)


@pytest.mark.parametrize("moment", ["while it trains", "at its end"])
def test_a_client_that_hangs_does_not_hang_the_run(
    record: TrainingRecord, folder: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """As on a hung disk: the client's own process is stopped, and its time limits with it."""
    monkeypatch.setattr(client, "ANSWER_S", 1)
    started = time.monotonic()
    with mirrored(tracked(record, folder, mode="offline", finish_timeout_s=1)) as mirror:
        mirror.epochs(record.history[:4])
        if moment == "while it trains":
            stop_the_core()
        mirror.finished(record)
        stop_the_core()
    assert mirror.note is not None
    assert "no answer for" in mirror.note
    assert rows_of(inspected(folder)) == as_logged(record)
    assert time.monotonic() - started < 60
    assert [
        child.name()
        for child in psutil.Process().children()
        if child.name().startswith("wandb-core")
    ] == []


def test_a_client_that_takes_no_more_rows_does_not_hang_the_training(
    record: TrainingRecord, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deep network's rows are more than the client's connection holds; logging one then blocks
    without a limit."""
    monkeypatch.setattr(client, "ANSWER_S", 1)
    wide = {f"response_mean/{layer}": 1 / 3 for layer in range(2000)}
    history = [{**row, **wide} for row in record.history]
    with mirrored(tracked(record, folder, mode="offline", finish_timeout_s=1)) as mirror:
        mirror.epochs(history[:1])
        stop_the_core()
        told = threading.Thread(target=mirror.epochs, args=(history,), daemon=True)
        told.start()
        told.join(30)
        hung = told.is_alive()
        if hung:
            client.kill_client()
    assert not hung
    assert "no answer for 1 s" in str(mirror.note)
    assert rows_of(inspected(folder)) == [{**row, **wide} for row in as_logged(record)]


def stop_the_core() -> None:
    (core,) = [
        child
        for child in psutil.Process().children(recursive=True)
        if child.name().startswith("wandb-core")
    ]
    core.suspend()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WANDB_MODE", "foo"),
        ("WANDB_BASE_URL", "foo"),
        ("WANDB_FINISH_TIMEOUT", "abc"),
        ("WANDB_RESUME", "bogus"),
    ],
)
def test_a_variable_that_the_client_refuses_is_named_and_loses_nothing(
    record: TrainingRecord, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    note = publish(record, folder, SETTINGS)
    assert note is not None
    assert name.removeprefix("WANDB_").lower() in note


def test_an_empty_variable_counts_as_unset(
    record: TrainingRecord, folder: Path, server: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "")
    assert publish(record, folder, SETTINGS) is None
    assert client.is_sent(folder, record)
    assert os.environ["WANDB_MODE"] == ""


def test_a_client_that_is_set_to_offline_stays_offline(
    record: TrainingRecord,
    folder: Path,
    server: Stub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    command = [Path(sys.executable).with_name("wandb"), "offline"]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    assert publish(record, folder, SETTINGS) is None
    assert server.calls == []


def test_a_rerun_is_another_run_in_wandb(
    record: TrainingRecord, folder: Path, server: Stub
) -> None:
    publish(record, folder, SETTINGS)
    archive_dir = folder.parent / "replaced"
    archive_dir.mkdir()
    folder.rename(archive_dir / f"{folder.name}-1")
    folder.mkdir()
    rows = [{**row, "train_loss": row["train_loss"] + 100} for row in record.history[:5]]
    changed = record.model_copy(update={"history": rows})
    assert publish(changed, folder, SETTINGS) is None
    name = f"{record.run}-2"
    assert server.steps(name) == [1, 2, 3, 4, 5]
    assert server.history[name][5]["train_loss"] == changed.history[4]["train_loss"]


def test_rows_of_an_unknown_run_with_our_id_are_not_taken_for_ours(
    record: TrainingRecord, folder: Path, server: Stub
) -> None:
    publish(record, folder, SETTINGS)
    for path in (folder / "wandb").glob("*.json"):
        path.unlink()
    note = publish(record, folder, SETTINGS)
    assert note is not None
    assert f"it has another run {record.run}, whose rows it keeps" in note
    assert not client.is_sent(folder, record)


def test_a_run_of_a_sweep_is_continued_in_the_sweep(
    record: TrainingRecord, folder: Path, server: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as agent:
        agent.setenv("WANDB_SWEEP_ID", "s1")
        agent.setenv("WANDB_RUN_ID", "r1")
        cut_short(tracked(record, folder), record.history[:2], KeyboardInterrupt())
    assert server.steps("r1") == [1, 2]
    assert (
        publish(record, folder, SETTINGS.model_copy(update={"mode": "online"}), fall_back=False)
        is None
    )
    assert server.steps("r1") == list(range(1, 13))
    assert list(server.runs) == ["r1"]


def test_a_note_that_cannot_be_written_ends_nothing(
    record: TrainingRecord, folder: Path, server: Stub
) -> None:
    (folder / "wandb" / "sent.json").mkdir(parents=True)
    note = publish(record, folder, SETTINGS)
    assert note is not None
    assert "sent.json" in note


def test_a_run_that_diverged_at_once_is_concluded_once(
    record: TrainingRecord, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    monkeypatch.setattr(
        "rectifiers.tracking.mirror.conclude", lambda *given: told.append(given) or conclude(*given)
    )
    diverged = record.model_copy(
        update={"history": [], "epochs": 0, "protocols": {}, "status": "diverged"}
    )
    assert publish(diverged, folder, SETTINGS.model_copy(update={"mode": "offline"})) is None
    assert len(told) == 1


def test_numbers_that_are_not_finite_are_left_out_as_in_the_record(
    record: TrainingRecord, folder: Path
) -> None:
    rows = [{**record.history[0], "train_loss": float("nan"), "val/loss": float("inf")}]
    cut_short(tracked(record, folder, mode="offline"), rows, KeyboardInterrupt())
    (row,) = rows_of(inspected(folder))
    assert not {"train_loss", "val/loss"} & row.keys()


def test_neither_host_nor_paths_are_sent(
    record: TrainingRecord, folder: Path, server: Stub
) -> None:
    publish(record, folder, SETTINGS)
    # but for the manifests of artifacts, where the client notes from which staging file it uploaded
    told = b"".join(body for name, body in server.files.items() if not name.endswith("/manifest"))
    sent_there = told + json.dumps([server.runs, server.summaries]).encode()
    for word in (str(folder), str(ROOT)):
        assert word.encode() not in sent_there
    assert b'"host"' not in told


def test_names_longer_than_a_tag_are_cut(
    record: TrainingRecord, folder: Path, server: Stub
) -> None:
    long = record.model_copy(update={"choices": {**record.choices, "activation": "a" * 100}})
    assert publish(long, folder, SETTINGS) is None
    assert "a" * 64 in server.runs[record.run]["tags"]


def test_no_api_key_is_written_to_a_file(
    record: TrainingRecord, folder: Path, server: Stub
) -> None:
    publish(record, folder, SETTINGS)
    assert not [
        path for path in folder.rglob("*") if path.is_file() and b"k" * 40 in path.read_bytes()
    ]


def test_online_mode_without_a_key_says_so_and_sends_nothing(
    record: TrainingRecord, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", os.devnull)
    note = publish(record, folder, SETTINGS.model_copy(update={"mode": "online"}))
    assert note is not None
    assert "no key is known, and `wandb login` stores one" in note


def test_wandb_mode_disabled_writes_nothing(
    record: TrainingRecord, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert publish(record, folder, SETTINGS) is None
    assert not (folder / "wandb").exists()


def test_a_client_that_cannot_be_imported_ends_no_run(
    record: TrainingRecord, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    note = publish(record, folder, SETTINGS)
    assert note is not None
    assert "report.py sync" in note
