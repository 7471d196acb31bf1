"""Processes that start at once: children of a server that has imported torch, Lightning and Hydra
already.

`python train.py` pays for some 6 CPU seconds of imports, and the tests start it a hundred times.
`run` and `Popen` stand for those of `subprocess` and take `[sys.executable, "<script>.py", ...]` or
`[sys.executable, "-c", code, ...]`. One server per pytest process forks a child for each command,
and the child runs the script as `__main__`. It is a process like any other: a child of the caller
with a pid, pipes, an environment, a working folder, signals and an exit status of its own. Tests of
what a start itself does (what it imports, PYTHONPATH, torchrun) need `subprocess`.

How a child of the server becomes a child of the caller: the server forks twice and the process
between ends, so that the kernel gives the orphan to the nearest ancestor that asked for orphans
(PR_SET_CHILD_SUBREAPER), which the caller does for that moment."""

import atexit
import ctypes
import faulthandler
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

PR_SET_CHILD_SUBREAPER = 36  # of prctl(2)
LONGEST = 1 << 20  # bytes of a request
# Libraries read these when they are loaded. They must not start threads there: a fork copies none.
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}


class Popen(subprocess.Popen):
    """`subprocess.Popen` for a Python program, started by a fork of the server."""

    def _execute_child(self, args: Any, *rest: Any) -> None:
        cwd, env, pipes = rest[4], rest[5], rest[9:15]
        stdin, _, _, stdout, _, stderr = pipes
        _, *argv = map(os.fspath, args)
        request = {
            "argv": argv,
            "cwd": os.fspath(cwd or os.getcwd()),
            "env": dict(os.environ if env is None else env),
        }
        if request["env"].get("PYTHONPATH") != os.environ.get("PYTHONPATH"):
            raise ValueError(
                "a fork has the modules of the server; use subprocess for another PYTHONPATH"
            )
        try:
            streams = [own if fd == -1 else fd for own, fd in enumerate((stdin, stdout, stderr))]
            self.pid = _fork(json.dumps(request).encode(), streams)
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)


def run(
    command: list[str], *, timeout: float = 300, **options: Any
) -> subprocess.CompletedProcess[str]:
    """`subprocess.run` with `capture_output=True, text=True`, by a fork."""
    with Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _fork(request: bytes, streams: list[int]) -> int:
    """Return the pid of a new child of this process."""
    server, prctl = _server(), ctypes.CDLL(None, use_errno=True).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        socket.send_fds(server, [request], streams)
        return int(server.recv(LONGEST))
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@cache
def _server() -> socket.socket:
    """Start the server; it ends when its connection does."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        command = [sys.executable, __file__, str(its.fileno())]
        server = subprocess.Popen(
            command, pass_fds=[its.fileno()], env={**os.environ, **ONE_THREAD}
        )
    atexit.register(server.wait)
    atexit.register(ours.close)
    return ours


def _load() -> None:
    """Import what a run needs, without starting a thread."""
    import sklearn.datasets  # noqa: F401
    import torch
    from hydra.core.plugins import Plugins

    import rectifiers.cli.train
    import rectifiers.training.train  # noqa: F401

    Plugins.instance()
    torch.set_num_threads(1)
    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, f"a fork would lose {len(threads) - 1} threads"
    gc.freeze()


def _serve(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork for every request; return, in the child, what was asked and its standard streams."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest
    while True:
        message, streams, _, _ = socket.recv_fds(connection, LONGEST, 3)
        if not message:
            os._exit(0)
        told, tell = os.pipe()
        if (between := os.fork()) == 0:
            between = os.getpid()
            if (child := os.fork()) == 0:
                while os.getppid() == between:
                    time.sleep(0.001)
                for fd in (told, tell, connection.detach()):
                    os.close(fd)
                return json.loads(message), streams
            os.write(tell, str(child).encode())
            os._exit(0)
        os.waitpid(between, 0)
        connection.send(os.read(told, LONGEST))
        for fd in (told, tell, *streams):
            os.close(fd)


def _become(request: dict[str, Any], streams: list[int]) -> str:
    """Turn this fork into the process that was asked for; return the script or `-c`."""
    for own, fd in enumerate(streams):
        os.dup2(fd, own)
        os.close(fd)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    program = request["argv"][0]
    sys.argv = request["argv"][1:] if program == "-c" else request["argv"]
    sys.path[0] = "" if program == "-c" else str(Path(program).resolve().parent)
    return program


def _run(program: str) -> None:
    """Run the program as `__main__`; what it raises is the interpreter's to print."""
    global status
    try:
        if program == "-c":
            code, sys.argv[0] = sys.argv[0], "-c"
            exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        else:
            runpy.run_path(program, run_name="__main__")
        status = 0
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else int(left.code is not None)
        raise
    except KeyboardInterrupt:
        status = -signal.SIGINT
        raise


def _end() -> None:
    """Leave before the interpreter takes down torch object by object, which takes 2 CPU seconds."""
    sys.stdout.flush()
    sys.stderr.flush()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


status = 1

if __name__ == "__main__":
    faulthandler.enable()  # a program that is aborted, or crashes, writes where it stood
    atexit.register(_end)  # the first to be registered is the last to be called
    _load()
    _run(_become(*_serve(socket.socket(fileno=int(sys.argv[1])))))
