"""The processes that share a run: who they are, and how they agree. They are started from outside (torchrun, srun).

Without torch until there are several; alone, every function here is the plain thing it stands for.
"""

import datetime
import hashlib
import os
import shlex
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rectifiers.runtime.errors import InputError

CONSOLE_SCRIPT = "rectifiers-train"  # of an installed package, as pyproject.toml names it
T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """This process among all of a run: rank of `size`, on one of `nodes`, where it is the `local_rank`-th."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    nodes: int = 1


ALONE = World()


def world(environment: Mapping[str, str] = os.environ) -> World:
    """Return this process' place, as torchrun or srun (submitit uses it too) wrote it into the environment.

    A SLURM batch script itself, and a shell in an allocation, are no tasks of a step and count as alone.

    Raises:
        InputError: where the variables contradict each other.
    """
    if "TORCHELASTIC_RUN_ID" in environment:
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_WORLD_SIZE")
    elif int(environment.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
        names = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_NUM_NODES")
    else:
        return ALONE
    try:
        found = World(*(int(environment[name]) for name in names))
    except (KeyError, ValueError) as fault:
        raise InputError(f"{fault} of the launcher is no number; start the processes by torchrun or srun") from fault
    if not (0 <= found.rank < found.size and found.size % found.nodes == 0):
        raise InputError(
            f"{found.size} processes on {found.nodes} nodes is not the same number on each; start as many on every node"
        )
    return found


def launch_id(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return a hash of what torchrun's restarts of this process, or those of a queued job, have in common; else None.

    A second launch by hand has another.
    """
    if "TORCHELASTIC_RUN_ID" in environment:
        parent = os.getppid()
        stat = Path(f"/proc/{parent}/stat")
        started = stat.read_text().rpartition(")")[2].split()[19] if stat.exists() else ""
        common = f"torchrun {socket.gethostname()} {parent} {started}"
    elif world(environment).size > 1:
        common = f"SLURM {environment.get('SLURM_JOB_ID')}.{environment.get('SLURM_STEP_ID')}"
    else:
        return None
    return hashlib.blake2b(common.encode(), digest_size=8).hexdigest()


