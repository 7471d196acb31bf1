"""The files that people expect of a repository agree with each other and with the project."""

import re
import tomllib

import yaml

import rectifiers
from conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_is_one_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    newest = re.search(r"^## (\d\S+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert newest
    assert {PROJECT["version"], rectifiers.__version__, citation["version"], newest[1]} == {
        rectifiers.__version__
    }


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
