"""Runs of the real command, and what W&B has of them."""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml

from conftest import ROOT, TINY, compose_config
from rectifiers.runs import record as records
from rectifiers.training.module import Classifier
from rectifiers.training.run import train
from tracking.stub import Stub

pytestmark = pytest.mark.process

CHOICES = {"activation": "prelu", "init": "he", "model": "mlp", "data": "digits"}


@pytest.fixture
def report(call) -> Callable[..., CompletedProcess[str]]:
    return partial(call, "scripts/report.py")


def test_a_run_is_mirrored_epoch_by_epoch(
    tiny, server: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row by row while it trains, and the same run again after an interrupt."""
    whole = Classifier.on_train_epoch_start

    def interrupted(module: Classifier) -> None:
        if module.current_epoch == 2:
            raise KeyboardInterrupt
        whole(module)

    with monkeypatch.context() as patched:
        patched.setattr(Classifier, "on_train_epoch_start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(tiny("logger=wandb"), CHOICES)
    (name,) = server.runs
    assert server.steps(name) == [1, 2]
    assert server.exits[name] == 130
    outcome = train(tiny("logger=wandb"), CHOICES)
    assert outcome.note is None
    assert outcome.record.run == name
    assert server.steps(name) == [1, 2, 3]
    assert server.exits[name] == 0
    last = server.history[name][3]
    for key, value in outcome.record.history[-1].items():
        assert last[key] == value
    assert {
        "val/loss",
        "slope/fc_1",
        "response_mean/fc_1",
        "response_std/fc_2",
        "dead_units/fc_2",
    } <= last.keys()
    assert server.summaries[name]["ten_view/num_images"] == 450


def test_each_run_of_a_process_is_separate_and_a_diverged_one_has_failed(
    tiny, server: Stub
) -> None:
    good = train(tiny("logger=wandb", "trainer.max_epochs=1"), CHOICES).record
    bad = train(tiny("logger=wandb", "trainer.max_epochs=1", "optim.lr=1e20"), CHOICES).record
    assert bad.status == "diverged"
    assert set(server.runs) == {good.run, bad.run}
    assert (server.exits[good.run], server.exits[bad.run]) == (0, 1)
    assert server.summaries[bad.run]["status"] == "diverged"


def test_a_protocol_that_is_added_later_is_sent_to_the_same_run(tiny, server: Stub) -> None:
    asked = ("logger=wandb", "trainer.max_epochs=1")
    name = train(tiny(*asked, "evaluation=center"), CHOICES).record.run
    assert "ten_view/num_images" not in server.summaries[name]
    train(tiny(*asked, "evaluation=[center,ten_view]"), CHOICES)
    assert list(server.runs) == [name]
    assert server.steps(name) == [1]
    assert server.summaries[name]["ten_view/num_images"] == 450


def test_sync_sends_an_offline_run_once(
    report, tiny, server: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny("logger=wandb", "logger.mode=offline", "trainer.max_epochs=2")
    outcome = train(config, CHOICES)
    assert outcome.note is None
    assert server.calls == []
    server.failure = "403"
    refused = report("sync", f"--runs={config.runs_dir}")
    assert refused.returncode == 1
    assert refused.stdout == "0 sent, 1 not sent\n"
    assert "403" in refused.stderr
    server.failure = None
    done = report("sync", f"--runs={config.runs_dir}")
    assert (done.returncode, done.stdout) == (0, "1 sent, 0 not sent\n"), done.stderr
    assert server.steps(outcome.record.run) == [1, 2]
    calls = len(server.calls)
    again = report("sync", f"--runs={config.runs_dir}")
    assert (again.returncode, again.stdout, len(server.calls)) == (0, "0 sent, 0 not sent\n", calls)


def test_sync_turns_any_records_into_runs(report, server: Stub) -> None:
    path = sorted((ROOT / "results" / "records").glob("*.json"))[0]
    record = records.load_training(path)
    done = report("sync", str(path), "--project=ours")
    assert done.returncode == 0, done.stderr
    assert server.runs[record.run]["project"] == "ours"
    assert len(server.steps(record.run)) == record.epochs


def test_sync_of_no_folder_is_one_sentence(report, tmp_path: Path) -> None:
    done = report("sync", f"--runs={tmp_path}/none")
    assert done.returncode == 1
    assert (
        done.stderr
        == f"error: --runs={tmp_path}/none is not a folder; give the one that holds the runs\n"
    )


def test_the_sweep_file_has_overrides_that_the_command_line_knows() -> None:
    sweep = yaml.safe_load((ROOT / "scripts" / "wandb_sweep.yaml").read_text())
    assert (ROOT / sweep["program"]).is_file()
    fixed = [part for part in sweep["command"] if "=" in part]
    for name, asked in sweep["parameters"].items():
        for value in asked.get("values", [asked.get("min")]):
            compose_config(*fixed, f"{name}={value}")

    assert sweep["metric"]["name"].startswith("val/")


@pytest.mark.slow
def test_an_agent_of_a_sweep_runs_a_trial_by_the_documented_command(
    server: Stub, tmp_path: Path
) -> None:
    """A second trial of the same values trains nothing, but its sweep waits for its numbers."""
    sweep = yaml.safe_load((ROOT / "scripts" / "wandb_sweep.yaml").read_text())
    small = (
        *TINY,
        "logger=wandb",
        "trainer.max_epochs=2",
        f"runs_dir={tmp_path}/runs",
        f"cache_dir={tmp_path}/cache",
    )
    sweep["command"][-1:-1] = small
    server.sweep = yaml.safe_dump(sweep)
    chosen = {"activation": "prelu_shared", "optim.lr": 0.05, "seed": 2}
    arguments = {name: {"value": value} for name, value in chosen.items()}
    trial = {"type": "run", "program": sweep["program"], "args": arguments}
    server.trials = [{**trial, "run_id": name} for name in ("trial1", "trial2")]
    wandb = Path(sys.executable).with_name("wandb")
    path = os.pathsep.join((str(wandb.parent), os.environ["PATH"]))  # the agent calls `python`
    done = subprocess.run(
        [wandb, "agent", "--count", "2", "stub/swept/s1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PATH": path, "WANDB_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"},
    )
    assert list((tmp_path / "runs").glob("*/record.json")), (
        done.stdout + done.stderr
    )  # an agent ends with 0 whatever
    (record,) = map(records.load, (tmp_path / "runs").glob("*/record.json"))
    assert record.choices["activation"] == "prelu_shared"
    assert (record.science["optim"]["lr"], record.science["seed"]) == (0.05, 2)
    assert list(server.runs) == ["trial1", "trial2"]
    for name, told in server.runs.items():
        assert (told["project"], told["sweep"]) == ("swept", "s1")
        assert server.steps(name) == [1, 2]
        measured = server.summaries[name][sweep["metric"]["name"]]
        assert measured == record.protocols["center"].top1_error_pct
