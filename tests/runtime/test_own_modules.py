"""A program finds what its command line names in the current folder, and nothing else there."""

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import ROOT, TINY
from rectifiers.runtime.own_modules import find_modules, modules_of_command, named_by

# Modules that libraries try to import and that need not be installed.
OPTIONAL = """dill onnx opt_einsum tensorflow lz4 jax IPython ipywidgets colorama cupy numba triton
torch_xla deepspeed horovod neptune comet_ml mlflow omegaconf_plugins ray simplejson orjson"""

SOURCE = """
from helper import LEVELS, Images
from rectifiers.data.sources import Source

def make(val_fraction=0.25, split_seed=0):
    return Source("mine", ("a", "b"), 1, Images(LEVELS), Images(LEVELS))
"""
HELPER = """
from dataclasses import dataclass
import torch

LEVELS = 8

@dataclass
class Images:
    count: int

    @property
    def labels(self):
        return [i % 2 for i in range(self.count)]

    def image(self, index):
        import deeper
        return torch.full((1, 12, 12), deeper.level(index), dtype=torch.uint8)

    def shape(self, index):
        return 12, 12

    def digest(self):
        return "0" * 32
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch) -> Iterator[Path]:
    """An empty current folder, of which nothing stays imported."""
    (tmp_path / "place").mkdir()
    monkeypatch.chdir(tmp_path / "place")
    before = set(sys.modules)
    yield tmp_path / "place"
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("argument", "names"),
    [
        ("activation=my_file.my_function", ["my_file.my_function"]),
        ("init._target_=a.b", ["a.b"]),
        ("+callbacks.mine._target_=a.b.c", ["a.b.c"]),
        ("+callbacks.mine={_target_: a.b, minutes: 3}", ["a.b"]),
        ("activation=relu,a.f,b.g", ["a.f", "b.g"]),
        ("hydra.sweeper.params.activation=choice(a.f)", ["a.f"]),
        ("trust=[a,b.c]", ["a", "b.c"]),
        ("data.root=dill.d", []),
        ("run=dill.pt", []),
        ("logger=wandb", []),
        ("--runs=onnx.x", []),
    ],
)
def test_names_are_those_of_functions(argument: str, names: list[str]) -> None:
    assert named_by([argument]) == names


def test_nothing_else_of_the_folder_is_found(place: Path) -> None:
    for name in ("of_mine", "of_others"):
        (place / f"{name}.py").write_text("")
    with modules_of_command(["activation=of_mine.f"]):
        assert importlib.import_module("of_mine").__file__ == str(place / "of_mine.py")
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("of_others")
    del sys.modules["of_mine"]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("of_mine")


def test_siblings_are_found_by_own_modules(place: Path) -> None:
    (place / "of_mine").mkdir()
    (place / "of_mine" / "part.py").write_text("import beside_it\nfrom . import inner\n")
    (place / "of_mine" / "inner.py").write_text("")
    (place / "beside_it.py").write_text("import importlib\nimportlib.import_module('further')\n")
    (place / "further.py").write_text("")
    with modules_of_command(["model=of_mine.part.network"]):
        importlib.import_module("of_mine.part")
    assert {"of_mine.inner", "beside_it", "further"} <= set(sys.modules)


def test_installed_module_does_not_open_the_folder(place: Path) -> None:
    (place / "of_others.py").write_text("")
    with modules_of_command(["activation=conftest.f", "optim=torch.optim.Adam"]):
        code = compile("import of_others", "torch/serialization.py", "exec")
        with pytest.raises(ModuleNotFoundError):
            exec(code, {"__name__": "torch.serialization"})


def test_several_folders_are_searched(place: Path) -> None:
    (place / "of_mine.py").write_text("")
    with modules_of_command(["activation=of_mine.f"]):
        find_modules(["of_mine.f"], place.parent)
        assert importlib.import_module("of_mine")


def run(place: Path, *command: object) -> str:
    """Return what a program says that ended well."""
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=place, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


SMALL = (*TINY, "trainer.max_epochs=1", "logger=none", "runs_dir=../runs", "cache_dir=../cache")


def spring_traps(place: Path) -> None:
    """Let each optional module leave a file behind when it is imported."""
    for name in OPTIONAL.split():
        (place / f"{name}.py").write_text("open('../executed', 'a').write(__name__)\n")


@pytest.mark.process
@pytest.mark.parametrize("overrides", [(), ("trainer=ddp_cpu",)])
def test_training_runs_no_file_of_the_folder(place: Path, overrides: tuple[str, ...]) -> None:
    spring_traps(place)
    run(place, ROOT / "train.py", *SMALL, *overrides)
    assert not (place.parent / "executed").exists()


@pytest.mark.process
def test_evaluation_runs_no_file_of_the_run(place: Path) -> None:
    run(place, ROOT / "train.py", *SMALL, "evaluation=center")
    (folder,) = (path.parent for path in place.parent.glob("runs/[0-9a-f]*/record.json"))
    spring_traps(folder)
    run(folder, ROOT / "scripts" / "evaluate.py", "run=.", "evaluation=ten_view", "cache_dir=../c")
    assert not list(place.parent.rglob("executed"))


@pytest.mark.process
@pytest.mark.parametrize("overrides", [("data.num_workers=1",), ("trainer=ddp_cpu",)])
def test_own_source_and_siblings_train(place: Path, overrides: tuple[str, ...]) -> None:
    for name, text in (("mine", SOURCE), ("helper", HELPER)):
        (place / f"{name}.py").write_text(text)
    (place / "deeper.py").write_text("def level(index):\n    return 20 * index\n")
    own = ("data._target_=mine.make", "data.batch_size=4", "data.val_per_class=1")
    run(place, ROOT / "train.py", *SMALL, *own, *overrides)
    (record,) = (
        json.loads(path.read_text()) for path in place.parent.glob("runs/[0-9a-f]*/record.json")
    )
    assert record["science"]["data"]["_target_"] == "mine.make"
