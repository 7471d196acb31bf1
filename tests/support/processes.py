"""Real processes that train one run, alone or as ranks."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import torch

import forkserver
from conftest import ROOT, places

ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    "PYTHONFAULTHANDLER": "1",
}
STARTED: list[subprocess.Popen] = []


def alone(place: Path, *overrides: str) -> list[str]:
    return [sys.executable, "train.py", *overrides, *places(place)]


def together(processes: int, place: Path, *overrides: str, restarts: int = 0) -> list[str]:
    torchrun = f"""-m torch.distributed.run --nnodes=1 --nproc-per-node={processes}
        --rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:0 --local-addr=127.0.0.1
        --max-restarts={restarts}"""
    return [sys.executable, *torchrun.split(), *alone(place, *overrides)[1:]]


def start(command: Sequence[str], *, new: bool = False, **more: Any) -> subprocess.Popen:
    """Start a command of Python: torchrun as it is, and where `new`; a script by a fork of the
    server."""
    popen = subprocess.Popen if new or command[1] == "-m" else forkserver.Popen
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    STARTED.append(popen(command, cwd=ROOT, **{"env": ENVIRONMENT, **pipes, **more}))
    return STARTED[-1]


def kill_what_is_left() -> None:
    """Kill all that was started and has not ended."""
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            for pid in (*launched(process), process.pid):
                os.kill(pid, signal.SIGKILL)
            process.wait()  # and not for the end of its pipes, which a loader that hangs may hold


def launched(torchrun: subprocess.Popen) -> list[int]:
    """The processes that it started, in the order of their ranks."""
    found = subprocess.run(["pgrep", "-P", str(torchrun.pid)], capture_output=True, text=True)
    return [int(pid) for pid in found.stdout.split()]


def finish(command: Sequence[str], *, new: bool = False, **more: str) -> Any:
    """Run a command to its end, which must be a good one."""
    process = start(command, new=new, env={**ENVIRONMENT, **more})
    out, err = output(process, seconds=300)
    assert process.returncode == 0, err
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def output(process: subprocess.Popen, seconds: float) -> tuple[str, str]:
    """Return what a process writes until it ends. One that hangs is aborted, so that it and its
    children write where each of their threads stands."""
    try:
        return process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        for each in (*psutil.Process(process.pid).children(recursive=True)[::-1], process):
            each.send_signal(signal.SIGABRT)
        stacks = "".join(process.communicate(timeout=60))
        raise AssertionError(f"{process.args} hung for {seconds} s:\n{stacks}") from None


def ranks(*per_rank: Sequence[str]) -> list[subprocess.CompletedProcess[str]]:
    """Run one process per rank without torchrun, each with a command of its own."""
    ended = [(process, *output(process, seconds=200)) for process in start_ranks(*per_rank)]
    return [subprocess.CompletedProcess(p.args, p.returncode, out, err) for p, out, err in ended]


def start_ranks(*per_rank: Sequence[str]) -> list[subprocess.Popen]:
    """Start the processes of `ranks`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for rank, command in enumerate(per_rank):
        told = f"""TORCHELASTIC_RUN_ID=test RANK={rank} LOCAL_RANK={rank} GROUP_RANK=0
            GROUP_WORLD_SIZE=1 WORLD_SIZE={len(per_rank)} MASTER_ADDR=127.0.0.1
            MASTER_PORT={port}"""
        variables = dict(variable.split("=") for variable in told.split())
        started.append(start(command, env=ENVIRONMENT | variables))
    return started


def wait_for(seen: Callable[[], object], process: subprocess.Popen, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not seen():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)


def record(place: Path) -> Path:
    (found,) = place.glob("runs/[0-9a-f]*/record.json")
    return found


def weights(place: Path) -> dict[str, torch.Tensor]:
    return torch.load(record(place).parent / "last.ckpt", weights_only=True)["state_dict"]
