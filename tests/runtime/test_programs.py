"""Every program ends in one sentence, whatever its folders, files and streams are."""

import errno
import resource
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import torch

from conftest import ROOT
from rectifiers.data.imagenet.shards import ShardWriter, shard_name
from rectifiers.data.preprocess import Preprocess, save_preprocess
from rectifiers.runtime.console import cli_errors
from rectifiers.runtime.files import atomic_file, write_text
from sentences import sentence

LONG = "a" * 300


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("train.py", f"cache_dir={LONG}", "runs_dir={place}/runs"), LONG),
        (("train.py", "data=folder", f"data.root={LONG}"), f"data.root={LONG} cannot be read"),
        (
            ("train.py", "cache_dir={place}/file/in", "runs_dir={place}/runs"),
            "cache_dir={place}/file/in cannot be written, for {place}/file is",
        ),
        (
            ("scripts/report.py", "wandb", "--out", "{place}"),
            "{place} cannot be used (Is a directory); give another",
        ),
        (("scripts/report.py", "diff", LONG, LONG), f"{LONG} is not a run"),
        (("scripts/report.py", "show", "--runs", LONG), f"--runs={LONG} is not a folder"),
        (
            ("scripts/evaluate.py", "run=x", f"runs_dir={LONG}"),
            "run=x is not a finished run: there is no",
        ),
    ],
)
def test_unusable_place(call, command: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = call(*(part.format(place=tmp_path) for part in command))
    assert done.returncode == 1
    assert sentence(done.stderr).startswith(expected.format(place=tmp_path))


def test_errors_of_files_are_one_line(capsys) -> None:
    for error, expected in (
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "a file cannot be used (No space left on device); make",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "/a"),
            "/a cannot be used (Permission denied); give",
        ),
    ):
        with pytest.raises(SystemExit, match="1"), cli_errors():
            raise error
        assert sentence(capsys.readouterr().err).startswith(expected)
    with pytest.raises(SystemExit, match="130"), cli_errors("interrupted; go on"):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "interrupted; go on\n"
    with pytest.raises(OSError, match="no file"), cli_errors():
        raise OSError(errno.ECONNRESET, "no file")


def test_a_failed_write_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text(path, "old")

    def write_half() -> None:
        with atomic_file(path) as file:
            file.write(b"half")
            file.flush()
            assert path.read_text() == "old"  # until the new one is whole
            raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        write_half()
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("write", ["text", "statistics", "shard"])
def test_a_full_disk_names_the_file(write: str, tmp_path: Path) -> None:
    """The file-size limit stands for it."""

    def fill() -> None:
        if write == "text":
            write_text(tmp_path / "record.json", "a" * 100_000)
        elif write == "statistics":
            save_preprocess(Preprocess(torch.zeros(100_000), torch.ones(1), None, True), place)
        else:
            with closing(ShardWriter(tmp_path, (0, 0), 2**20)) as shards:
                shards.add(bytes(100_000))

    place = tmp_path / {"text": "record.json", "shard": shard_name(0)}.get(write, "fitted.pt")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as full:
            fill()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert full.value.filename == str(place)


@pytest.mark.process
def test_full_disk_behind_stdout_is_one_sentence() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "scripts/report.py", "show", "--json"]
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert sentence(done.stderr) == "what is printed cannot be written (No space left on device)"


STARTS_ITSELF = """
import os, subprocess, sys, time
code = "import signal, sys, time; from rectifiers.runtime.distributed import end_with_parent as e;"
code += "e(int(sys.argv[1]), signal.SIGTERM); print(1, flush=True); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", code, str(os.getpid() + int(sys.argv[1]))])
time.sleep(600)
"""


@pytest.mark.process
@pytest.mark.parametrize("offset", [0, 1])  # 1: the parent is another process, which is gone
def test_a_process_ends_when_its_parent_is_killed(offset: int) -> None:
    """The pipe closes when the last process that has it has ended."""
    command = [sys.executable, "-c", STARTS_ITSELF, str(offset)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        if offset == 0:
            assert parent.stdout.readline() == "1\n"
        parent.kill()
        parent.communicate(timeout=60)


@pytest.mark.process
def test_programs_import_from_the_working_folder(tmp_path: Path) -> None:
    (tmp_path / "of_mine.py").write_text("def bump(y):\n    return y.relu() + 0.1 * y.sin()\n")
    command = [ROOT / "scripts" / "analyse.py", "propagation", f"out={tmp_path}"]
    command += ["activation=relu", "activation._target_=of_mine.bump", "inputs=gaussian"]
    command += ["data=digits8", "model=mlp", "model.depth=2", "model.hidden=8", "seeds=2"]
    done = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.process
def test_first_imports_are_exempt_from_garbage_collection() -> None:
    """At exit it is not, and a second call, which would keep the garbage of runs, exempts none."""
    code = """
import atexit, gc
from rectifiers.runtime.machine import quick_imports
atexit.register(lambda: print(gc.get_freeze_count()))
with quick_imports():
    print(gc.isenabled())
first = gc.get_freeze_count()
kept = [[] for _ in range(1000)]
with quick_imports():
    pass
print(gc.isenabled(), first > 1000, gc.get_freeze_count() == first)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True", "True", "True", "0"], done.stderr
