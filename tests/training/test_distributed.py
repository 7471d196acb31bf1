"""Several real processes that train one run: the same numbers, the same bits after a restart, no
one left waiting."""

import os
import resource
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from conftest import TINY, numbers, places, same_bits
from processes import alone, finish, launched, ranks, record, start, together, wait_for, weights
from rectifiers.evaluation.evaluate import load_scores
from rectifiers.runs import record as records
from rectifiers.runs.folder import run_lock, scores_path
from rectifiers.training.checkpoints import AtomicCheckpointIO

pytestmark = pytest.mark.process

# 449 test images, which neither two nor three processes share evenly; batches that both do
PLAIN = (*TINY, "model.dropout=0", "trainer.max_epochs=6")
PLAIN += ("data.batch_size=126", "data.val_fraction=0.2494")

WITHIN = (*TINY, "trainer.max_epochs=20", "data.batch_size=32", "checkpoint.every_n_steps=5")


@pytest.fixture(scope="module")
def one(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("one")
    finish(alone(place, *PLAIN))
    return place


def command_of(processes: int, place: Path, *overrides: str) -> list[str]:
    if processes == 1:
        return alone(place, *overrides)
    return together(processes, place, *overrides)


def begun(place: Path, *options: str, restarts: int = 0, **more: Any) -> Any:
    """Return a run on two processes, after its first epoch of 42 steps."""
    process = start(together(2, place, *WITHIN, *options, restarts=restarts), **more)
    wait_for(lambda: list(place.glob("runs/[0-9a-f]*/metrics.csv")), process)
    return process


def test_two_ranks_train_like_one(one: Path, tmp_path: Path) -> None:
    """60 steps from the same weights on the same images; only the order of float32 sums differs."""
    done = finish(together(2, tmp_path, *PLAIN))
    assert done.stdout.count("record.json") == 1  # rank 0 speaks
    assert "batch 126 = 2 x 63" in done.stderr
    assert "warning" not in done.stderr.lower()
    assert record(tmp_path).parent.name == record(one).parent.name
    ours, theirs = weights(tmp_path), weights(one)
    for name, value in theirs.items():
        assert torch.allclose(ours[name], value, atol=1e-5, rtol=0), name
    assert records.load(record(tmp_path)).compute["processes"] == 2
    history = [records.load(record(place)).history for place in (tmp_path, one)]
    for a, b in zip(*history, strict=True):
        assert a["train_loss"] == pytest.approx(b["train_loss"], rel=1e-5)


def test_counts_are_exact_on_one_to_three_ranks(one: Path, tmp_path: Path) -> None:
    """The same weights on 449 images, through a record to which protocols are added."""
    asked = ("evaluation=[ten_view,center]", "evaluation.center.scale_px=11")
    asked += ("evaluation.keep_scores=true",)
    found = []
    for processes in (1, 2, 3):
        place = tmp_path / str(processes)
        shutil.copytree(one / "runs", place / "runs")
        finish(command_of(processes, place, *PLAIN, *asked))
        path = record(place)
        protocols = records.load(path).protocols
        assert protocols["center"].num_images == 449
        counts = [(p.top1_correct, p.top5_correct, p.correct_mask) for p in protocols.values()]
        found.append((counts, load_scores(scores_path(path.parent, "center")).scores))
    for counts, scores in found[1:]:
        assert counts == found[0][0]
        assert abs(scores - found[0][1]).max() < 1e-6  # matrix products of other batch sizes


def test_three_ranks_test_a_run_of_any_batch(tmp_path: Path) -> None:
    """A run, and the plain weights of it, by scripts/evaluate.py; the counts are those of one
    process."""
    options = (*TINY, "trainer.max_epochs=1", "data.batch_size=128", "evaluation=center")
    finish(alone(tmp_path, *options))
    folder = record(tmp_path).parent
    saved = weights(tmp_path)
    plain = {n.removeprefix("network."): w for n, w in saved.items() if n.startswith("network.")}
    torch.save(plain, tmp_path / "net.pt")
    asked = (f"cache_dir={tmp_path}/cache", "evaluation=ten_view", "evaluation.keep_scores=true")
    network = [each for each in TINY if each.startswith(("model", "data."))]
    commands = [(f"run={folder}", *asked), (f"run={tmp_path}/net.pt", *network, *asked)]
    found = []
    for processes in (1, 3):
        for arguments in commands:
            typed = [sys.executable, "scripts/evaluate.py", *arguments]
            printed = ranks(*[typed] * processes)
            assert [done.returncode for done in printed] == [0] * processes, printed
            assert [bool(done.stdout) for done in printed] == [True] + [False] * (processes - 1)
        of_weights = load_scores(scores_path(tmp_path / "net.pt.tested", "ten_view"))
        of_run = records.load(folder / "record.json")
        mask = of_run.protocols["ten_view"].correct_mask
        found.append((mask, of_weights.scores.argmax(1).tolist()))
        assert of_run.protocols["ten_view"].num_images == len(of_weights.scores) == 450
        shutil.rmtree(tmp_path / "net.pt.tested")
        kept = of_run.model_copy(update={"protocols": {"center": of_run.protocols["center"]}})
        records.write(folder / "record.json", kept)
    assert found[0] == found[1]


def test_ranks_end_when_their_launcher_is_killed(tmp_path: Path) -> None:
    """With their loaders' workers and within seconds, so that the run can be resumed at once."""
    options = (*PLAIN, "data.num_workers=2")
    torchrun = start(together(2, tmp_path, *options, "trainer.max_epochs=2000"))
    wait_for(lambda: list(tmp_path.glob("runs/[0-9a-f]*/last.ckpt")), torchrun)
    started = psutil.Process(torchrun.pid).children(recursive=True)
    assert len(started) >= 2 + 2 * 2
    torchrun.kill()
    _, alive = psutil.wait_procs(started, timeout=15)
    assert not alive
    (folder,) = (path.parent for path in tmp_path.glob("runs/[0-9a-f]*/last.ckpt"))
    with run_lock(folder, patience_s=0):
        pass


@pytest.mark.parametrize(
    ("theirs", "key"),
    [("seed=1", "seed"), pytest.param("compile=true", "compile", marks=pytest.mark.slow)],
)
def test_a_rank_that_differs_stops_all(tmp_path: Path, theirs: str, key: str) -> None:
    done = ranks(alone(tmp_path, *PLAIN), alone(tmp_path, *PLAIN, theirs))
    assert [process.returncode for process in done] == [1, 1]
    assert f"error: rank 1 has another {key} than rank 0" in done[0].stderr
    assert not list(tmp_path.glob("runs/*"))


# What each rank does of two calls, of which one fails on rank 1, and one on rank 0, as no one
# foresaw.
UNFORESEEN = """
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.distributed import run_on_all_ranks, broadcast_from_rank_zero, join_process_group, world
here = world()
join_process_group(here, "gloo", 60)
for share, guilty in ((run_on_all_ranks, 1), (broadcast_from_rank_zero, 0)):
    try:
        share(lambda: 1 / (here.rank != guilty))
    except (InputError, ZeroDivisionError) as error:
        print(type(error).__name__, error)
"""  # noqa: E501


def test_unexpected_error_propagates_to_all_ranks(tmp_path: Path) -> None:
    first, second = ranks(*[[sys.executable, "-c", UNFORESEEN]] * 2)
    own = "ZeroDivisionError division by zero"
    named = "InputError rank {} failed (ZeroDivisionError: division by zero)"
    for process, lines in ((first, (named.format(1), own)), (second, (own, named.format(0)))):
        for line, expected in zip(process.stdout.splitlines(), lines, strict=True):
            assert line.startswith(expected), process.stderr


# train.py, of which rank 1 fails in the test of the first run
FAILS_IN_THE_TEST = """
import os, runpy
from rectifiers.training import recording
def fails(*arguments, **settings):
    if os.environ["RANK"] == "1":
        raise ValueError("unforeseen")
    return evaluate(*arguments, **settings)
evaluate, recording.evaluate = recording.evaluate, fails
runpy.run_path("train.py", run_name="__main__")
"""


def test_a_sweep_ends_where_one_rank_fails(tmp_path: Path) -> None:
    command = ["--multirun", *alone(tmp_path, *PLAIN, "trainer.max_epochs=1")[2:]]
    lost = ranks(*[[sys.executable, "-c", FAILS_IN_THE_TEST, *command, "seed=0,1"]] * 2)
    assert [done.returncode for done in lost] == [1, 1]
    assert "ValueError: unforeseen" in lost[1].stderr
    assert "error: rank 0 lost the other processes (" in lost[0].stderr
    assert not list(tmp_path.glob("runs/[0-9a-f]*/record.json"))
    common = ranks(*[[sys.executable, "train.py", *command, "data.batch_size=127,126"]] * 2)
    assert [done.returncode for done in common] == [1, 1]
    assert record(tmp_path)  # of the second run


def test_bad_input_on_one_rank_stops_all(tmp_path: Path) -> None:
    for name in ("train/a/0.png", "train/b/0.png", "val/a/0.png", "val/b/0.png"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / name).touch()
    roots = [f"data.root={tmp_path}/{root}" for root in ("photos", "nowhere")]
    done = ranks(*(alone(tmp_path, "data=folder", root) for root in roots))
    assert [process.returncode for process in done] == [1, 1]
    assert f"error: rank 1: data.root={tmp_path}/nowhere is not a folder" in done[0].stderr


# train.py, of which each rank prints its rank for each checkpoint that it reads
TELLS_WHAT_IT_READS = """
import os, runpy, torch
def tells(path, *arguments, **settings):
    if str(path).endswith(".ckpt"):
        print("reads", os.environ["RANK"], os.path.basename(path))
    return load(path, *arguments, **settings)
load, torch.load = torch.load, tells
runpy.run_path("train.py", run_name="__main__")
"""


def resumed(place: Path, processes: int, *options: str) -> list[Any]:
    """Run `train.py` to its end on so many ranks, each of which tells what it reads."""
    command = [sys.executable, "-c", TELLS_WHAT_IT_READS, *alone(place, *options)[2:]]
    return ranks(*[command] * processes)


def reads(ended: list[Any]) -> list[str]:
    lines = [line for process in ended for line in process.stdout.splitlines()]
    return [line for line in lines if line.startswith("reads")]


@pytest.mark.parametrize("processes", [2, 3])
def test_a_checkpoint_is_read_once_for_all_ranks(one: Path, tmp_path: Path, processes: int) -> None:
    """To go on, from the newest or a chosen one, and to test what is finished; with equal bits."""
    chosen = tmp_path / "chosen.ckpt"
    shutil.copy(record(one).parent / "last.ckpt", chosen)
    for name, asked in (("last.ckpt", ()), ("chosen.ckpt", (f"ckpt_path={chosen}",))):
        place = tmp_path / name.removesuffix(".ckpt")
        shutil.copytree(one / "runs", place / "runs")
        record(place).unlink()
        ended = resumed(place, processes, *PLAIN, *asked)
        assert [process.returncode for process in ended] == [0] * processes, ended
        # the newest one in any case, for it may have begun at the chosen one
        assert reads(ended) == [f"reads 0 {file}" for file in dict.fromkeys(["last.ckpt", name])]
        assert same_bits(weights(place), weights(one))
    ended = resumed(place, processes, *PLAIN, "evaluation.center.scale_px=11")
    assert [process.returncode for process in ended] == [0] * processes, ended
    assert reads(ended) == ["reads 0 last.ckpt"]


@pytest.mark.parametrize("is_finished", [False, True])
def test_an_unreadable_checkpoint_stops_all_ranks(
    one: Path, tmp_path: Path, is_finished: bool
) -> None:
    shutil.copytree(one / "runs", tmp_path / "runs")
    last = record(tmp_path).parent / "last.ckpt"
    last.write_bytes(last.read_bytes()[:-100])
    if not is_finished:
        record(tmp_path).unlink()
    more = ("evaluation.center.scale_px=11",) if is_finished else ()
    ended = resumed(tmp_path, 3, *PLAIN, *more)
    assert [process.returncode for process in ended] == [1] * 3
    errors = [line for process in ended for line in process.stderr.splitlines() if "error" in line]
    assert len(errors) == 1
    assert "last.ckpt cannot be read (" in errors[0]


def test_a_full_disk_keeps_the_last_good_state(tmp_path: Path) -> None:
    """The file-size limit stands for the full disk: the kernel refuses the bytes beyond it in the
    middle of a write."""
    finish(alone(tmp_path, *WITHIN, "trainer.max_epochs=1"))
    size = (record(tmp_path).parent / "last.ckpt").stat().st_size
    options = (*WITHIN, "trainer.max_epochs=40")
    process = start(alone(tmp_path, *options))
    others = set(tmp_path.glob("runs/[0-9a-f]*/metrics.csv"))
    wait_for(lambda: set(tmp_path.glob("runs/[0-9a-f]*/metrics.csv")) - others, process)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size // 2, size // 2))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "last.ckpt could not be written (" in err
    assert "make room there and give the same command" in err
    assert "Traceback" not in err
    folders = {path.parent for path in tmp_path.glob("runs/[0-9a-f]*/last.ckpt")}
    (folder,) = folders - {record(tmp_path).parent}
    assert AtomicCheckpointIO().load_checkpoint(folder / "last.ckpt")
    assert not list(folder.glob("*.part"))
    finish(alone(tmp_path, *options))


# a callback that may freeze layers, for which DDP looks for parameters without a gradient
MAY_FREEZE = "+callbacks.own._target_=pytorch_lightning.callbacks.LambdaCallback"


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "more"), [(2, ()), (3, ()), (3, (MAY_FREEZE,))])
def test_a_killed_rank_restarts_with_equal_bits(tmp_path: Path, processes: int, more) -> None:
    options = (*WITHIN, "data.batch_size=36", *more)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    finish(together(processes, whole, *options))
    process = start(together(processes, cut, *options, restarts=3))
    wait_for(lambda: list(cut.glob("runs/[0-9a-f]*/metrics.csv")), process)
    os.kill(launched(process)[-1], signal.SIGKILL)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert same_bits(*map(weights, (whole, cut)))
    one, other = (numbers(records.load(record(place))) for place in (whole, cut))
    assert one == other


