"""The annotated paper: every equation agrees with the code beside it."""

import re
from pathlib import Path

import pytest

from conftest import ROOT

PAGES = [path for path in sorted((ROOT / "docs" / "paper").glob("*.md")) if path.stem != "index"]
CELL = r"^```\{code-cell\} ipython3\n(.*?)^```$"


@pytest.mark.process  # some ten seconds each
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_equations_and_solutions_hold(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(page.parent)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    cells = re.findall(CELL, page.read_text(), flags=re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {"display": lambda *_: None}
    for cell in cells:
        code = re.sub(r"^:tags:.*", "", cell)
        exec(compile(code, page.name, "exec"), names)
    assert cells
