"""When the learning rate changes."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import compose_config
from rectifiers.training.optim import Schedule, build_schedule, multistep, plateau
from rectifiers.training.targets import import_functions
from rectifiers.training.train import train
from refusals import refused

STEPS = 3  # of an epoch


def test_plateau_drops_when_the_error_stops_falling() -> None:
    assert plateau([9, 8, 7, 7, 7, 6, 5], patience=2, max_drops=2) == [5]
    assert plateau([9, 8, 7, 8, 6, 5, 4], patience=2, max_drops=2) == []
    assert plateau([5] * 20, patience=2, max_drops=2) == [3, 5]
    # falling, and never below the first
    assert plateau([5, 9, 8, 7, 6], patience=2, max_drops=2) == [3, 5]
    assert plateau([5] * 20, patience=2, max_drops=0) == []
    assert plateau([5] * 20, patience=2, max_drops=2, warmup_epochs=6) == [8, 10]


def test_restart_within_warm_up_keeps_the_first_rates() -> None:
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([{"params": [parameter], "lr": 0.05, "initial_lr": 0.2}])
    schedule = Schedule(5, 2, drops=lambda errors: [])
    schedule.start(optimizer)
    schedule.warm_up(1, 4)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.2 * 2 / 8)


def test_multistep_ignores_the_error() -> None:
    assert multistep([9, 8, 7, 6, 5, 4], milestones=(2, 5)) == [2, 5]
    assert multistep([5] * 9, milestones=()) == []


def test_scheduler_that_cannot_be_built_is_one_sentence(tiny) -> None:
    lacking = "scheduler._target_=torch.optim.lr_scheduler.OneCycleLR", "scheduler.max_lr=0.1"
    with refused(r"scheduler\._target_ cannot be built"):
        train(tiny("scheduler=multistep", *lacking), {})


@given(st.lists(st.integers(0, 20), max_size=60), st.integers(0, 60), st.integers(1, 5))
def test_later_errors_change_no_earlier_drop(errors: list[int], at: int, patience: int) -> None:
    assert plateau(errors[:at], patience=patience, max_drops=2) == [
        epoch for epoch in plateau(errors, patience=patience, max_drops=2) if epoch <= at
    ]


def rates(schedule: Schedule, epochs: int) -> list[list[float]]:
    """Return the rate of each step of each epoch, from 0.1, with an error that never falls."""
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    schedule.start(optimizer)
    table: list[list[float]] = []
    for epoch in range(epochs):
        row = []
        for step in range(STEPS):
            schedule.warm_up(epoch * STEPS + step, STEPS)
            row.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
        schedule.end_epoch([50.0] * (epoch + 1))
        table.append(row)
    return table


def schedule_of(*overrides: str) -> Schedule:
    config = compose_config(*overrides)
    return build_schedule(config, import_functions(config))


def test_warm_up_rises_step_by_step() -> None:
    schedule = schedule_of("trainer.max_epochs=3", "scheduler.warmup_epochs=2")
    table = rates(schedule, 3)
    assert table[0] + table[1] == pytest.approx([0.1 * k / 6 for k in range(1, 7)], rel=1e-12)
    assert table[2] == [0.1] * 3


def test_no_drop_is_lost_in_warm_up() -> None:
    overrides = ("scheduler.warmup_epochs=6", "scheduler.patience=2", "trainer.max_epochs=12")
    schedule = schedule_of("scheduler=plateau", *overrides)
    table = rates(schedule, 12)  # the error never falls
    assert schedule.drop_epochs([50.0] * 12) == [8, 10]
    expected = [0.1] * 2 + [0.01] * 2 + [0.001] * 2
    assert [row[0] for row in table[6:]] == pytest.approx(expected, rel=1e-12)


def test_cosine_falls_after_warm_up() -> None:
    overrides = ("scheduler=cosine", "trainer.max_epochs=5", "scheduler.warmup_epochs=1")
    table = rates(schedule_of(*overrides), 5)
    expected = [0.05 * (1 + math.cos(math.pi * epoch / 4)) for epoch in range(4)]
    assert [row[0] for row in table[1:]] == pytest.approx(expected, rel=1e-12)


def test_a_drop_divides_by_the_factor() -> None:
    overrides = ("scheduler=multistep", "scheduler.milestones=[1,2]", "scheduler.drop_factor=4")
    table = rates(schedule_of(*overrides), 3)
    assert [row[0] for row in table] == [0.1, 0.1 / 4, 0.1 / 4 / 4]


def test_no_rate_drops_after_the_last_epoch() -> None:
    overrides = ("scheduler=multistep", "scheduler.milestones=[2]", "trainer.max_epochs=2")
    assert schedule_of(*overrides).drop_epochs([50.0, 50.0]) == []