def join(here: World, backend: str, timeout_s: float) -> None:
    """Meet the other processes, once; a collective that waits for longer than `timeout_s` ends with an error.

    Raises:
        InputError: where they do not find each other.
    """
    import torch.distributed as dist

    if here.size == 1 or dist.is_initialized():
        return
    own = {"RANK": here.rank, "WORLD_SIZE": here.size, "LOCAL_RANK": here.local_rank}
    os.environ.update({name: str(value) for name, value in own.items()})
    os.environ.setdefault("GROUP_RANK", str(here.rank // (here.size // here.nodes)))
    if "MASTER_ADDR" not in os.environ:  # srun says only which nodes; torchrun says it all
        from pytorch_lightning.plugins.environments import SLURMEnvironment

        os.environ["MASTER_ADDR"] = SLURMEnvironment.resolve_root_node_address(os.environ["SLURM_STEP_NODELIST"])
    os.environ.setdefault("MASTER_PORT", str(15000 + int(os.environ.get("SLURM_JOB_ID", "0")) % 10000))
    try:
        dist.init_process_group(backend, timeout=datetime.timedelta(seconds=timeout_s))
    except (RuntimeError, ValueError) as fault:  # torch's own errors of the network are RuntimeErrors
        place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        why = str(fault).splitlines()[0]
        raise InputError(
            f"the {here.size} processes did not meet at {place} ({why}); set MASTER_ADDR and MASTER_PORT to an address "
            "of the first node that all others reach, and GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME to its interface"
        ) from fault


def _is_single_process() -> bool:
    if "torch" not in sys.modules:
        return True
    import torch.distributed as dist

    return not dist.is_initialized()


def all_gather(value: T) -> list[T]:
    """Return every rank's value, in the order of ranks, on every rank. Values are picklable."""
    if _is_single_process():
        return [value]
    import torch.distributed as dist

    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def all_reduce(tensor: Any, how: str) -> Any:
    """Return the "sum", "min" or "max" over all ranks of a tensor in the processor's memory."""
    if _is_single_process():
        return tensor
    import torch.distributed as dist

    tensor = tensor.contiguous()
    dist.all_reduce(tensor, {"sum": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}[how])
    return tensor


def all_reduce_max(number: int) -> int:
    """Return the largest of all ranks' numbers."""
    if _is_single_process():
        return number
    import torch

    return int(all_reduce(torch.tensor(number), "max"))


def broadcast_from_rank_zero(make: Callable[[], T]) -> T:
    """Call `make` on rank 0 alone and return what it gives on every rank; an error there is one on all."""
    if _is_single_process():
        return make()
    import torch.distributed as dist

    made, fault = _attempt(make) if dist.get_rank() == 0 else (None, None)
    if isinstance(fault, InputError):
        fault.of_all = True
    box: list[Any] = [made, fault and _for_all(0, fault)]
    dist.broadcast_object_list(box, src=0)
    if box[1] is not None:
        raise fault or box[1]  # its own with its traceback
    return box[0]


def run_on_all_ranks(make: Callable[[], T]) -> T:
    """Call `make` on every rank; an error on one is one on all, so that none waits for another."""
    if _is_single_process():
        return make()
    import torch.distributed as dist

    made, fault = _attempt(make)
    faults = all_gather(fault and _for_all(dist.get_rank(), fault))
    rank, told = next(((rank, told) for rank, told in enumerate(faults) if told is not None), (0, None))
    if told is None:
        return made
    if isinstance(fault, Exception) and not isinstance(fault, InputError):
        raise fault  # with its traceback
    if isinstance(told, InputError) and told.of_all and len(set(map(str, faults))) > 1:
        told.args = (f"rank {rank}: {told}",)
    raise told


def _attempt(make: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return make(), None
    except (Exception, SystemExit) as fault:
        return None, fault


def _for_all(rank: int, fault: BaseException) -> BaseException:
    """Return `fault` as all ranks shall raise it; what is no sentence for people is told of in one."""
    if isinstance(fault, SystemExit):
        return fault
    if isinstance(fault, InputError):
        told = InputError(str(fault))
        told.of_all = True
        return told
    said = (str(fault).splitlines() or [""])[0]
    return InputError(f"rank {rank} failed ({type(fault).__name__}: {said}); its own lines say where")


def refuse_disagreement(facts: Mapping[str, Any]) -> None:
    """Raise an InputError on every rank where one of the facts is not the same on all; it names the first."""
    first, *others = all_gather(dict(facts))
    for rank, theirs in enumerate(others, start=1):
        for name in dict.fromkeys((*first, *theirs)):
            ours, other = first.get(name, "none"), theirs.get(name, "none")
            if ours != other:
                fault = InputError(
                    f"rank {rank} has another {name} than rank 0 ({other} and {ours}); start all processes from "
                    "the same code, with the same command and the same data"
                )
                fault.of_all = True
                raise fault


def command(nodes: int, devices: int, arguments: Sequence[str] | None = None) -> str:
    """Return what to type to have this program run by so many processes on each of so many machines.

    arguments: the program's; those that it was started with, where none are given.
    """
    program = Path(sys.argv[0])
    installed = program.name == CONSOLE_SCRIPT
    name = f"scripts/{program.name}" if program.parent.name == "scripts" else "train.py"
    typed = shlex.join([CONSOLE_SCRIPT if installed else name, *(sys.argv[1:] if arguments is None else arguments)])
    if nodes == devices == 1:
        return typed if installed else f"python {typed}"
    where = "--standalone" if nodes == 1 else f"--nnodes={nodes} --rdzv-backend=c10d --rdzv-endpoint=<first node>:29500"
    starter = f"torchrun {where} --nproc-per-node={devices}{' --no-python' if installed else ''}"
    launch = f"TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 {starter} {typed}"
    return launch + ("" if nodes == 1 else " (on every node, or scripts/slurm/train.sbatch)")


def resume_command() -> str:
    """Return what to type to go on with what this process was started for."""
    here = world()
    if "SLURM_JOB_ID" in os.environ or "submitit" in sys.argv[0]:
        return "the same job"
    return command(here.nodes, here.size // here.nodes)
