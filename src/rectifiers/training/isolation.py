"""Leave the process as a run found it, so that the next run of a sweep starts like the first."""

import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from rectifiers.training.lightning import quiet


@contextmanager
def isolated(threads: int | None) -> Iterator[None]:
    """Run the body with `threads` torch threads, and restore whatever a training changes in a process.

    That is: random states (torch, numpy, random), thread count, default dtype, determinism flags, the environment
    (Lightning leaves LOCAL_RANK there), Lightning's log levels, warning filters, and the process group.
    Float32 means float32: by default cuDNN's convolutions keep only ten of its 23 bits (TF32) where a GPU can.
    """
    environment, count, dtype = dict(os.environ), torch.get_num_threads(), torch.get_default_dtype()
    deterministic, benchmark = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    tf32 = torch.backends.cudnn.allow_tf32
    interrupt = signal.getsignal(signal.SIGINT)  # Lightning ignores the signal once it has seen it
    numpy_state, python_state = np.random.get_state(), random.getstate()
    group_before = torch.distributed.is_available() and torch.distributed.is_initialized()
    try:
        # this process' device only: reading another device's state would take memory there
        own = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
        with torch.random.fork_rng(own), quiet():
            if threads is not None:
                torch.set_num_threads(threads)
            torch.backends.cudnn.allow_tf32 = False
            yield
    finally:
        if not group_before and torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupt)
        torch.set_num_threads(count)
        torch.set_default_dtype(dtype)
        torch.use_deterministic_algorithms(deterministic)
        torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = benchmark, tf32
        np.random.set_state(numpy_state)
        random.setstate(python_state)
        for key in os.environ.keys() - environment.keys():
            del os.environ[key]
        os.environ.update(environment)
