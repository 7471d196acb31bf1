"""A real SLURM of two nodes on this machine: the batch script, requeueing with an exact resume,
submitit."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from conftest import ROOT, TINY, numbers, same_bits
from rectifiers.runs import record as records

pytestmark = pytest.mark.slow
SIZES = (*TINY, "trainer.max_epochs=20", "data.batch_size=32")
CLUSTER = ROOT / "scripts" / "slurm" / "local_cluster.sh"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Start the cluster, and stop all of it at the end."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip("a SLURM of one's own needs root and Debian's packages")
    folder = tmp_path_factory.mktemp("slurm")
    started = subprocess.run(
        [CLUSTER, "start", folder], capture_output=True, text=True, timeout=400
    )
    assert started.returncode == 0, started.stderr
    try:
        yield {
            **os.environ,
            "SLURM_CONF": started.stdout.strip(),
            "OMP_NUM_THREADS": "1",
            "MASTER_ADDR": "127.0.0.1",
            "GLOO_SOCKET_IFNAME": "lo",
        }
    finally:
        subprocess.run([CLUSTER, "stop", folder], capture_output=True, timeout=60)


def call(environment: dict[str, str], *command: str) -> str:
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def wait_for(seen: Callable[[], object], seconds: float = 200) -> None:
    end = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < end
        time.sleep(0.2)


def submit(environment: dict[str, str], place: Path) -> str:
    sizes = [
        "--nodes=2",
        "--ntasks-per-node=1",
        "--gpus-per-node=0",
        "--cpus-per-task=1",
        f"--output={place}/job.txt",
    ]
    own = [*SIZES, f"runs_dir={place}/runs", f"cache_dir={place}/cache"]
    return call(
        environment, "sbatch", "--parsable", *sizes, "scripts/slurm/train.sbatch", *own
    ).strip()


def test_a_job_is_queued_again_on_a_signal_and_ends_with_the_same_bits(
    environment: dict[str, str], tmp_path: Path
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for place in (whole, cut):
        place.mkdir()
    submit(environment, whole)
    wait_for(lambda: list(whole.glob("runs/*/record.json")))
    job = submit(environment, cut)
    wait_for(lambda: list(cut.glob("runs/*/metrics.csv")))
    call(environment, "scancel", "-s", "USR1", job)
    wait_for(lambda: "PD" in call(environment, "squeue", "-h", "-o", "%t"))
    assert "stopped by SIGUSR1 after step " in (cut / "job.txt").read_text()
    assert not list(cut.glob("runs/*/record.json"))
    time.sleep(
        10
        # SLURM itself waits two minutes: the nodes refuse a job whose credential they have just
        # revoked
    )
    call(environment, "scontrol", "update", f"JobId={job}", "StartTime=now")
    wait_for(lambda: list(cut.glob("runs/*/record.json")))
    assert "continuing from" in (cut / "job.txt").read_text()
    states, found = [], []
    for place in (whole, cut):
        (path,) = place.glob("runs/*/record.json")
        found.append(numbers(records.load(path)))
        states.append(torch.load(path.parent / "last.ckpt", weights_only=True)["state_dict"])
        assert records.load(path).compute["processes"] == 2
    assert same_bits(*states)
    assert found[0] == found[1]


def test_hydras_launcher_makes_a_job_of_every_run(
    environment: dict[str, str], tmp_path: Path
) -> None:
    places = [f"runs_dir={tmp_path}/runs", f"cache_dir={tmp_path}/cache"]
    small = [
        "hydra/launcher=slurm",
        "hydra.launcher.gpus_per_node=null",
        "hydra.launcher.cpus_per_task=1",
    ]
    overrides = [*TINY, "trainer.max_epochs=1", "seed=0,1", *small, *places]
    call(environment, sys.executable, "train.py", "--multirun", *overrides)
    assert len(list(tmp_path.glob("runs/*/record.json"))) == 2


def test_a_sweep_goes_through_submitit_and_a_job_that_makes_room_comes_back(
    environment: dict[str, str], tmp_path: Path
) -> None:
    places = [f"runs_dir={tmp_path}/runs", f"cache_dir={tmp_path}/cache"]
    sweep = [sys.executable, "scripts/sweep.py"]
    folder = f"{tmp_path}/sweep"

    def states() -> list[str]:
        answer = call(environment, *sweep, "status", folder, "--json")
        return sorted(cell["state"] for cell in json.loads(answer))

    call(environment, *sweep, "plan", folder, *SIZES, "trainer.max_epochs=120", "seed=0,1", *places)
    asked = ["--cluster", "slurm", "--set", "timeout_min=30"]
    answer = call(environment, *sweep, "launch", folder, *asked)
    assert set(states()) <= {"queued", "running"}
    assert not call(environment, *sweep, "launch", folder, *asked)
    wait_for(lambda: list(tmp_path.glob("runs/*/metrics.csv")))
    begun = next(tmp_path.glob("runs/*/metrics.csv")).parent
    job = next(line.split()[0] for line in answer.splitlines() if begun.name in line)
    call(environment, "scancel", "-s", "USR2", job)
    wait_for(lambda: "PD" in call(environment, "squeue", "-h", "-j", job, "-o", "%t"))
    assert not (begun / "record.json").exists()
    output = next((tmp_path / "sweep" / "submitit").glob(f"{job}_*.err"))
    assert "stopped by SIGUSR1 after step " in output.read_text()
    wait_for(lambda: list(tmp_path.glob("runs/*/record.json")), 400)
    assert states() == ["done", "queued"]
    call(environment, "scontrol", "update", f"JobId={job}", "StartTime=now")
    wait_for(lambda: (begun / "record.json").exists(), 400)
    assert "continuing from" in output.read_text()
    assert states() == ["done", "done"]
