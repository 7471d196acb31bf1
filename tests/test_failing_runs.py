"""A run that fails ends: with its sentence, an exit status that is not 0, and no process left
behind."""

import os
import resource
import signal
import struct
import subprocess
import sys
import zlib
from contextlib import suppress
from pathlib import Path

import pytest

from photos import write_folder
from processes import alone, launched, start, wait_for
from sentences import sentence

LONGEST_S = 60  # far more than a run takes that fails, and far less than forever
SMALL = ("data=folder", "model=mini", "activation=relu", "data.resize_px=40", "data.crop_px=32")
SMALL += ("data.batch_size=4", "trainer.max_epochs=1", "logger=none", "data.protocol=paper")
LONG = "trainer.max_epochs=100000"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two classes of four images for training and for validation."""
    return write_folder(tmp_path / "photos")


def deceptive_png() -> bytes:
    """An image with sound checksums, which is found to be damaged only when it is decoded."""
    header = struct.pack(">IIBBBBB", 48, 40, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", b"no zlib stream"), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in parts
    )


def ended(process: subprocess.Popen, status: int = 1) -> str:
    """Wait for a process that must fail, and return what it says; its pipes close when its last
    process has ended."""
    _, said = process.communicate(timeout=LONGEST_S)
    assert process.returncode == status, said
    return said


def refused(command: list[str]) -> str:
    """Run a command that must fail, and return its sentence, the last line."""
    return sentence(ended(start(command)))


def training(place: Path, *overrides: str) -> subprocess.Popen:
    """Start a run and return it when it has made its first checkpoint."""
    process = start(alone(place, *overrides))
    wait_for(lambda: list(place.glob("runs/*/last.ckpt")), process)
    return process


@pytest.mark.parametrize(("part", "workers"), [("train", 2), ("val", 0)])
def test_an_empty_image_ends_the_run(tmp_path: Path, root: Path, part: str, workers: int) -> None:
    (root / part / "b" / "2.jpg").write_bytes(b"")
    said = refused(alone(tmp_path, *SMALL, f"data.root={root}", f"data.num_workers={workers}"))
    assert "2.jpg cannot be read" in said


@pytest.mark.process
def test_ctrl_c_ends_the_run_and_its_workers(tmp_path: Path, root: Path) -> None:
    process = training(tmp_path, *SMALL, LONG, f"data.root={root}", "data.num_workers=2")
    for pid in (*launched(process), process.pid):  # a terminal sends it to all
        with suppress(ProcessLookupError):  # one of an epoch that has just ended
            os.kill(pid, signal.SIGINT)
    assert ended(process, status=130).splitlines()[-1].startswith("stopped by SIGINT")


@pytest.mark.process
def test_too_little_shared_memory_ends_the_run(tmp_path: Path, root: Path) -> None:
    process = training(tmp_path, *SMALL, LONG, f"data.root={root}", "data.num_workers=2")
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1000, 1000))  # of shared memory, too
    assert "could not be given shared memory" in sentence(ended(process))


@pytest.mark.process
def test_a_damaged_image_ends_an_analysis(tmp_path: Path, root: Path) -> None:
    (root / "train" / "b" / "2.jpg").write_bytes(deceptive_png())
    places = [f"data.root={root}", f"cache_dir={tmp_path}", f"out={tmp_path}/out"]
    command = [sys.executable, "scripts/analyse.py", "preprocessing", *SMALL[:6], *places]
    said = refused([*command, "data.num_workers=2"])
    assert "2.jpg cannot be read" in said
