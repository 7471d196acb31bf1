"""Where a process stands among its ranks."""

import sys

import pytest
import torch

from processes import ranks
from rectifiers.runtime.distributed import SINGLE_PROCESS, World, start_any, world
from refusals import refused

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "x",
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
}
SRUN = {
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NUM_NODES": "2",
}
BATCH_SCRIPT = {"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}


def test_launchers_variables_say_where_a_process_stands() -> None:
    assert world(TORCHRUN) == world(SRUN) == World(5, 8, 1, 2)
    assert world({}) == world(BATCH_SCRIPT) == SINGLE_PROCESS
    for name, value in (("RANK", "one"), ("WORLD_SIZE", "7")):
        with refused(f"{name}={value} .*start as many on every node"):
            world({**TORCHRUN, name: value})


ASKS = """
import sys, torch
from rectifiers.runtime.distributed import join_process_group, start_any, world
here = world()
join_process_group(here, "gloo", 60)
answers = []
for bad in ((), (1,), (0, 1), (0,), ()):
    is_any = start_any(torch.tensor(here.rank in bad))
    torch.distributed.all_reduce(torch.ones(3))  # as a backward pass does before the answer is waited for
    answers.append(is_any())
print(answers)
"""  # noqa: E501


@pytest.mark.process
def test_any_rank_answers_for_all() -> None:
    for done in ranks(*[[sys.executable, "-c", ASKS]] * 2):
        assert done.stdout.split("\n")[0] == "[False, True, True, True, False]", done.stderr[-2000:]


def test_one_process_answers_for_itself() -> None:
    assert start_any(torch.tensor(True))() is True
    assert start_any(torch.tensor(False))() is False
