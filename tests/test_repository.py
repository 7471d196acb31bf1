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
    targets = [
        step["run"]
        for job in workflow["jobs"].values()
        for step in job["steps"]
        if step.get("run", "").startswith("make")
    ]
    assert targets == ["make test-all", "make check"]
    oldest = workflow["jobs"]["test"]["strategy"]["matrix"]["python"][0]
    assert PROJECT["requires-python"] == f">={oldest}"
    checkout = workflow["jobs"]["results"]["steps"][0]
    assert checkout["with"]["fetch-depth"] == 0


def test_templates_name_files_and_targets_that_exist() -> None:
    text = (GITHUB / "PULL_REQUEST_TEMPLATE.md").read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", text)) <= targets
    for path in re.findall(r"\b((?:src|conf|tests|scripts|results)/[\w./]+)`", text):
        assert (ROOT / path).exists(), path
    form = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / "bug.yml").read_text())
    assert {"name", "description", "body"} == form.keys()
    assert len({field["id"] for field in form["body"]}) == len(form["body"])


def test_the_lock_has_every_requirement_of_every_extra() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    for requirements in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()):
        for requirement in requirements:
            name = re.match(r"[\w-]+", requirement)
            assert name
            if name[0] != PROJECT["name"]:
                assert re.search(rf"^{name[0]}==", lock, flags=re.MULTILINE), requirement


def test_targets_install_extras_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    extras = set(re.findall(r"\$\(VENV\)/\.([a-z]+)", makefile)) - {"made"}
    assert {"train", "dev", "docs"} <= extras <= PROJECT["optional-dependencies"].keys()
