"""Several real processes of one run: rank 0 alone logs to W&B."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, TINY
from rectifiers.runs import record as records
from tracking.stub import Stub

pytestmark = pytest.mark.process


def test_rank_zero_alone_logs_the_run_of_two_processes(server: Stub, tmp_path: Path) -> None:
    torchrun = [
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=127.0.0.1:0",
    ]
    options = (
        *(each for each in TINY if not each.startswith("logger=")),
        "logger=wandb",
        "logger.mode=online",
        "trainer.max_epochs=2",
        "evaluation=[center]",
        f"runs_dir={tmp_path}/runs",
    )
    done = subprocess.run(
        [
            sys.executable,
            *torchrun,
            "--local-addr=127.0.0.1",
            "train.py",
            *options,
            f"cache_dir={tmp_path}/cache",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "runs").glob("*/record.json")
    record = records.load(path)
    assert record.compute["processes"] == 2
    assert list(server.runs) == [record.run]
    assert server.steps(record.run) == [1, 2]
    for step, row in enumerate(record.history, start=1):
        told = server.history[record.run][step]
        assert {key: told[key] for key in row} == row
    assert server.exits == {record.run: 0}
    assert len([place for place in path.parent.glob("wandb/*run-*") if not place.is_symlink()]) == 1
