"""Two hosts for real: network namespaces with addresses of their own, a cable between them,
torchrun on each."""

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import ROOT, TINY, places
from rectifiers.runs import record as records

pytestmark = pytest.mark.process

ADDRESS = {"a": "10.77.0.1", "b": "10.77.0.2"}


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def hosts() -> Iterator[dict[str, str]]:
    """Two namespaces, by host; taken down with all that runs in them."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need iproute2 and root")
    names = {host: f"rect-{uuid.uuid4().hex[:6]}{host}" for host in ADDRESS}
    try:
        ip("netns", "add", names["a"])
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces are not permitted here: {error.stderr.strip()}")
    try:
        ip("netns", "add", names["b"])
        own, other = ("wire", "netns", names["a"]), ("wire", "netns", names["b"])
        ip("link", "add", *own, "type", "veth", "peer", "name", *other)
        for host, name in names.items():
            ip("-n", name, "addr", "add", f"{ADDRESS[host]}/24", "dev", "wire")
            for device in ("lo", "wire"):
                ip("-n", name, "link", "set", device, "up")
        yield names
    finally:
        for name in names.values():
            subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def start(name: str, host: str, place: Path, *overrides: str) -> subprocess.Popen:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "wire"}
    environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    options = f"""-m torch.distributed.run --nnodes=2 --nproc-per-node=1 --rdzv-id=test
        --rdzv-backend=c10d --rdzv-endpoint={ADDRESS["a"]}:29501
        --rdzv-conf=is_host={int(host == "a")} --local-addr={ADDRESS[host]}"""
    python = ["ip", "netns", "exec", name, sys.executable, *options.split()]
    command = [*python, "train.py", *TINY, *overrides]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*command, *places(place)], cwd=ROOT, env=environment, **pipes)  # type: ignore[call-overload]


def test_two_hosts_train_one_run(hosts: dict[str, str], tmp_path: Path) -> None:
    started = [start(name, host, tmp_path) for host, name in hosts.items()]
    ended = [(*process.communicate(timeout=240), process.returncode) for process in started]
    assert [code for _, _, code in ended] == [0, 0], ended
    (path,) = tmp_path.glob("runs/[0-9a-f]*/record.json")
    assert sum(out.count(str(path)) for out, _, _ in ended) == 1
    assert any("2 nodes, 2 processes on 2 x " in err for _, err, _ in ended)
    found = records.load(path)
    assert found.compute["processes"] == 2
    assert found.protocols["ten_view"].num_images == 450
