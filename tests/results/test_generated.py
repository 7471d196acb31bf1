"""Files that are made from records: compared, written, and filled in where a document has a block
for them."""

from pathlib import Path

import pytest

from rectifiers.results.generated import filled, stale_files, write_or_check
from rectifiers.runtime.errors import InputError


def test_files_that_are_changed_missing_or_unexpected_are_stale(tmp_path: Path) -> None:
    expected, other = {tmp_path / "a.csv": "1\n", tmp_path / "b.csv": "2\n"}, tmp_path / "other.csv"
    for path, text in {**expected, other: ""}.items():
        path.write_text(text)
    assert stale_files(expected, expected) == []
    assert stale_files(expected, tmp_path.glob("*.csv")) == [other]
    (tmp_path / "a.csv").write_text("2\n")
    (tmp_path / "b.csv").unlink()
    assert stale_files(expected) == list(expected)


def test_a_check_names_every_file_and_the_command_and_writes_none(tmp_path: Path) -> None:
    texts = {tmp_path / "a.md": "1", tmp_path / "b.md": "2"}
    with pytest.raises(InputError, match=r"records say: \S+a\.md, \S+b\.md; run make it"):
        write_or_check(texts, True, "make it")
    assert not list(tmp_path.iterdir())
    write_or_check(texts, False, "make it")
    write_or_check(texts, True, "make it")


def test_one_block_of_a_document_is_filled() -> None:
    document = "a\n<!-- one -->\nold\n<!-- end -->\nb\n<!-- two -->\nkept\n<!-- end -->\n"
    changed = filled(document, "one", r"\1 new" + "\n")
    assert changed == document.replace("old", r"\1 new")
    with pytest.raises(InputError, match="0 blocks <!-- three -->"):
        filled(document, "three", "")
