"""The files that people expect of a repository agree with each other and with the project."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import rectifiers
from conftest import ROOT, require
from rectifiers.benchmark.definition import benchmark

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_is_one_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    newest = re.search(r"^## (\d\S+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert newest
    assert {PROJECT["version"], rectifiers.__version__, citation["version"], newest[1]} == {
        rectifiers.__version__
    }
    cited = next(entry for entry in citation["references"] if entry["type"] == "data")
    assert f"v{cited['version']}" == benchmark().version
    assert f"benchmark, version {cited['version']}" in (ROOT / "docs" / "benchmark.md").read_text()


def test_the_lock_has_every_requirement_of_every_extra() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    for requirements in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()):
        for requirement in requirements:
            name = re.match(r"[\w-]+", requirement)
            assert name
            if name[0] != PROJECT["name"]:
                assert re.search(rf"^{name[0]}==", lock, flags=re.MULTILINE), requirement


def test_every_package_is_mirrored_by_tests() -> None:
    packages = {path.parent for path in (ROOT / "src" / "rectifiers").glob("*/__init__.py")}
    assert len(packages) > 10
    assert {path.name for path in packages if not (ROOT / "tests" / path.name).is_dir()} == set()


def test_targets_install_extras_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    extras = set(re.findall(r"\$\(VENV\)/\.([a-z]+)", makefile)) - {"made"}
    assert {"train", "dev", "docs"} <= extras <= PROJECT["optional-dependencies"].keys()


@pytest.mark.process
@pytest.mark.parametrize("torch", ["", "cpu", "cu126"])
def test_torch_of_another_build_needs_no_hash(torch: str, tmp_path: Path) -> None:
    """The lock has none for it; extras that are added later without the word keep it."""
    require("make")
    calls = tmp_path / "calls"
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nmkdir -p "{tmp_path}/venv"\n')
    uv.chmod(0o755)
    environment = {**os.environ, "PATH": f"{uv.parent}:{os.environ['PATH']}"}
    for words in (["setup", f"TORCH={torch}"], ["setup", "EXTRAS=wandb"]):
        command = ["make", *words, f"VENV={tmp_path}/venv", f"PYTHON={sys.executable}"]
        subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)

    lines = calls.read_text().splitlines()
    locked = [line for line in lines if "--constraints requirements.lock" in line]
    assert len(locked) == 2  # of train and wandb
    assert {"--require-hashes" in line for line in locked} == {not torch}
    chosen = [line.partition("--torch-backend ")[2] for line in lines]
    pattern = rf"{torch} torch==[\d.]+ torchvision==[\d.]+"
    assert [bool(re.fullmatch(pattern, words)) for words in chosen if words] == [True] * bool(torch)


WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text()) for path in ROOT.glob(".github/workflows/*.yml")
}


def test_actions_and_tools_are_pinned() -> None:
    steps = [
        step
        for flow in WORKFLOWS.values()
        for job in flow["jobs"].values()
        for step in job["steps"]
    ]
    actions = [step["uses"] for step in steps if "uses" in step]
    assert actions
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action) for action in actions)
    tools = (ROOT / ".github" / "requirements.txt").read_text().splitlines()[1:]
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", tool) for tool in tools)


def test_job_that_publishes_runs_nothing_else() -> None:
    jobs = WORKFLOWS["release"]["jobs"]
    (publish,) = [job for job in jobs.values() if "id-token" in job.get("permissions", {})]
    names = [step.get("uses", "").partition("@")[0] for step in publish["steps"]]
    assert names == ["actions/download-artifact", "pypa/gh-action-pypi-publish"]


# What runs and users make, which no commit holds.
OF_RUNS = {"config.yaml", "metrics.csv", "my_file.py", "default.yaml"}


PLACES = ("src", "conf", "scripts", "studies", "docs", "tests", "results", "pipelines")
FILES = [
    *(path for place in PLACES for path in (ROOT / place).rglob("*.*")),
    *ROOT.glob("*.*"),
]
KNOWN = {"/".join(path.parts[-n:]) for path in FILES for n in range(1, 9)}
# in backticks, or called
NAMED = re.compile(
    r"(?:`(?=[\w./-]+`)|\bpython (?=\w+/))([\w./-]+\.(?:py|yaml|c|h|md|j2|csv|sbatch))\b(?!\.\w)"
)


def missing_files(text: str) -> list[str]:
    """Return the files that a text names and that are nowhere.

    A bare name that follows a path on its line stands in that path's folder, or in the root."""
    missing = []
    for line in text.splitlines():
        folder = ""
        for name in NAMED.findall(line):
            parent, slash, _ = name.rpartition("/")
            is_there = f"{folder}{name}" in KNOWN or (ROOT / name).exists()
            if slash:
                folder, is_there = f"{parent}/", name in KNOWN
            if not is_there and name not in OF_RUNS:
                missing.append(name)
    return missing


def test_bare_names_stand_in_the_folder_before() -> None:
    assert missing_files("`tests/tracking/test_wandb.py`, `test_report.py`") == ["test_report.py"]
    assert missing_files("`runtime/seeds.py`, and `jpeg.c` and `train.py`") == ["jpeg.c"]
    assert missing_files("`runs/role.py`, `record.py`; `runs/none.py`") == ["runs/none.py"]
    assert not missing_files("`test_report.py`, `evaluation/protocols.py` and `metrics.py`")


def test_files_that_texts_name_are_there() -> None:
    missing = {
        f"{path.name}: {name}"
        for path in FILES
        if path.suffix in (".py", ".md", ".c", ".h", ".yaml") and path.name != "CHANGELOG.md"
        if path != Path(__file__)  # which names missing ones, too
        for name in missing_files(path.read_text())
    }
    assert not missing
