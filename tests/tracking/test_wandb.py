"""The real W&B client against a stand-in for its server: what is sent, and that no failure of the
server ends a run or delays it."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from conftest import CONF, ROOT, TINY, compose_config
from rectifiers.evaluation.evaluate import Scores, save_scores
from rectifiers.runs import record as records
from rectifiers.runs.config import RunConfig
from rectifiers.runs.folder import scores_path
from rectifiers.runs.provenance import code_fingerprint
from rectifiers.runs.record import TrainingRecord
from rectifiers.tracking.loggers import log_history, log_results, open_loggers
from rectifiers.tracking.wandb_artifacts import COLUMNS, archives, log_predictions, predictions
from rectifiers.tracking.wandb_logger import public_address
from rectifiers.training.targets import import_functions
from rectifiers.training.train import train
from refusals import refused
from tracking.reading import wandb_lines, wandb_rows, wandb_summary
from tracking.stub import Stub, serving

pytestmark = pytest.mark.process

CHOICES = {"activation": "prelu", "init": "he", "model": "mlp", "data": "digits"}
KEEP = "evaluation.keep_scores=true"
WANDB = ("logger=wandb", "logger.wandb.finish_timeout_s=20")
TOP_5 = "val/top5_error_pct"
TWELVE = list(range(1, 13))


@pytest.fixture
def record() -> TrainingRecord:
    """A committed run of Table 2's PReLU on digits, cut to twelve epochs."""
    committed = records.load_training(ROOT / "results" / "records" / "0a3802792865.json")
    return committed.model_copy(update={"history": committed.history[:12], "epochs": 12})


@pytest.fixture
def folder(tmp_path: Path, record: TrainingRecord) -> Path:
    made = tmp_path / record.run
    made.mkdir()
    return made


def settings(*overrides: str) -> RunConfig:
    return compose_config(*WANDB, *overrides)


def opened(
    record: TrainingRecord, folder: Path, *overrides: str
) -> AbstractContextManager[list[Any]]:
    config = settings(*overrides)
    functions = import_functions(config)
    return open_loggers(config, functions, folder, record.choices, record.provenance)


def sent(record: TrainingRecord, folder: Path, *overrides: str) -> str | None:
    with opened(record, folder, *overrides) as loggers:
        log_results(loggers, record)
    return loggers[0].note


def cut_short(run: AbstractContextManager[list[Any]], history: Any, by: BaseException) -> None:
    def body() -> None:
        with run as loggers:
            log_history(loggers, history)
            raise by

    with pytest.raises(type(by)):
        body()


def epochs_of(folder: Path) -> list[int]:
    return [row["epoch"] for row in wandb_rows(folder)]


def until(fact: Callable[[], bool]) -> None:
    for _ in range(300):
        if fact():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come true in 30 s")


def test_an_online_run_holds_the_record(record: TrainingRecord, folder: Path, server: Stub) -> None:
    assert sent(record, folder, "tags=[trial]") is None
    run, summary = server.runs[record.run], server.summaries[record.run]
    config = {key: item["value"] for key, item in json.loads(run["config"]).items()}
    assert server.steps(record.run) == TWELVE
    for step, row in zip(TWELVE, record.history, strict=True):
        row_there = server.history[record.run][step]
        assert row_there["val/error_top1"] == row["val/top1_error_pct"]
        assert row_there["train/loss"] == row["train_loss"]
    assert (run["project"], run["groupName"]) == ("rectifiers", "table2")
    assert run["tags"] == ["prelu", "he", "small14", "trial"]
    assert (config["activation"], config["init"], config["seed"]) == ("prelu", "he", 0)
    assert (run["jobType"], run["commit"]) == ("train", record.provenance.git_sha)
    for error, key in (("val/error_top1", "val/top1_error_pct"), ("val/error_top5", TOP_5)):
        assert summary[error] == {"min": min(record.curve(key))}
    assert config["provenance"]["git_sha"] == record.provenance.git_sha
    for protocol, result in record.protocols.items():
        assert summary[f"test/{protocol}/error_top1"] == result.top1_error_pct
        assert summary[f"test/{protocol}/error_top5"] == result.top5_error_pct
    assert summary["status"] == "finished"
    assert server.exits[record.run] == 0


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://user:secret@host.org:8443/a/b.git?token=secret", "https://host.org:8443/a/b.git"),
        ("git@host.org:a/b.git", "ssh://host.org/a/b.git"),
        ("../b", ""),
        ("file://host/home/me/b.git", ""),
        ("me@host:/home/me/b.git", ""),
        ("https://[broken/a", ""),
    ],
)
def test_address_of_a_repository_holds_no_secret(remote: str, address: str) -> None:
    assert public_address(remote) == address


