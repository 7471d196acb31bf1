"""Files that are made from records: compared, written, and filled in where a document has a block
for them."""

import re
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from rectifiers.results.documents import (
    Drawing,
    Table,
    filled,
    literal,
    markdown,
    shows,
    write_or_check,
    write_svg,
)
from refusals import refused


def test_check_names_files_and_writes_none(tmp_path: Path) -> None:
    texts = {tmp_path / "a.md": "1\n", tmp_path / "b.md": "2"}
    drawings = {tmp_path / "c.svg": Drawing("two numbers", Figure)}
    with refused(r"\S+a\.md, \S+b\.md, \S+c\.svg; run make it"):
        write_or_check(texts, True, "make it", drawings)
    assert not list(tmp_path.iterdir())
    write_or_check(texts, False, "make it", drawings)
    write_or_check(texts, True, "make it", drawings, tmp_path.iterdir())
    (tmp_path / "c.svg").write_bytes((tmp_path / "c.svg").read_bytes() + b"\xff")
    for stale in (b"2", b"1\r\n", b"1\xff"):
        (tmp_path / "a.md").write_bytes(stale)
        with refused(r"say: \S+a\.md; run make it"):
            write_or_check(texts, True, "make it", drawings)
    (tmp_path / "other.md").write_text("")
    with refused(r"\S+other\.md belongs to nothing here; remove it"):
        write_or_check(texts, True, "make it", drawings, tmp_path.iterdir())
    (tmp_path / "other.md").unlink()
    with refused(r"say: \S+a\.md; run make it"):
        write_or_check(texts, True, "make it", drawings, tmp_path.iterdir())


def test_one_block_of_a_document_is_filled() -> None:
    document = "a\n<!-- one -->\nold\n<!-- end -->\nb\n<!-- two -->\nkept\n<!-- end -->\n"
    assert filled(document, "one", r"\1 new" + "\n") == document.replace("old", r"\1 new")
    with refused("no block <!-- three -->"):
        filled(document, "three", "")


@pytest.mark.parametrize(
    "words",
    ["<script>", "a </td>", "```<b>`", "`<b>``", "<img src=x>", "<!-- end -->", "\x1b<b>"],
)
def test_no_element_begins_in_a_table(words: str) -> None:
    text = Table(words, 2, ["a", "b"], [[words, "one<br>`<seed>` < 0.1"]], words).markdown()
    assert "\x1b" not in text.splitlines()[-1]
    assert "one<br>`<seed>` < 0.1" in text
    assert "&lt;" in text
    assert re.findall("<[a-zA-Z/!]+", text) == ["<br", "<seed"]


def test_foreign_text_in_a_cell_stays_text() -> None:
    text = "![x](https://a.example/p.png) | [b](https://a.example) `c <b>` *d* <i>"
    (row,) = markdown(["a"], [[literal(text)]]).splitlines()[2:]
    assert row.count(" | ") == 0
    assert not re.search(r"(?<!\\)[\[\]`*]|<", row)


def test_svg_of_one_figure_has_the_same_bytes(tmp_path: Path) -> None:
    figure = Figure()
    figure.subplots().plot([1, 2], label="a")
    paths = [tmp_path / f"{name}.svg" for name in "ab"]
    for path in paths:
        write_svg(figure, path, "run", "two numbers")
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert shows(paths[0], "two numbers")
    assert not shows(paths[0], "other numbers")
    assert not shows(tmp_path / "none.svg", "two numbers")
