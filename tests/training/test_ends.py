"""What ends a run: it is over within seconds, nothing is left running, and the same command goes on
to the bits of a straight run."""

import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from conftest import TINY, numbers, same_bits
from photos import write_folder
from processes import alone, finish, launched, record, start, together, wait_for, weights
from rectifiers.runs import record as records
from sentences import sentence

pytestmark = pytest.mark.process

ENDS_S = 20  # beside other work; a run takes a second or two
# epochs of 42 steps
WITHIN = (*TINY, "data.batch_size=32", "checkpoint.every_n_steps=5")
OF_USER = (*WITHIN, "trainer.max_epochs=40", "callbacks=ranks", "data=digits")
OF_USER += ("data._target_=of_the_user.data", "callbacks.ranks._target_=of_the_user.Acts")
PHOTOS = """data=folder model=mini activation=relu data.resize_px=40 data.crop_px=32
data.batch_size=4 trainer.max_epochs=30 logger=csv data.protocol=paper threads=1"""
CODE_OF_THE_USER = '''
import os, signal
from dataclasses import replace
from pathlib import Path
from pytorch_lightning.callbacks import Callback
from torch.utils.data import get_worker_info
from rectifiers.data import sources

def act(place):
    """Fail where the file asks this place for it."""
    asked = Path(__file__).with_name("asked")
    if asked.exists() and asked.read_text() == place:
        if place == "killed worker":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ZeroDivisionError(place)

class Acts(Callback):
    def on_train_batch_end(self, *_):
        act("callback")

class Split(sources.ArraySplit):
    def image(self, index):
        act("main process" if get_worker_info() is None else "worker")
        if get_worker_info() is not None:
            act("killed worker")
        return super().image(index)

def data(val_fraction, split_seed):
    source = sources.digits(val_fraction, split_seed)
    return replace(source, train=Split(source.train.images, source.train.labels))
'''
WITH_CODE = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
del sys.argv[:2]
runpy.run_path(sys.argv[0], run_name='__main__')
"""


def of_user(code: Path, place: Path, *overrides: str) -> list[str]:
    """Return the command of a run with the user's code in the folder `code`."""
    _, *command = alone(place, *OF_USER, *overrides)
    return [sys.executable, "-c", WITH_CODE, str(code), *command]


def newest_stamp(place: Path) -> int:
    return max(
        (path.stat().st_mtime_ns for path in place.glob("runs/[0-9a-f]*/last.ckpt")), default=0
    )


def training(command: list[str], place: Path) -> tuple[subprocess.Popen, list[psutil.Process]]:
    """Start a run and return it, and all its processes, when it has made a checkpoint."""
    before = newest_stamp(place)
    process = start(command)
    wait_for(lambda: newest_stamp(place) > before, process)
    return process, psutil.Process(process.pid).children(recursive=True)


def ended(process: subprocess.Popen, others: list[psutil.Process] = ()) -> str:
    """Wait for a run that must fail, and return what it says; nothing is left of it."""
    _, said = process.communicate(timeout=ENDS_S)
    assert process.returncode != 0, said
    assert not psutil.wait_procs(others, timeout=60)[1]
    return said


def check_equal_runs(*places: Path) -> None:
    assert same_bits(*map(weights, places))
    one, other = (numbers(records.load(record(place))) for place in places)
    assert one == other


