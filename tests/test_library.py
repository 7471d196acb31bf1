"""The public names: each has an example that runs."""

import doctest
import inspect
import json
import re
import subprocess
import sys

import pytest

import rectifiers
from conftest import ROOT

FUNCTIONS = [name for name in rectifiers.PUBLIC if inspect.isfunction(getattr(rectifiers, name))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_of_a_public_function_runs(name: str) -> None:
    function = getattr(rectifiers, name)
    (found,) = doctest.DocTestFinder(recurse=False).find(function, name, globs=vars(inspect.getmodule(function)))
    assert found.examples
    assert doctest.DocTestRunner().run(found).failed == 0


def test_the_public_names_are_listed_and_imported_when_they_are_used() -> None:
    assert set(rectifiers.PUBLIC) <= set(dir(rectifiers))
    assert FUNCTIONS == ["moments", "gain", "he_normal_", "initialize", "propagation", "stability"]
    code = "import rectifiers, sys; sys.exit('torch' in sys.modules or 'pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    assert not hasattr(rectifiers, "kaiming")


@pytest.mark.parametrize("place", ["README.md", "docs/library.md"])
def test_the_code_of_the_documentation_runs(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n((?!# ).*?)^```", (ROOT / place).read_text(), flags=re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, place, "exec"), {})
    assert "| layer | shape | reads |" in capsys.readouterr().out


@pytest.mark.process  # some ten seconds
def test_the_notebook_runs_and_its_network_learns(capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = (ROOT / "docs" / "notebooks").glob("*.ipynb")
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    names: dict[str, object] = {}
    for cell in cells:
        exec(compile("".join(cell["source"]), path.name, "exec"), names)
    error = re.search(r"rectifiers: (.*?) % errors on images", capsys.readouterr().out)
    assert error
    assert float(error.group(1)) < 50  # of ten classes