@pytest.mark.parametrize("refusal", ["key", "git", "code"])
def test_code_is_sent_unless_refused(record, folder, server, monkeypatch, refusal) -> None:
    own = record.model_copy(update={"codes": [code_fingerprint()]})
    assert sent(own, folder) is None
    assert server.runs[record.run]["commit"] == record.provenance.git_sha
    assert collections(server) == ["source-rectifiers"]

    server.runs.clear(), server.artifacts.clear(), server.history.clear()
    if refusal != "key":
        monkeypatch.setenv(f"WANDB_DISABLE_{refusal.upper()}", "true")
    overrides = ["logger.wandb.save_code=false"] if refusal == "key" else []
    assert sent(own, folder, *overrides) is None
    assert ("commit" in server.runs[record.run]) == (refusal == "code")
    assert (str(record.provenance.git_sha) in str(server.runs)) == (refusal == "code")
    assert collections(server) == (["source-rectifiers"] if refusal == "git" else [])


def collections(server: Stub) -> list[str]:
    return [sent["artifactCollectionName"] for sent in server.artifacts.values()]


@pytest.fixture
def files(folder: Path) -> Path:
    (folder / "last.ckpt").write_text("weights")
    (folder / "record.json").write_text("{}")
    return folder


def test_checkpoint_and_record_have_their_data_as_origin(record, files, server) -> None:
    assert sent(record, files, "logger.wandb.log_model=true") is None
    names = [f"model-{record.run}", f"record-{record.run}"]
    assert sorted(collections(server)) == ["data-digits", *names]
    assert server.inputs == ["data-digits"]
    owners = {a["artifactCollectionName"]: a["runName"] for a in server.artifacts.values()}
    assert owners == {"data-digits": None, **dict.fromkeys(names, record.run)}


def test_artifacts_of_an_offline_run_are_sent_later(record, files, server) -> None:
    note = sent(record, files, "logger.wandb.log_model=true", "logger.wandb.mode=offline")
    made = [line["artifact"] for line in wandb_lines(files) if line["type"] == "artifact"]
    contents = {artifact["name"]: artifact["manifest"]["contents"] for artifact in made}
    (images,) = contents["data-digits"]
    assert images["ref"] == f"rectifiers-data:{record.provenance.data}"
    assert [c["path"] for c in contents[f"model-{record.run}"]] == ["last.ckpt"]
    assert [c["path"] for c in contents[f"record-{record.run}"]] == ["record.json"]

    command = note.partition("to send it: ")[2].split()
    wandb = Path(sys.executable).with_name("wandb")
    subprocess.run([wandb, *command[1:]], check=True, capture_output=True, cwd=files)
    assert len(collections(server)) == 3
    assert server.inputs == ["data-digits"]


def test_relative_run_folder_keeps_the_offline_run(record, folder, monkeypatch) -> None:
    """As with the default `runs_dir=runs`; W&B's own process stands in another folder."""
    monkeypatch.chdir(folder.parent)
    sent(record, Path(folder.name), "logger.wandb.mode=offline")
    assert epochs_of(folder) == TWELVE


def test_checkpoint_in_a_relative_folder_is_sent(record, files, server, monkeypatch) -> None:
    monkeypatch.chdir(files.parent)
    assert sent(record, Path(files.name), "logger.wandb.log_model=true") is None
    assert f"model-{record.run}" in collections(server)


def test_linked_checkpoint_is_not_sent(record, files, server, tmp_path) -> None:
    for name in ("last.ckpt", "record.json"):
        (tmp_path / name).write_text("secret")
        (files / name).unlink()
        (files / name).symlink_to(tmp_path / name)
    assert sent(record, files, "logger.wandb.log_model=true") is None
    assert collections(server) == ["data-digits"]