@pytest.mark.slow
def test_a_signal_to_one_rank_stops_both(tmp_path: Path) -> None:
    process = begun(tmp_path)
    os.kill(launched(process)[1], signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "stopped by SIGTERM after step " in err


# train.py, of which rank 1 gets a signal, and no other rank, when it begins to test
ASKED_IN_THE_TEST = """
import os, runpy, signal
from rectifiers.training import recording
begin = recording.evaluate
def asked(*arguments, **settings):
    if os.environ["RANK"] == "1":
        signal.raise_signal(signal.SIGUSR1)
    return begin(*arguments, **settings)
recording.evaluate = asked
runpy.run_path("train.py", run_name="__main__")
"""


def test_a_signal_while_testing_stops_both_ranks(tmp_path: Path) -> None:
    command = alone(tmp_path, *PLAIN, "trainer.max_epochs=1")
    cut = ranks(*[[sys.executable, "-c", ASKED_IN_THE_TEST, *command[2:]]] * 2)
    assert [done.returncode for done in cut] == [75, 75], cut
    assert "stopped by SIGUSR1 while testing; " in cut[0].stderr
    assert "stopped by" not in cut[1].stderr
    assert not list(tmp_path.glob("runs/[0-9a-f]*/record.json"))
    assert list(tmp_path.glob("runs/[0-9a-f]*/last.ckpt"))


@pytest.mark.slow
@pytest.mark.parametrize("asked", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_torchrun_stops_all_ranks(tmp_path: Path, asked: signal.Signals) -> None:
    """It signals whole groups of processes, loaders' workers among them."""
    default = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    process = begun(tmp_path, "data.num_workers=1", preexec_fn=default)
    process.send_signal(asked)
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert err.count(f"stopped by {asked.name} after step ") == 1, err
    assert "DataLoader worker" not in err


@pytest.mark.slow
def test_processes_make_one_record_of_an_ensemble(tmp_path: Path) -> None:
    small = (*PLAIN, "trainer.max_epochs=1", "evaluation=center")
    finish(alone(tmp_path, "--multirun", *small, "seed=0,1"))
    names = [path.parent.name for path in tmp_path.glob("runs/[0-9a-f]*/record.json")]
    asked = [f"run=[{','.join(names)}]", *places(tmp_path), "evaluation=center"]
    ended = ranks(*[[sys.executable, "scripts/evaluate.py", *asked]] * 2)
    assert [done.returncode for done in ended] == [0, 0], ended
    assert "ensemble" in ended[0].stdout
    assert not ended[1].stdout
    assert len(list(tmp_path.glob("runs/[0-9a-f]*/record.json"))) == 3


# train.py, of which each rank prints its running statistics when a validation is over
TELLS_ITS_STATISTICS = """
import runpy
from rectifiers.training.module import Classifier
def tell(module):
    print("buffers", [buffer.tolist() for _, buffer in sorted(module.network.named_buffers())])
Classifier.on_validation_end = tell
runpy.run_path("train.py", run_name="__main__")
"""


@pytest.mark.slow
def test_batch_statistics_are_the_same_on_all_ranks(tmp_path: Path) -> None:
    """Each rank normalises its own half of a batch; what is validated, tested and kept is rank
    0's."""
    command = alone(tmp_path, *PLAIN, "trainer.max_epochs=2", "model.norm=batch")
    done = ranks(*[[sys.executable, "-c", TELLS_ITS_STATISTICS, *command[2:]]] * 2)
    printed = [
        [line for line in process.stdout.splitlines() if line.startswith("buffers")]
        for process in done
    ]
    assert printed[0] == printed[1]
    assert len(set(printed[0])) == 2  # they move from epoch to epoch


@pytest.mark.slow
def test_a_hanging_rank_ends_the_run_in_time(tmp_path: Path) -> None:
    process = begun(tmp_path, "trainer.max_epochs=100000", "timeout_s=10")
    os.kill(launched(process)[1], signal.SIGSTOP)
    # torchrun gives its processes half a minute to leave
    _, err = process.communicate(timeout=10 + 30 + 60)
    assert process.returncode != 0
    assert "rank 0 lost the other processes (" in err, err
