"""Shared fixtures: the configuration as the command line composes it, small enough to run in
seconds."""

import gc
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # for which equal bits are claimed

import importlib.util
import pickle
import runpy
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess
from types import ModuleType
from typing import Any, TextIO

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from rectifiers.cli.composition import composed
from rectifiers.data.imagenet.archives import Expected, read_expected
from rectifiers.data.imagenet.prepare import prepare
from rectifiers.runs.config import RunConfig
from rectifiers.runs.record import TrainingRecord

os.environ["RECTIFIERS_LOCAL"] = "null"  # conf/local is the machine's, and tests do without

ROOT = Path(__file__).parents[1]
CONF = ROOT / "conf"

# Real digits through a small perceptron: a run of a second.
OVERRIDES = """
model=mlp model.depth=2 model.hidden=32 model.dropout=0.5 data.resize_px=10
data.crop_px=8 data.protocol=paper trainer.max_epochs=3 logger=csv threads=1
"""
TINY = tuple(OVERRIDES.split())


PARSED: dict[tuple[str, int, int], bytes] = {}
parse_yaml = OmegaConf.load


def parse_once(file: TextIO | Path) -> DictConfig:
    """Read a file of YAML for Hydra, which parses all of them anew for each composition."""
    if isinstance(file, Path):  # Hydra gives open files
        return parse_yaml(file)
    stat = os.fstat(file.fileno())
    key = (file.name, stat.st_mtime_ns, stat.st_size)
    if key not in PARSED:
        PARSED[key] = pickle.dumps(parse_yaml(file))
    return pickle.loads(PARSED[key])


def pytest_collection_finish() -> None:
    """Halve a composition's time, of which a fifth is parsing, and a third the garbage collector's
    walk through all of torch."""
    OmegaConf.load = staticmethod(parse_once)
    gc.freeze()


def pytest_unconfigure() -> None:
    OmegaConf.load = staticmethod(parse_yaml)
    gc.unfreeze()


def compose_config(*overrides: str) -> RunConfig:
    """The resolved configuration that `python train.py <overrides>` would run."""
    pairs = (override.partition("=")[::2] for override in overrides)
    folders = {
        key: value for key, value in pairs if key in ("runs_dir", "cache_dir") and "/" in value
    }
    if any(
        "$" in override or override.startswith("debug=") for override in overrides
    ):  # which refers to cache_dir
        return composed(overrides)
    return _composed(*(o for o in overrides if o.partition("=")[0] not in folders)).replaced(
        folders
    )


@cache
def _composed(*overrides: str) -> RunConfig:
    """Hydra takes a quarter of a second, and many tests ask for the same but for their folders."""
    return composed(overrides)


def places(folder: Path) -> tuple[str, str]:
    """The overrides by which a run keeps everything below a folder."""
    return f"runs_dir={folder}/runs", f"cache_dir={folder}/cache"


def numbers(record: TrainingRecord) -> dict[str, Any]:
    """What of a record does not depend on the clock, the machine, or what was typed and
    launched."""
    kept = record.model_dump(
        exclude={"wall_s", "images_per_second", "provenance", "compute", "run", "overrides"}
    )
    for row in kept["history"]:
        del row["seconds"], row["images_per_second"]
    for result in kept["protocols"].values():
        del result["seconds"], result["images_per_second"]
    return kept


def weights(outcome: Any) -> dict[str, torch.Tensor]:
    """The last weights of a run."""
    return torch.load(outcome.path.with_name("last.ckpt"), weights_only=True)["state_dict"]


def same_bits(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Whether two states hold the same names and the same bits."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="session")
def fitted(tmp_path_factory) -> Path:
    """A cache_dir in which the preprocessing of earlier tests is found again."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def tiny(tmp_path: Path, fitted: Path) -> Callable[..., RunConfig]:
    """Compose a run of a second in the test's own folder."""

    def make(*overrides: str) -> RunConfig:
        return compose_config(*TINY, f"runs_dir={tmp_path}/runs", f"cache_dir={fitted}", *overrides)

    return make


@pytest.fixture
def call(monkeypatch, capfd) -> Callable[..., CompletedProcess[str]]:
    """Run `train.py` or a script in the test's own process, as `python <program> <arguments>` would
    in a new one."""

    def run(program: str, *arguments: object, cwd: Path = ROOT) -> CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", [str(ROOT / program), *map(str, arguments)])
        monkeypatch.chdir(cwd)
        capfd.readouterr()
        status: object = 0
        try:
            runpy.run_path(str(ROOT / program), run_name="__main__")
        except SystemExit as left:
            status = left.code or 0
        out, err = capfd.readouterr()
        if isinstance(status, str):  # a sentence, which the interpreter prints
            status, err = 1, f"{err}{status}\n"
        return CompletedProcess([program, *arguments], int(status), out, err)

    return run


def require(*programs: str) -> None:
    """Skip a test where it cannot run; the others of its file do."""
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}, which is not installed")


def load_script(name: str) -> ModuleType:
    """A program as a module: one of scripts/, or one named by its path, as studies/starts."""
    path = ROOT / (f"{name}.py" if "/" in name else f"scripts/{name}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def miniature(tmp_path_factory) -> Expected:
    """The generated archives in the official layout."""
    folder = tmp_path_factory.mktemp("archives")
    load_script("make_miniature").main(folder)
    expected = read_expected(ROOT / "pipelines" / "miniature" / "archives.yaml")
    moved = {role: replace(a, path=folder / a.path.name) for role, a in expected.archives.items()}
    return replace(expected, archives=moved)


@pytest.fixture(scope="session")
def prepared(miniature: Expected, tmp_path_factory) -> Path:
    """The miniature prepared as dvc.yaml does it. Read only: copy it before changing anything."""
    root = tmp_path_factory.mktemp("prepared") / "miniature"
    prepare(miniature, root, store="plain", shard_bytes=131072, threads=2)
    return root


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    """A test that fails leaves no processes that wait for each other."""
    yield
    import processes  # which imports this file

    processes.kill_what_is_left()
