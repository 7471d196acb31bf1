"""The wheel by itself: built from a copy of the checkout, unpacked elsewhere, it trains outside of
any checkout."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from conftest import CONF, ROOT, TINY
from rectifiers.runs.provenance import code_fingerprint

ENTRY = "import sys; sys.argv[0] = '/bin/rectifiers-train'; from rectifiers.cli import main; main()"


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The unpacked wheel."""
    source, site = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    for name in ("src", "conf"):
        shutil.copytree(
            ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.so")
        )
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, source)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"],
        cwd=source,
        check=True,
        timeout=120,
    )
    (wheel,) = (source / "dist").glob("*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    return site


def call(site: Path, place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What `rectifiers-train` does of the wheel unpacked at `site`, with `place` as the current
    folder."""
    return subprocess.run(
        [sys.executable, "-c", ENTRY, *arguments],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.process
def test_the_wheel_holds_code_and_configuration(installed: Path) -> None:
    def files(folder: Path) -> set[str]:
        return {
            p.relative_to(folder).as_posix()
            for p in folder.rglob("*")
            if p.suffix in (".py", ".yaml", ".c", ".h", ".html")
        }

    package = installed / "rectifiers"
    options = {name for name in files(CONF) if not name.startswith(("claim/", "local/"))}
    expected = files(ROOT / "src" / "rectifiers") | {f"conf/{name}" for name in options}
    assert files(package) == expected
    (entry_points,) = installed.glob("*.dist-info/entry_points.txt")
    assert "rectifiers-train = rectifiers.cli:main" in entry_points.read_text()
    if shutil.which("cc"):
        assert (package / "prelu" / "library.so").is_file()
    (facts,) = installed.glob("*.dist-info/WHEEL")
    assert "Tag: py3-none-" in facts.read_text()  # for every Python of its platform


@pytest.mark.process
def test_an_installed_package_trains_outside_a_checkout(installed: Path, tmp_path: Path) -> None:
    done = call(installed, tmp_path, *TINY, "trainer.max_epochs=1", "activation=prelu", "init=he")
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "runs").glob("[0-9a-f]*/record.json")
    assert done.stdout.splitlines()[-1] == str(path.relative_to(tmp_path))
    provenance = json.loads(path.read_text())["provenance"]
    assert provenance["code"] == code_fingerprint()  # the code of the wheel is the checkout's
    assert [provenance[key] for key in ("git_sha", "git_dirty", "lock")] == [None, None, None]


# What torch and numpy bring along; anything else would be a dependency of ours.
ALONE = """
import sys
allowed = {
    *sys.stdlib_module_names, "rectifiers", "torch", "torchgen", "functorch", "numpy", "typing_extensions", "sympy",
    "mpmath", "networkx", "jinja2", "markupsafe", "fsspec", "filelock", "setuptools",
}
class Only:  # a finder to which every other package is not installed
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        return self.finder.find_spec(name, path, target) if top in allowed or top.startswith("_") else None
sys.meta_path[:] = map(Only, sys.meta_path)
import rectifiers
assert "torch" not in sys.modules
from rectifiers import *
import torch
from torch import nn
model = nn.Sequential(nn.Conv2d(3, 16, 3), PReLU(16), nn.Flatten(), nn.Linear(16 * 36, 10))
report = initialize(model, example_input=torch.randn(4, 3, 8, 8))
print(report.to_markdown(), audit(model, torch.randn(4, 3, 8, 8)).to_markdown())
print(stability(nn.GELU(), 50))
print(gain(activations.prelu(4)), initializers.he.__name__, he_normal_(torch.empty(4, 4)).shape)
from rectifiers.cli import main
try:
    main()
except SystemExit as refusal:
    print(refusal.code)
"""  # noqa: E501


@pytest.mark.process
def test_the_library_needs_torch_and_numpy_alone(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )
    assert done.returncode == 0, done.stderr
    assert "| 0.weight | 16x3x3x3 | the input |" in done.stdout
    assert (installed / "rectifiers" / "py.typed").exists()
    assert done.stdout.splitlines()[-1].startswith(
        "error: hydra is not installed, which training needs; install "
    )
    (metadata,) = installed.glob("*.dist-info/METADATA")
    needed = [
        line for line in metadata.read_text().splitlines() if line.startswith("Requires-Dist:")
    ]
    assert [line for line in needed if "extra ==" not in line] == [
        "Requires-Dist: numpy",
        "Requires-Dist: torch>=2.8",
    ]