@pytest.mark.parametrize("answer", ["a refusal", "a lie", "nothing"])
def test_failed_artifacts_are_sent_later(record, files, server, monkeypatch, answer) -> None:
    """A lie ends the client's process, and silence lasts as long as the timeout."""
    ended = threading.Event()
    answers = {
        "a refusal": lambda _: None,
        "a lie": lambda _: {"createArtifact": None},
        "nothing": lambda _: ended.wait(120) and None,
    }
    monkeypatch.setattr(server, "on_CreateArtifact", answers[answer])
    timeout = () if answer == "a refusal" else ("logger.wandb.finish_timeout_s=3",)
    note = sent(record, files, "logger.wandb.log_model=true", *timeout)
    ended.set()
    assert f"scripts/evaluate.py run={files} logger=wandb" in str(note)
    if answer == "a refusal":
        assert server.steps(record.run) == TWELVE
        assert server.summaries[record.run]["status"] == "finished"
        assert server.exits[record.run] == 0


def test_pinned_data_name_their_archives() -> None:
    assert archives("imagenet")["ILSVRC2012_img_val.tar"] == "29b22e2961454d5413ddabcf34fc5622"
    assert len(archives("miniature")) == 3
    assert archives("digits") == {}


def test_predictions_stand_in_a_table(tiny) -> None:
    options = ("logger.wandb.mode=offline", "logger.wandb.log_predictions=true")
    config = tiny("logger=wandb", "trainer.max_epochs=1", "evaluation=center", *options, KEEP)
    outcome = train(config, CHOICES)
    result, folder = outcome.record.protocols["center"], outcome.path.parent
    summary = wandb_summary(folder)
    assert json.loads(json.dumps(summary["predictions/center"]))["nrows"] == result.num_images

    (path,) = folder.rglob("predictions/center*.table.json")
    table = json.loads(path.read_text())
    assert table["columns"] == list(COLUMNS)
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in table["data"]]
    assert [row["image"] for row in rows] == list(range(result.num_images))
    assert [row["correct"] for row in rows] == result.is_correct()
    for row in rows:
        assert row["correct"] == (row["class"] == row["prediction"])
        assert 0 <= row["probability of class"] <= row["its probability"] <= 1


def test_large_tables_hold_every_second_image() -> None:
    scores = Scores(np.log(np.eye(3) * 0.7 + 0.1), np.array([0, 1, 1]), "data", "{}")
    rows = predictions(scores, [True, True, False], ["a", "b", "c"], most=2)
    assert rows == [
        [0, "a", "a", pytest.approx(0.8), pytest.approx(0.8), True],
        [2, "b", "c", pytest.approx(0.8), pytest.approx(0.1), False],
    ]
    assert len(predictions(scores, [True, True, False], None, most=3)) == 3


@pytest.mark.parametrize(
    ("digest", "reason"), [("another", "is not of the test"), (None, "give evaluation.keep_scores")]
)
def test_predictions_of_other_scores_are_refused(
    tmp_path: Path, digest: str | None, reason: str
) -> None:
    scores = Scores(np.log(np.eye(3) * 0.7 + 0.1), np.array([0, 1, 1]), "data", "{}")
    save_scores(scores_path(tmp_path, "center"), scores)
    tested = SimpleNamespace(scores=digest, is_correct=lambda: [True, True, False])
    record: Any = SimpleNamespace(protocols={"center": tested}, class_names=None)
    with refused(reason):
        log_predictions(SimpleNamespace(summary={}), tmp_path, record)


def test_predictions_need_kept_scores() -> None:
    wanted = "logger.wandb.log_predictions=true"
    with refused(f"{wanted}.*; give evaluation.keep_scores=true"):
        settings(wanted)
    assert settings(wanted, KEEP).evaluation.keep_scores


