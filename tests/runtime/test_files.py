"""Files are written whole or not at all."""

from pathlib import Path

import pytest

from rectifiers.runtime.files import atomic_file, write_text


def test_a_failed_write_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text(path, "old")

    def write_half() -> None:
        with atomic_file(path) as file:
            file.write(b"half")
            file.flush()
            assert path.read_text() == "old"  # until the new one is whole
            raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        write_half()
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
