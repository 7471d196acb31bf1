"""Damaged images, indexes and shards through the reader: what was written comes out of it, or a
sentence."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

PROGRAM = Path(__file__).with_name("fuzz_reader.py")
MEMORY = 4 << 30  # bytes that a reader may have; a hostile size must not fill the machine


def read_damaged(prepared: Path, work: Path, count: int, seed: int) -> dict:
    """Read `count` mutants of each kind in a process of its own, and return what came out of each
    kind."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(prepared), str(work), str(count), str(seed)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY)),
        capture_output=True,
        text=True,
        timeout=3600,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {kind: sum(outcomes.values()) for kind, outcomes in found.items()} == dict.fromkeys(
        found, count
    )
    return found


def check(found: dict, count: int) -> None:
    """Both outcomes are common, or nothing was tried."""
    for kind in ("image", "index", "shard"):
        assert found[kind]["read"] > count / 10, found
        assert found[kind]["refused"] > count / 10, found


def test_damaged_files_are_read_correctly_or_refused(prepared: Path, tmp_path: Path) -> None:
    check(read_damaged(prepared, tmp_path, 120, 0), 120)


@pytest.mark.slow
def test_many_damaged_files_are_read_correctly_or_refused(prepared: Path, tmp_path: Path) -> None:
    check(read_damaged(prepared, tmp_path, 20_000, 1), 20_000)
