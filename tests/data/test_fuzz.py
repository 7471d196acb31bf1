"""Damaged images, indexes and shards through the reader: what was written comes out of it, or a
sentence."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import require
from rectifiers.data import jpeg
from rectifiers.runtime.compiling import JPEG

pytestmark = pytest.mark.process

PROGRAM = Path(__file__).with_name("fuzz_reader.py")
MEMORY = 4 << 30  # bytes that a reader may have; a hostile size must not fill the machine


def read_damaged(
    prepared: Path, work: Path, count: int, seed: int, *library: str, **environment: str
) -> dict:
    """Read `count` mutants of each kind in a process of its own, and return what came out of each
    kind."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(prepared), str(work), str(count), str(seed), *library],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        preexec_fn=None
        if library
        else lambda: resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY)),
        capture_output=True,
        text=True,
        timeout=3600,
    )
    assert done.returncode == 0, done.stderr
    assert "Sanitizer" not in done.stderr, done.stderr
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
def test_twenty_thousand_damaged_files_of_each_kind_are_read_correctly_or_refused(
    prepared: Path, tmp_path: Path
) -> None:
    check(read_damaged(prepared, tmp_path, 20_000, 1), 20_000)


@pytest.mark.slow
@pytest.mark.skipif(
    jpeg.unavailable_reason() is not None,
    reason=f"there is no C library to test: {jpeg.unavailable_reason()}",
)
def test_no_damaged_file_makes_the_reader_access_foreign_memory(
    prepared: Path, tmp_path: Path
) -> None:
    """21,000 files; Python's own memory comes from malloc, so that a step beyond a file's bytes is
    seen."""
    require("cc")
    library = tmp_path / "library.so"
    flags = [
        "-std=gnu11",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        "-O1",
        "-g",
        "-DPLAIN",
        "-fPIC",
    ]
    stamp = f'-DSOURCE_HASH="{JPEG.source_hash()}"'
    code = map(str, JPEG.sources())
    subprocess.run(
        ["cc", *flags, "-shared", stamp, *code, "-o", str(library), "-ljpeg", "-lm"], check=True
    )
    first = [
        subprocess.check_output(["cc", f"-print-file-name=lib{name}.so"], text=True)
        for name in ("asan", "ubsan")
    ]
    sanitized = {
        "LD_PRELOAD": ":".join(path.strip() for path in first),
        "ASAN_OPTIONS": "detect_leaks=0",
    }
    found = read_damaged(
        prepared, tmp_path, 7000, 2, str(library), PYTHONMALLOC="malloc", **sanitized
    )
    check(found, 7000)
