"""A fork of the server is what `subprocess` would have started: a child with pipes, signals and a
status of its own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import forkserver

pytestmark = pytest.mark.process

SCRIPT = """
import os, sys
print(__name__, sys.argv[1:], os.getpid(), os.getppid(), os.getcwd(), os.environ["GIVEN"], sys.path[0])
print("torch" in sys.modules, file=sys.stderr)
sys.exit(3)
"""  # noqa: E501


def test_a_script_runs_as_main_in_a_child_of_the_caller(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "here").mkdir()
    given = {**os.environ, "GIVEN": "yes"}
    command = [sys.executable, "../script.py", "a", "b"]
    process = forkserver.Popen(
        command,
        cwd=tmp_path / "here",
        env=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = process.communicate(timeout=60)
    assert out.splitlines() == [
        f"__main__ ['a', 'b'] {process.pid} {os.getpid()} {tmp_path}/here yes {tmp_path}"
    ]
    assert err == "True\n"
    assert process.returncode == 3


@pytest.mark.parametrize(
    ("code", "status", "out", "err"),
    [
        ("import atexit; atexit.register(print, 'bye'); print('x', end='')", 0, "xbye\n", ""),
        ("import sys; sys.exit('a sentence')", 1, "", "a sentence\n"),
        ("1 / 0", 1, "", "ZeroDivisionError: division by zero\n"),
        ("import threading, time; threading.Timer(0.1, print, ['last']).start()", 0, "last\n", ""),
    ],
)
def test_it_ends_as_an_interpreter_does(code: str, status: int, out: str, err: str) -> None:
    done = forkserver.run([sys.executable, "-c", code])
    assert (done.returncode, done.stdout) == (status, out)
    assert done.stderr.endswith(err)


@pytest.mark.parametrize("asked", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_it_alone(asked: signal.Signals) -> None:
    code = "import time; print('up', flush=True); time.sleep(60)"
    process, other = (
        forkserver.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(2)
    )
    assert process.stdout.readline() == other.stdout.readline() == b"up\n"
    process.send_signal(asked)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -asked
    assert (b"KeyboardInterrupt" in err) == (asked == signal.SIGINT)
    assert other.poll() is None
    other.kill()
    other.communicate()


def test_orphans_of_others_are_not_taken_in() -> None:
    """What a killed process leaves is the system's to reap, as ever."""
    code = (
        "import os, time; child = os.fork(); print(child or '', end='', flush=True); time.sleep(60)"
    )
    process = forkserver.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    orphan = int(process.stdout.read1())
    process.kill()
    process.wait()
    while f"PPid:\t{process.pid}\n" in Path(f"/proc/{orphan}/status").read_text():
        time.sleep(0.01)
    assert f"PPid:\t{os.getpid()}\n" not in Path(f"/proc/{orphan}/status").read_text()
    os.kill(orphan, signal.SIGKILL)


def test_another_pythonpath_is_refused() -> None:
    with pytest.raises(ValueError, match="use subprocess for another PYTHONPATH"):
        forkserver.run([sys.executable, "-c", ""], env={**os.environ, "PYTHONPATH": "/elsewhere"})
