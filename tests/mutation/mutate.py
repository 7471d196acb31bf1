"""Runs the quick tests of a source file on the file as it is, and with each of its mutants.

`python tests/mutation/mutate.py <tree> <file>` changes the file below <tree>/src/rectifiers and
prints the exit status of pytest of every run. Each is a fork of a process that has imported the
libraries, which take most of the time, and nothing of this package."""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import hydra  # noqa: F401
import hypothesis  # noqa: F401
import pandas  # noqa: F401
import pydantic  # noqa: F401
import pytest
import pytorch_lightning  # noqa: F401
import scipy.stats  # noqa: F401
import sklearn.datasets  # noqa: F401
import torchvision  # noqa: F401
import yaml

LONGEST_S = 600  # of one run
FILES = yaml.safe_load(Path(__file__).with_name("mutants.yaml").read_text())


def status(tests: Sequence[str]) -> int:
    """Return pytest's exit status, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        signal.alarm(LONGEST_S)
        options = ("-x", "-p", "no:cacheprovider", "-m", "not process and not slow and not gpu")
        os._exit(pytest.main([*options, *(f"tests/{name}" for name in tests)]))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(tree: str, file: str) -> None:
    os.chdir(tree)
    path, tests = Path("src/rectifiers", file), FILES[file]["tests"]
    whole = path.read_text()
    for before, after in [("", ""), *FILES[file]["mutants"]]:
        path.write_text(whole.replace(before, after, 1))
        print(status(tests), flush=True)
    path.write_text(whole)


if __name__ == "__main__":
    main(*sys.argv[1:])
