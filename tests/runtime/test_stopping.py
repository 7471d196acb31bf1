"""A signal at any stage of a run: it stops where nothing is lost, with a status, and the same
command goes on."""

import functools
import multiprocessing
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from conftest import numbers, places, same_bits
from rectifiers.data import sources
from rectifiers.data.datamodule import ImageData
from rectifiers.runs import record as records
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.stopping import Stopped, deferring_signals
from rectifiers.training import recording
from rectifiers.training import train as run
from rectifiers.training.checkpoints import AtomicCheckpointIO
from rectifiers.training.epoch_end import EpochEnd
from refusals import refused

STAGES = {
    "data": (sources, "digits", "while the data was opened"),
    "statistics": (ImageData, "_ordered_loader", "while learning the preprocessing"),
    "set-up of the trainer": (EpochEnd, "setup", "after step 1"),
    "last epoch": (EpochEnd, "on_train_epoch_end", "after step 10"),
    "test": (recording, "evaluate", "while testing"),
    "record": (records, "write", "at its end"),
}


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> Any:
    from conftest import TINY, compose_config

    place = tmp_path_factory.mktemp("straight")
    return run.train(compose_config(*TINY, *SHORT, *places(place)), {})


SHORT = ("trainer.max_epochs=1", "data.batch_size=128", "evaluation=[center]")


@pytest.mark.parametrize(
    ("stage", "number"),
    [
        *((stage, signal.SIGTERM) for stage in STAGES),
        ("last epoch", signal.SIGINT),
        ("test", signal.SIGUSR1),
    ],
)
def test_run_resumes_after_a_signal(
    tiny, straight, tmp_path: Path, monkeypatch, capfd, stage: str, number: signal.Signals
) -> None:
    owner, name, where = STAGES[stage]
    options = (*SHORT, f"cache_dir={tmp_path}/cache")  # no statistics are there
    original = getattr(owner, name)

    @functools.wraps(original)
    def interrupted(*arguments: Any, **settings: Any) -> Any:
        signal.raise_signal(number)
        return original(*arguments, **settings)

    former = signal.signal(number, signal.SIG_DFL)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, interrupted)
            with pytest.raises(Stopped) as stopped:
                run.train(tiny(*options), {})
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, former)
    assert stopped.value.code == (130 if number == signal.SIGINT else 75)
    (message,) = [line for line in capfd.readouterr().err.splitlines() if "stopped by" in line]
    assert message.startswith(f"stopped by {number.name} {where}; ")
    again = run.train(tiny(*options), {})
    assert again.fresh == (stage != "record")
    states = [
        AtomicCheckpointIO().load_checkpoint(o.path.parent / "last.ckpt")["state_dict"]
        for o in (straight, again)
    ]
    assert same_bits(*states)
    assert numbers(straight.record) == numbers(again.record)


def test_second_ctrl_c_ends_at_once() -> None:
    # a shell's background has it ignored
    former = signal.signal(signal.SIGINT, signal.default_int_handler)

    def twice() -> None:
        with deferring_signals():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            pytest.fail("it waited")

    try:
        with pytest.raises(KeyboardInterrupt):
            twice()
    finally:
        signal.signal(signal.SIGINT, former)


def test_processes_of_the_caller_live_on() -> None:
    own = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    own.start()
    try:
        with deferring_signals():
            worker = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
            worker.start()
        assert own.is_alive()
        assert not worker.is_alive()
    finally:
        own.kill()
        own.join()


def test_ignored_signals_stay_ignored() -> None:
    """A shell ignores signals in its background jobs, and so does nohup."""
    former = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with deferring_signals():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, former)


@pytest.mark.parametrize(
    "other", [None, KeyError("a thread"), InputError("last.ckpt could not be written")]
)
def test_a_killed_worker_is_one_line(other: Exception | None) -> None:
    @deferring_signals()
    def work() -> None:
        try:
            raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")
        except RuntimeError:
            if other is not None:  # of code that the error came to
                raise other from None
            raise

    with refused(r"^a process that loads images was killed \(DataLoader worker \(pid 7\)"):
        work()
