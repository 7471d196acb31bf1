"""Diagnostics measure what is there, and the run has the same bits with them and without."""

from pathlib import Path

import pytest
import torch

from conftest import compose_config, numbers, same_bits, weights
from cutting import cut
from rectifiers.runs.config import RunConfig
from rectifiers.training.diagnostics import BINS, Signals, distribution
from rectifiers.training.train import train


def test_a_distribution_covers_all_numbers() -> None:
    draw = torch.randn(200, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = distribution(draw)
    assert (found.mean, found.std) == (float(draw.mean()), float(draw.std(correction=0)))
    assert len(found.counts) == BINS
    assert abs(sum(found.counts) / draw.numel() - 0.99) < 1e-3
    one = distribution(torch.zeros(4, 5))
    assert (one.std, sum(one.counts)) == (0, 20)


def test_a_run_has_the_same_bits_with_diagnostics(tiny, tmp_path) -> None:
    alone = train(tiny(), {})
    signals = Signals([0, 3])
    watched = train(tiny(f"runs_dir={tmp_path}/watched"), {}, callbacks=[signals])
    assert numbers(watched.record) == numbers(alone.record)
    assert same_bits(weights(alone), weights(watched))
    assert signals.found.keys() == {0, 3}
    assert signals.found[3].keys() == {"fc_1", "fc_2"}
    assert all(len(pair) == 2 for pair in signals.found[3].values())
    answers, gradients = signals.found[0]["fc_1"]
    assert 0.3 < answers.std < 3  # He's start
    assert 0 < gradients.std < 0.1


def small(folder: Path, *more: str) -> RunConfig:
    """A perceptron of 16-12-10 on digits of 4 px: two epochs."""
    options = """model=mlp model.depth=1 model.hidden=12 data=digits8 data.resize_px=4
        data.crop_px=4 optim=plain trainer.max_epochs=2 evaluation=[center] logger=none"""
    return compose_config(*options.split(), f"runs_dir={folder}", *more)


def test_fisher_information_changes_no_bit(tmp_path) -> None:
    watched = train(small(tmp_path, "callbacks=fisher"), {})
    alone = train(small(tmp_path), {})
    assert same_bits(weights(alone), weights(watched))
    first, last = watched.record.history
    added = {key for key in last if key.startswith("fisher/")}
    assert len(added) == 12
    assert set(last) - added == set(alone.record.history[-1])
    assert 0.1 < last["fisher/output_units"] < 0.6
    assert 1 < last["fisher/natural_angle"] < 90
    assert first["fisher/off_over_diagonal"] != last["fisher/off_over_diagonal"]


@pytest.mark.parametrize(("init", "expected"), [("zeros", 0), ("constant", 1), ("he", 12)])
def test_ranks_count_the_units_that_differ(init: str, expected: int, tmp_path) -> None:
    record = train(small(tmp_path, f"init={init}", "callbacks=ranks"), {}).record
    assert [row["rank/fc"] for row in record.history] == [expected] * 2
    assert record.history[-1]["rank/out"] <= max(1, expected)


def test_way_of_an_epoch_is_measured(tmp_path) -> None:
    """One step an epoch is a straight line. Behind a sigmoid one image alone gives all of a unit's
    weights one sign."""
    whole = ("data.batch_size=1347", "data.protocol=paper")
    single = ("data.batch_size=1", "trainer.max_epochs=1")
    one = train(small(tmp_path, "callbacks=zigzag", *whole), {}).record
    assert [row["straight/fc"] for row in one.history] == pytest.approx([1, 1])
    config = small(tmp_path, "callbacks=zigzag", "activation=sigmoid", *single)
    row = train(config, {}).record.history[-1]
    assert row["signs/out"] == pytest.approx(1)
    assert row["signs/fc"] < 0.9  # standardised pixels have either sign
    assert 0 < row["straight/out"] < 0.5


def test_interruption_changes_no_measure_of_the_way(tmp_path) -> None:
    whole = train(small(tmp_path / "whole", "callbacks=zigzag"), {}).record
    stopping = small(tmp_path / "stopped", "callbacks=zigzag", "checkpoint.every_n_steps=3")
    cut(stopping, 5)
    resumed = train(stopping, {}).record
    keys = [key for key in whole.history[0] if key.startswith(("signs", "straight"))]
    assert len(keys) == 4
    for one, other in zip(whole.history, resumed.history, strict=True):
        assert [one[key] for key in keys] == [other[key] for key in keys]


def test_intensity_is_kept_without_biases_alone(tmp_path) -> None:
    """A factor of a power of two is exact; the outputs of a sigmoid are no multiples of its
    inputs."""
    without = ["optim.bias_lr_factor=1e-30"]
    sigmoid = ["activation=sigmoid", "callbacks.equivariance.factor=0.01", "optim.lr=0.1"]
    zero, learned = (
        train(small(tmp_path, "callbacks=equivariance", *more), {}).record.history[-1]
        for more in (without, sigmoid)
    )
    assert zero["equivariance/intensity"] == 0
    assert learned["equivariance/intensity"] > 0.1
    assert 0.1 < zero["equivariance/translation"] < 1  # a quarter of an image of 4 px
