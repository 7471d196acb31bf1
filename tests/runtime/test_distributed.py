"""Where a process stands among its ranks."""

import pytest

from rectifiers.runtime.distributed import SINGLE_PROCESS, World, world
from rectifiers.runtime.errors import InputError


def test_the_launchers_variables_say_where_a_process_stands() -> None:
    torchrun = {"TORCHELASTIC_RUN_ID": "x", "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "GROUP_WORLD_SIZE": "2"}
    srun = {
        "SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_NODES": "2",
    }  # fmt: skip
    assert world(torchrun) == world(srun) == World(5, 8, 1, 2)
    assert world({}) == world({"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}) == SINGLE_PROCESS  # a batch script is no task
    with pytest.raises(InputError, match="start the processes by torchrun or srun"):
        world({**torchrun, "RANK": "one"})
    with pytest.raises(InputError, match="not the same number on each"):
        world({**torchrun, "WORLD_SIZE": "7"})
