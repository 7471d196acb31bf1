"""The public names: each has an example that runs."""

import doctest
import json
import re
import subprocess
import sys

import pytest

import rectifiers
from conftest import ROOT


@pytest.mark.parametrize("name", rectifiers.PUBLIC)
def test_the_example_of_a_public_name_runs(name: str) -> None:
    value = getattr(rectifiers, name)
    module = sys.modules[getattr(value, "__module__", value.__name__)]
    (example,) = doctest.DocTestFinder(recurse=False).find(value, name, globs=dict(vars(module)))
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


def test_public_names_are_imported_lazily() -> None:
    assert dir(rectifiers) == sorted(rectifiers.PUBLIC)
    code = "import rectifiers, sys; sys.exit('torch' in sys.modules or 'pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    assert not hasattr(rectifiers, "kaiming")


# of Python in the documents that are no files of a recipe, which name themselves in their first
# line
BLOCKS = {
    path.relative_to(ROOT).as_posix(): blocks
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    if (
        blocks := re.findall(
            r"^```python\n((?!# ).*?)^```", path.read_text(), flags=re.MULTILINE | re.DOTALL
        )
    )
}


@pytest.mark.parametrize("place", BLOCKS)
def test_the_code_of_the_documentation_runs(place: str, capsys) -> None:
    for block in BLOCKS[place]:
        exec(compile(block, place, "exec"), {})
    if any("print(report" in block for block in BLOCKS[place]):
        assert "gradient" in capsys.readouterr().out


def test_reference_has_every_public_name() -> None:
    page = (ROOT / "docs" / "reference" / "api.md").read_text()
    documented = re.findall(r"^\.\. auto\w+:: rectifiers\.(\w+)$", page, flags=re.MULTILINE)
    assert rectifiers.PUBLIC.keys() <= set(documented)


@pytest.mark.process  # some ten seconds
def test_the_notebook_runs_and_its_network_learns(capsys) -> None:
    (path,) = (ROOT / "docs" / "notebooks").glob("*.ipynb")
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    names: dict[str, object] = {}
    for cell in cells:
        exec(compile("".join(cell["source"]), path.name, "exec"), names)
    error = re.search(r"rectifiers: (.*?) % errors on images", capsys.readouterr().out)
    assert error
    assert float(error.group(1)) < 50  # of ten classes
