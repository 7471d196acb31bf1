"""The DataLoader of all images: its workers leave the signals, the garbage and the GPU of the
process that starts them alone."""

import gc
import sys
from typing import Any

from torch.utils.data import DataLoader, Dataset

from rectifiers.runtime.machine import no_garbage_collection
from rectifiers.runtime.stopping import leave_signals_to_the_parent


class ImageLoader(DataLoader):
    """A loader whose workers are forked on Linux, whatever Python's default is.

    The default is to fork in `train.py` up to Python 3.13, but neither from 3.14 on nor in the
    processes of `rectifiers.cli.runner`. A worker that is not forked imports torch for seconds in
    every epoch, and shares no memory with the training process.

    workers: processes that read ahead, 0 for none. timeout_s: how long to wait for a batch of
    theirs, 0 for ever."""

    def __init__(self, data: Dataset, *, workers: int, timeout_s: float, **options: Any) -> None:
        super().__init__(
            data,
            num_workers=workers,
            multiprocessing_context="fork" if workers and sys.platform == "linux" else None,
            timeout=timeout_s if workers else 0,
            worker_init_fn=_start_worker,
            **options,
        )

    def __iter__(self) -> Any:
        # Garbage, such as that of an earlier run, may hold memory of a GPU. A forked process cannot
        # free it, and would be killed if it collected that garbage before `_start_worker`.
        with no_garbage_collection():
            return super().__iter__()


def _start_worker(_: int) -> None:
    """Leave signals to the training process, and exempt the objects shared with it from garbage
    collection, which would also write to them and so copy 110 MB into each worker."""
    leave_signals_to_the_parent()
    gc.freeze()
    gc.enable()
