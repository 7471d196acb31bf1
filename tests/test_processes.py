"""One real process of each kind, for every change: a run, two ranks, kills. The others are marked
`process`."""

import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch

from conftest import TINY, numbers, same_bits
from processes import alone, finish, record, start, together, wait_for, weights
from rectifiers.runs import record as records
from rectifiers.runtime import processor
from rectifiers.training.run import train


def test_the_last_line_is_the_records_path(tmp_path: Path) -> None:
    """A new interpreter, as a user starts it; the forks after it find the run that it left."""
    done = finish(alone(tmp_path, *TINY), new=True)
    path = Path(done.stdout.splitlines()[-1])
    assert path.is_file()
    assert "ten_view" in done.stdout
    assert (
        "This run exists already. rerun=true runs it again."
        in finish(alone(tmp_path, *TINY)).stdout
    )
    path.write_text(path.read_text().replace('"codes": [\n  "', '"codes": [\n  "0'))
    assert "It is of older code." in finish(alone(tmp_path, *TINY)).stdout


@pytest.mark.process
def test_two_processes_of_half_the_batch_train_like_one(tiny, tmp_path: Path) -> None:
    """60 steps from the same weights on the same images; what differs is the order of float32
    sums."""
    options = (
        "model.dropout=0",
        "trainer.max_epochs=6",
        "data.batch_size=126",
        "data.val_fraction=0.2494",
    )
    train(tiny(*options), {})
    together_in = tmp_path / "together"
    done = finish(together(2, together_in, *TINY, *options))
    first = done.stderr.splitlines()[0]
    place = f"2 processes on 2 x {processor.name()}"
    assert f"batch 126 = 2 x 63, 32-true, 1 node, {place}; all have this configuration" in first
    assert done.stdout.count("record.json") == 1  # one of them speaks
    assert record(together_in).parent.name == record(tmp_path).parent.name
    ours, theirs = weights(together_in), weights(tmp_path)
    for name, value in theirs.items():
        assert torch.allclose(ours[name], value, atol=1e-5, rtol=0), name
    assert records.load(record(together_in)).compute["processes"] == 2
    history = [records.load(record(place)).history for place in (together_in, tmp_path)]
    for a, b in zip(*history, strict=True):
        assert a["train_loss"] == pytest.approx(b["train_loss"], rel=1e-5)


@pytest.mark.process
def test_a_run_killed_at_random_moments_ends_as_if_it_had_not_been(tiny, tmp_path: Path) -> None:
    longer = ("trainer.max_epochs=60", "scheduler.patience=3")
    begun = time.monotonic()
    whole, cut = train(tiny(*longer), {}), tmp_path / "cut"
    five_epochs = (time.monotonic() - begun) / 12
    folder = cut / "runs" / whole.record.run
    moments = random.Random(0)
    for _ in range(3):
        process = start(alone(cut, *TINY, *longer))
        before = newest_line(folder)
        wait_for(lambda before=before: newest_line(folder) > before, process)
        time.sleep(
            moments.random() * five_epochs
        )  # also a fast machine is far from the end after three times
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert not (folder / "record.json").exists() or records.load(folder / "record.json")
    done = finish(alone(cut, *TINY, *longer))
    assert "continuing from" in done.stderr
    assert done.stdout.rstrip().endswith("record.json")
    assert same_bits(weights(tmp_path), weights(cut))
    ours, theirs = numbers(whole.record), numbers(records.load(folder / "record.json"))
    del ours["choices"], theirs["choices"]
    assert ours == theirs


def newest_line(folder: Path) -> int:
    """When the last epoch was written down."""
    path = folder / "metrics.csv"
    return path.stat().st_mtime_ns if path.exists() else 0
