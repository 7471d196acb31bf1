"""Where a process stands among its ranks."""

import sys

import pytest
import torch

from processes import ranks
from rectifiers.runtime.distributed import SINGLE_PROCESS, World, start_any, world
from rectifiers.runtime.errors import InputError

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
        with pytest.raises(InputError, match=f"{name}={value} .*start as many on every node"):
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


SENDS = """
import torch
from torch import nn
from rectifiers.runtime.distributed import broadcast_from_rank_zero, join_process_group, world
here = world()
join_process_group(here, "gloo", 60)
torch.manual_seed(here.rank)
maps = torch.randn(4, 6, 5, 3)
whole = {
    "last": maps.to(memory_format=torch.channels_last), "part": maps[1:3, ::2], "one": maps[0, 0, 0, 0],
    "expanded": maps[:, :1].expand(4, 6, 5, 3), "overlapping": maps.as_strided((2, 2), (1, 1)),
    "half": maps.bfloat16(), "true": maps > 0, "complex": torch.complex(maps, maps), "none": maps[:0],
    "sparse": (maps[0, 0] * (maps[0, 0] > 0)).to_sparse(), "twice": [maps, (maps, {"n": torch.arange(3)})],
    "learned": maps.clone().requires_grad_(), "module": nn.Linear(3, 2), "word": "x", "number": 1.5,
}
def bits(x):
    if isinstance(x, dict): return {key: bits(value) for key, value in x.items()}
    if isinstance(x, list | tuple): return [bits(value) for value in x]
    if isinstance(x, nn.Module): return [type(p).__name__ for p in x.parameters()], bits(x.state_dict())
    if not isinstance(x, torch.Tensor): return x
    strides = x.stride() if x.layout is torch.strided and x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) else 0
    return str(x.dtype), list(x.shape), strides, x.requires_grad, x.is_sparse, x.to_dense().tolist()
print(bits(broadcast_from_rank_zero(lambda: whole)))
"""  # noqa: E501


@pytest.mark.process
@pytest.mark.parametrize("processes", [2, 3])
def test_a_value_is_sent_with_its_tensors(processes: int) -> None:
    ended = ranks(*[[sys.executable, "-c", SENDS]] * processes)
    assert [done.returncode for done in ended] == [0] * processes, ended
    assert len({done.stdout for done in ended}) == 1


def test_one_process_answers_for_itself() -> None:
    assert start_any(torch.tensor(True))() is True
    assert start_any(torch.tensor(False))() is False