@pytest.fixture(scope="module")
def code(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("code")
    (place / "of_the_user.py").write_text(CODE_OF_THE_USER)
    return place


@pytest.fixture(scope="module")
def straight(tmp_path_factory, code: Path) -> Path:
    place = tmp_path_factory.mktemp("straight")
    finish(of_user(code, place))
    return place


@pytest.mark.parametrize(
    ("where", "workers"),
    [("callback", 0), ("main process", 0), ("worker", 2), ("killed worker", 2)],
)
def test_a_failure_is_over_soon_and_resumable(
    straight: Path, code: Path, tmp_path: Path, where: str, workers: int
) -> None:
    command = of_user(code, tmp_path, f"data.num_workers={workers}")
    process, others = training(command, tmp_path)
    try:
        (code / "asked").write_text(where)
        said = ended(process, others).rstrip().splitlines()[-1]
    finally:
        (code / "asked").unlink()
    killed = "error: a process that loads images was killed"
    assert said.startswith(killed if where == "killed worker" else f"ZeroDivisionError: {where}")
    finish(command)
    check_equal_runs(straight, tmp_path)


def test_a_killed_rank_ends_both_and_is_resumable(tmp_path: Path) -> None:
    options = (*WITHIN, "trainer.max_epochs=20", "data.num_workers=1")
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    finish(together(2, whole, *options))
    process, others = training(together(2, cut, *options), cut)
    os.kill(launched(process)[-1], signal.SIGKILL)
    ended(process, others)
    finish(together(2, cut, *options))
    check_equal_runs(whole, cut)


def of_photos(place: Path) -> tuple[subprocess.Popen, list[psutil.Process]]:
    """Start an endless run whose images two workers load."""
    root = write_folder(place / "photos")
    options = (f"data.root={root}", "data.num_workers=2", "trainer.max_epochs=100000")
    return training(alone(place, *PHOTOS.split(), *options), place)


def test_ctrl_c_ends_the_run_and_its_workers(tmp_path: Path) -> None:
    process, others = of_photos(tmp_path)
    for pid in (*launched(process), process.pid):  # a terminal sends it to all
        with contextlib.suppress(ProcessLookupError):  # one of an epoch that has just ended
            os.kill(pid, signal.SIGINT)
    assert ended(process, others).splitlines()[-1].startswith("stopped by SIGINT")
    assert process.returncode == 130


def test_too_little_shared_memory_ends_the_run(tmp_path: Path) -> None:
    process, others = of_photos(tmp_path)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1000, 1000))  # of shared memory, too
    assert "could not be given shared memory" in sentence(ended(process, others))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_thirty_random_signals_change_no_bit(tmp_path: Path, number: signal.Signals) -> None:
    """Also before the first step: while torch is imported, and while data are opened."""
    options = (*WITHIN, "trainer.max_epochs=600")
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    finish(alone(whole, *options))
    moments = random.Random(int(number))
    for asked in range(30):
        process, moment = start(alone(cut, *options)), 3 * moments.random()
        time.sleep(moment)
        others = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        said = ended(process, others)
        about = f"signal {asked} of seed {int(number)}, after {moment:.3f} s: {said}"
        assert process.returncode in (75, 130, -number), about
        assert "Traceback" not in said, about
    finish(alone(cut, *options))
    check_equal_runs(whole, cut)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_fifty_random_kills_change_no_bit(tmp_path: Path, processes: int) -> None:
    options, epochs = (*WITHIN, "trainer.max_epochs=200", "model.norm=batch"), 200
    whole, cut = tmp_path / "whole", tmp_path / "cut"

    def command(place: Path) -> list[str]:
        return alone(place, *options) if processes == 1 else together(processes, place, *options)

    finish(command(whole))
    moments, kills = random.Random(processes), 0
    while kills < 50 and not list(cut.glob("runs/[0-9a-f]*/record.json")):
        process, before = start(command(cut)), newest_stamp(cut)
        with contextlib.suppress(AssertionError):
            wait_for(lambda before=before: newest_stamp(cut) > before, process)
        moment = moments.random() * 0.4
        time.sleep(moment)
        own = [process.pid, *launched(process)]  # torchrun's processes are in sessions of their own
        for pid in own:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()
        for pid in own[1:]:
            while Path(f"/proc/{pid}").exists():
                time.sleep(0.01)
        print(f"kill {kills} of seed {processes}, {moment:.3f} s after a checkpoint")
        kills += 1
    assert kills >= 50, f"the run was over after {kills} kills; make it longer"
    finish(command(cut))
    check_equal_runs(whole, cut)
    steps = [row["epoch"] for row in records.load(record(cut)).history]
    assert steps == list(range(1, epochs + 1))