def test_wandb_sync_sends_an_offline_run(record, folder, server, monkeypatch) -> None:
    with monkeypatch.context() as logged_out:
        logged_out.delenv("WANDB_API_KEY")
        logged_out.setenv("NETRC", os.devnull)
        note = sent(record, folder)
    assert note is not None
    assert server.calls == []
    assert epochs_of(folder) == TWELVE
    protocols = record.protocols
    assert wandb_summary(folder)["test/center/error_top1"] == protocols["center"].top1_error_pct
    command = note.partition("to send it: ")[2].split()
    assert command[:2] == ["wandb", "sync"]
    wandb = Path(sys.executable).with_name("wandb")
    subprocess.run([wandb, *command[1:]], check=True, capture_output=True, cwd=folder)
    assert server.steps(record.run) == TWELVE
    assert server.summaries[record.run]["status"] == "finished"
    assert sent(record, folder) is None  # and ours does not send the rows again
    assert server.steps(record.run) == TWELVE


def test_restart_continues_the_run(record: TrainingRecord, folder: Path, server: Stub) -> None:
    cut_short(opened(record, folder), record.history[:5], SystemExit(75))
    assert server.exits[record.run] == 75
    with opened(record, folder) as loggers:  # epoch 5 again, as after a kill before its checkpoint
        log_history(loggers, record.history[:4], resuming=True)
        log_history(loggers, record.history[:5])
        log_history(loggers, record.history[:6])
        log_results(loggers, record)
    assert server.steps(record.run) == TWELVE  # the stand-in refuses a step that it has
    assert list(server.runs) == [record.run]
    assert server.exits[record.run] == 0


def test_offline_resume_is_sent_once(record: TrainingRecord, folder: Path, server: Stub) -> None:
    cut_short(opened(record, folder), record.history[:5], KeyboardInterrupt())
    note = sent(record, folder, "logger.wandb.mode=offline")
    assert note is not None
    assert f"scripts/evaluate.py run={folder} logger=wandb" in note
    assert sent(record, folder) is None
    assert server.steps(record.run) == TWELVE


@pytest.mark.parametrize("failure", ["401", "nonsense", "refused"])
def test_an_unusable_server_leaves_the_run_complete_offline(
    record: TrainingRecord, folder: Path, server: Stub, monkeypatch, failure: str
) -> None:
    server.failure = failure
    if failure == "refused":
        monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    note = sent(record, folder)
    assert note is not None
    assert "wandb sync " in note
    assert epochs_of(folder) == TWELVE


@pytest.mark.parametrize(
    "failure",
    ["gone", *(pytest.param(failure, marks=pytest.mark.slow) for failure in ("500", "silent"))],
)
def test_a_server_failing_midway_gets_the_rest_later(record, folder, monkeypatch, failure) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    with serving() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        with opened(record, folder, "logger.wandb.finish_timeout_s=3") as loggers:
            log_history(loggers, record.history[:4])
            until(lambda: server.steps(record.run) == TWELVE[:4])
            if failure == "gone":
                server.shutdown()
                server.server_close()
            server.failure = failure
            log_history(loggers, record.history[:8])
            log_results(loggers, record)
        note = loggers[0].note
        assert note is not None
        assert f"scripts/evaluate.py run={folder} logger=wandb" in note
        history = server.history
    with serving() as later:
        later.history, later.runs = history, server.runs
        monkeypatch.setenv("WANDB_BASE_URL", later.url)
        assert sent(record, folder) is None
        assert later.steps(record.run) == TWELVE
        assert [later.history[record.run][step]["epoch"] for step in TWELVE] == TWELVE


def test_rerun_is_another_run(record: TrainingRecord, folder: Path, server: Stub) -> None:
    sent(record, folder)
    attic = folder.parent / "replaced"
    attic.mkdir()
    folder.rename(attic / f"{folder.name}-1")
    folder.mkdir()
    changed = record.model_copy(update={"history": record.history[:5], "epochs": 5})
    assert sent(changed, folder) is None
    assert server.steps(f"{record.run}-2") == [1, 2, 3, 4, 5]


