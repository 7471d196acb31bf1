"""The processes of a run, which torchrun or srun starts: their ranks, and the collectives through
which they agree.

With one process the collectives do nothing, and torch is not imported.
"""

import ctypes
import datetime
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from rectifiers.runtime.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

PR_SET_PDEATHSIG = 1  # of prctl(2)
T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """This process's place among the `size` processes of a run, on `nodes` machines."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    nodes: int = 1


SINGLE_PROCESS = World()


def world(environment: Mapping[str, str] = os.environ) -> World:
    """Return this process's place from the environment variables of torchrun or srun.

    A SLURM batch script is no task of a step and counts as a single process."""
    if "TORCHELASTIC_RUN_ID" in environment:
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_WORLD_SIZE")
    elif int(environment.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
        names = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_NUM_NODES")
    else:
        return SINGLE_PROCESS

    values = [environment.get(name, "") for name in names]
    # a variable that is missing or no number becomes -1, which is no place
    place = World(*(int(value) if value.isdecimal() else -1 for value in values))
    is_place = 0 <= place.rank < place.size and place.local_rank >= 0 and place.nodes > 0
    if not is_place or place.size % place.nodes:
        given = " ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
        raise InputError(f"{given} is no place of a process; start as many on every node")
    return place


def check_share(batch: int, processes: int) -> None:
    """Raise an InputError where a batch cannot be shared by so many processes."""
    if batch % processes:
        raise InputError(
            f"data.batch_size={batch} does not divide over {processes} processes; give a "
            f"multiple of {processes}, or start another number of processes",
            on_all_ranks=True,
        )


def end_with_launcher() -> None:
    """Let the system kill this process when the torchrun that started it is gone: it would train on
    and keep the run from being resumed."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        end_with_parent(os.getppid(), signal.SIGKILL)


def end_with_parent(parent: int, number: int) -> None:
    """Let the system send the signal `number` to this process when the process `parent`, which
    started it, is gone; on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # it is gone already
            signal.raise_signal(number)


def join_process_group(place: World, backend: str, timeout_s: float) -> None:
    """Initialise torch's process group, unless it is; a collective that waits longer than
    `timeout_s`, or processes that do not find each other, are an error."""
    import torch.distributed as dist

    if place.size == 1 or dist.is_initialized():
        return

    # Torch and Lightning read torchrun's variables, which srun does not set.
    ranks = {"RANK": place.rank, "WORLD_SIZE": place.size, "LOCAL_RANK": place.local_rank}
    os.environ |= {name: str(number) for name, number in ranks.items()}
    processes_of_a_node = place.size // place.nodes
    os.environ.setdefault("GROUP_RANK", str(place.rank // processes_of_a_node))
    if "MASTER_ADDR" not in os.environ:  # srun only lists the nodes
        from pytorch_lightning.plugins.environments import SLURMEnvironment

        nodes = os.environ["SLURM_STEP_NODELIST"]
        os.environ["MASTER_ADDR"] = SLURMEnvironment.resolve_root_node_address(nodes)
    # the same on all nodes, and another one for each job
    port = 15000 + int(os.environ.get("SLURM_JOB_ID", "0")) % 10000
    os.environ.setdefault("MASTER_PORT", str(port))

    try:
        dist.init_process_group(backend, timeout=datetime.timedelta(seconds=timeout_s))
    except (RuntimeError, ValueError) as error:  # torch's RuntimeError: the network failed
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise InputError(
            f"the {place.size} processes did not meet at {address} ({str(error).splitlines()[0]}); "
            "set MASTER_ADDR and MASTER_PORT to an address of the first node, and "
            "GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME to its interface"
        ) from error


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


def all_reduce(tensor: "Tensor", op: str) -> "Tensor":
    """Return the "sum", "min" or "max" of a tensor over all ranks; it lies where the backend reads
    (gloo: CPU)."""
    if _is_single_process():
        return tensor
    import torch.distributed as dist

    tensor = tensor.contiguous()
    dist.all_reduce(tensor, getattr(dist.ReduceOp, op.upper()))
    return tensor


def all_reduce_max(number: int) -> int:
    """Return the largest of all ranks' numbers."""
    if _is_single_process():
        return number
    import torch

    return int(all_reduce(torch.tensor(number), "max"))


def start_any(flag: "Tensor") -> Callable[[], bool]:
    """Start to ask whether `flag`, a tensor of one truth value, holds on any rank; return what
    waits for the answer.

    Nothing else waits: a GPU goes on with what it is given after the question.
    """
    import torch
    import torch.distributed as dist

    flag = flag.to(torch.uint8)
    work = None if _is_single_process() else dist.all_reduce(flag, dist.ReduceOp.MAX, async_op=True)
    if not flag.is_cuda:
        return lambda: bool((work is None or work.wait()) and flag)
    if work is not None:
        work.wait()  # lets the GPU wait, and not this process
    answer, copied = flag.to("cpu", non_blocking=True), torch.cuda.Event()
    copied.record()

    def wait() -> bool:
        copied.synchronize()
        return bool(answer)

    return wait


def broadcast_from_rank_zero(make: Callable[[], T]) -> T:
    """Call `make` on rank 0 alone and return its result on every rank; an error on rank 0 is raised
    on all."""
    if _is_single_process():
        return make()
    import torch.distributed as dist

    result, error = _attempt(make) if dist.get_rank() == 0 else (None, None)
    if isinstance(error, InputError):
        error.on_all_ranks = True

    shared: list[Any] = [result, error and _as_shared_error(0, error)]
    dist.broadcast_object_list(shared, src=0)
    result, shared_error = shared
    if shared_error is not None:
        raise error or shared_error  # rank 0 raises its own error, with the traceback
    return result


def run_on_all_ranks(make: Callable[[], T]) -> T:
    """Call `make` on every rank; an error on one rank is raised on all, so that none waits."""
    if _is_single_process():
        return make()
    import torch.distributed as dist

    result, error = _attempt(make)
    errors = all_gather(error and _as_shared_error(dist.get_rank(), error))
    if not any(errors):
        return result

    if isinstance(error, Exception) and not isinstance(error, InputError):
        raise error  # with its traceback
    rank, first = next((rank, error) for rank, error in enumerate(errors) if error is not None)
    is_alike = len(set(map(str, errors))) == 1
    if isinstance(first, InputError) and first.on_all_ranks and not is_alike:
        first.args = (f"rank {rank}: {first}",)
    raise first


def _attempt(make: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return make(), None
    except (Exception, SystemExit) as error:
        return None, error


def _as_shared_error(rank: int, error: BaseException) -> BaseException:
    """Return the error that all ranks raise for `error`; an unexpected exception becomes a one-line
    InputError."""
    if isinstance(error, SystemExit):
        return error
    if isinstance(error, InputError):
        return InputError(str(error), on_all_ranks=True)
    reason = (str(error).splitlines() or [""])[0]
    return InputError(
        f"rank {rank} failed ({type(error).__name__}: {reason}); its own lines say where"
    )


def check_agreement(facts: Mapping[str, object]) -> None:
    """Refuse, on every rank, the first fact that does not have the same value on all of them."""
    first, *others = all_gather(dict(facts))
    for rank, facts in enumerate(others, start=1):
        for name in dict.fromkeys((*first, *facts)):
            theirs, of_rank_0 = (str(side.get(name, "none")) for side in (facts, first))
            if theirs != of_rank_0:
                raise InputError(
                    f"rank {rank} has another {name} than rank 0 ({theirs} and {of_rank_0}); start "
                    "all processes from the same code, with the same command and the same data",
                    on_all_ranks=True,
                )
