"""A real SLURM of two nodes on this machine: the batch script, requeueing with an exact resume,
submitit."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from conftest import ROOT, TINY, numbers, places, same_bits
from rectifiers.runs import record as records

pytestmark = pytest.mark.slow
SIZES = (*TINY, "trainer.max_epochs=20", "data.batch_size=32")
CLUSTER = ROOT / "scripts" / "slurm" / "local_cluster.sh"


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Iterator[dict[str, str]]:
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
    own = [*SIZES, *places(place)]
    return call(
        environment, "sbatch", "--parsable", *sizes, "scripts/slurm/train.sbatch", *own
    ).strip()


def test_requeued_job_has_equal_bits(environment: dict[str, str], tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for place in (whole, cut):
        place.mkdir()
    submit(environment, whole)
    wait_for(lambda: list(whole.glob("runs/[0-9a-f]*/record.json")))
    job = submit(environment, cut)
    wait_for(lambda: list(cut.glob("runs/[0-9a-f]*/metrics.csv")))
    call(environment, "scancel", "-s", "USR1", job)
    wait_for(lambda: "PD" in call(environment, "squeue", "-h", "-o", "%t"))
    assert "stopped by SIGUSR1 after step " in (cut / "job.txt").read_text()
    assert not list(cut.glob("runs/[0-9a-f]*/record.json"))
    time.sleep(10)  # the nodes refuse a job whose credential they have just revoked
    call(environment, "scontrol", "update", f"JobId={job}", "StartTime=now")
    wait_for(lambda: list(cut.glob("runs/[0-9a-f]*/record.json")))
    assert "continuing from" in (cut / "job.txt").read_text()
    states, found = [], []
    for place in (whole, cut):
        (path,) = place.glob("runs/[0-9a-f]*/record.json")
        found.append(numbers(records.load(path)))
        states.append(torch.load(path.parent / "last.ckpt", weights_only=True)["state_dict"])
        assert records.load(path).compute["processes"] == 2
    assert same_bits(*states)
    assert found[0] == found[1]


def test_hydras_launcher_makes_a_job_of_every_run(environment, tmp_path) -> None:
    small = ["hydra/launcher=submitit_slurm", "hydra.launcher.timeout_min=30"]
    overrides = [*TINY, "trainer.max_epochs=1", "seed=0,1", *small, *places(tmp_path)]
    call(environment, sys.executable, "train.py", "--multirun", *overrides)
    assert len(list(tmp_path.glob("runs/[0-9a-f]*/record.json"))) == 2