def test_host_and_key_are_never_sent(record: TrainingRecord, files: Path, server: Stub) -> None:
    folder = files
    own = record.model_copy(update={"codes": [code_fingerprint()]})
    assert sent(own, folder, "logger.wandb.log_model=true") is None
    assert len(server.artifacts) == 4
    uploads = b"".join(server.files.values())
    sent_there = uploads + json.dumps([server.runs, server.summaries, server.calls]).encode()
    for word in (str(folder), str(ROOT)):
        assert word.encode() not in sent_there
    assert b'"host"' not in uploads
    assert "host" not in server.runs[record.run]
    assert server.runs[record.run]["program"] == "train.py"
    for path in folder.rglob("*"):
        assert not path.is_file() or b"k" * 40 not in path.read_bytes()


def test_a_diverged_run_has_failed(tiny, server: Stub) -> None:
    good = train(tiny("logger=wandb", "trainer.max_epochs=1"), CHOICES).record
    bad = train(tiny("logger=wandb", "trainer.max_epochs=1", "optim.lr=1e20"), CHOICES).record
    assert set(server.runs) == {good.run, bad.run}
    assert (server.exits[good.run], server.exits[bad.run]) == (0, 1)
    assert server.summaries[bad.run]["status"] == "diverged"


def test_the_sweep_file_has_known_overrides() -> None:
    sweep = yaml.safe_load((ROOT / "scripts" / "wandb_sweep.yaml").read_text())
    assert (ROOT / sweep["program"]).is_file()
    fixed = [part for part in sweep["command"] if "=" in part]
    for name, values in sweep["parameters"].items():
        for value in values.get("values", [values.get("min")]):
            compose_config(*fixed, f"{name}={value}")
    assert sweep["metric"]["name"].startswith("val/")
    assert sweep["early_terminate"]["type"] == "hyperband"
    config = compose_config(*fixed)
    assert sweep["early_terminate"]["min_iter"] < config.trainer.max_epochs
    assert str(config.runs_dir) == "runs/searches"
    assert (CONF / "logger" / "wandb.yaml").is_file()


def test_later_commands_send_a_finished_run(call, tiny, server: Stub, monkeypatch) -> None:
    """An agent's second trial of the same values trains nothing, but its sweep waits for its
    numbers."""
    config = tiny("trainer.max_epochs=1")
    record = train(config, CHOICES).record
    folders = (f"runs_dir={config.runs_dir}", f"cache_dir={config.cache_dir}")
    done = call("scripts/evaluate.py", f"run={record.run}", *folders, "logger=wandb")
    assert (done.returncode, server.steps(record.run)) == (0, [1]), done.stderr
    monkeypatch.setenv("WANDB_SWEEP_ID", "s1")
    monkeypatch.setenv("WANDB_RUN_ID", "trial")
    done = call("train.py", *TINY, "trainer.max_epochs=1", *folders, "logger=wandb")
    assert (done.returncode, server.steps("trial")) == (0, [1]), done.stderr
    assert list(server.runs) == [record.run, "trial"]


@pytest.fixture
def thief(tmp_path: Path, server: Stub, monkeypatch) -> Iterator[Stub]:
    """Return the server that the folder names in which the process stands; the user's own settings
    name `server`, by a path that is relative to that folder."""
    with serving() as stub:
        for name, url in (("wandb", stub.url), (".wandb", stub.url), ("config", server.url)):
            (tmp_path / name).mkdir()
            settings = f"[default]\nbase_url = {url}\nentity = thief\nmode = online\n"
            (tmp_path / name / "settings").write_text(settings)
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("WANDB_BASE_URL")
        monkeypatch.setenv("WANDB_CONFIG_DIR", "config")
        yield stub


@pytest.mark.parametrize("unused", ["wandb", ".wandb", "none"])
def test_settings_of_the_folder_are_not_obeyed(record, folder, server, thief, unused) -> None:
    if unused == "none":  # and the server fails
        server.failure = "500"
        note = sent(record, folder, "logger.wandb.mode=online")
        assert "to send it: wandb sync" in str(note)
    else:
        shutil.rmtree(unused)
        assert sent(record, folder) is None
        assert server.steps(record.run) == TWELVE
    assert thief.calls == []


def test_report_is_saved_where_the_user_says(record, server, thief, tmp_path) -> None:
    pytest.importorskip("wandb_workspaces")
    from rectifiers.results.wandb_report import save

    save([record], entity=None, project="ours", group=None, kept=tmp_path / "reports.json")
    assert len(server.views) == 1
    assert thief.calls == []
