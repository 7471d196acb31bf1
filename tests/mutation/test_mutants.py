"""Mutants: source with one thing wrong in it, which the quick tests of its file must notice."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from conftest import ROOT

HERE = Path(__file__).parent
FILES = yaml.safe_load((HERE / "mutants.yaml").read_text())
PASSED, FAILED = 0, 1  # pytest's exit statuses; others mean that no test ran


def test_each_mutant_has_its_place() -> None:
    for file, entry in FILES.items():
        source = (ROOT / "src" / "rectifiers" / file).read_text()
        for before, after in entry["mutants"]:
            assert source.count(before) == 1, f"{file}: rewrite the mutant of {before!r}"
            assert before != after


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout, with a copy of its source."""
    tree = tmp_path_factory.mktemp("mutants")
    for path in ROOT.iterdir():
        if path.name not in ("src", "runs"):
            (tree / path.name).symlink_to(path)
    shutil.copytree(ROOT / "src", tree / "src")
    return tree


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_every_mutant_is_noticed(tree: Path, file: str) -> None:
    settings = {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, HERE / "mutate.py", tree, file]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    whole, *statuses = map(int, done.stdout.split())
    assert whole == PASSED
    mutants = zip(FILES[file]["mutants"], statuses, strict=True)
    assert [mutant for mutant, status in mutants if status != FAILED] == []
