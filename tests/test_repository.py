"""The files that people expect of a repository agree with each other and with the project."""

import re
import tomllib

import yaml

import rectifiers
from conftest import ROOT

GITHUB = ROOT / ".github"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_is_one_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    newest = re.search(r"^## (\d\S+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert newest
    assert {PROJECT["version"], rectifiers.__version__, citation["version"], newest[1]} == {
        rectifiers.__version__
    }


def test_the_workflow_runs_what_contributors_run() -> None:
    workflow = yaml.safe_load((GITHUB / "workflows" / "test.yml").read_text())
    (job,) = workflow["jobs"].values()
    assert [step["run"] for step in job["steps"] if step.get("run", "").startswith("make")] == [
        "make test",
        "make test-all",
    ]
    (python,) = (
        step["with"]["python-version"]
        for step in job["steps"]
        if "setup-python" in step.get("uses", "")
    )
    assert PROJECT["requires-python"] == f">={python}"  # the oldest one


def test_templates_name_files_and_targets_that_exist() -> None:
    text = (GITHUB / "PULL_REQUEST_TEMPLATE.md").read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", text)) <= targets
    for path in re.findall(r"\b((?:src|conf|tests|scripts|results)/[\w./]+)`", text):
        assert (ROOT / path).exists(), path
    form = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / "bug.yml").read_text())
    assert {"name", "description", "body"} == form.keys()
    assert len({field["id"] for field in form["body"]}) == len(form["body"])


def test_the_extras_of_the_lock_are_those_that_are_installed() -> None:
    command = re.search(r"uv pip compile pyproject\.toml (.*)", (ROOT / "Makefile").read_text())
    assert command
    locked = set(re.findall(r"--extra (\w+)", command[1]))
    assert locked == {"all", "dev", "docs"}
    assert locked <= PROJECT["optional-dependencies"].keys()
    lock = (ROOT / "requirements.lock").read_text()
    for requirement in PROJECT["optional-dependencies"]["docs"]:
        name = re.match(r"[\w-]+", requirement)
        assert name
        assert re.search(rf"^{name[0]}==", lock, flags=re.MULTILINE), requirement
