import os
from pathlib import Path

import numpy as np
import pytest

from rectifiers.evaluation.scores import Scores, load, scores_path, write
from rectifiers.runtime.errors import InputError

KEPT = Scores(
    np.array([[0.25, 0.75], [1, 0]], np.float32), np.array([1, 0]), "abc", '{"scale_px":36}'
)


def test_scores_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = scores_path(tmp_path, "ten_view")
    write(path, KEPT)
    found = load(path)
    assert np.array_equal(found.scores, KEPT.scores)
    assert np.array_equal(found.labels, KEPT.labels)
    assert (found.data, found.settings) == (KEPT.data, KEPT.settings)
    assert [p.name for p in path.parent.iterdir()] == ["ten_view.npz"]


DAMAGES = (
    "gone",
    "cut",
    "text",
    "pickle",
    "no scores",
    "other shape",
    "compressed",
    "a pipe",
    "terabytes",
)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_scores_file_is_refused_in_one_sentence(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "ten_view.npz"
    write(path, KEPT)
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "text":
        path.write_text("scores")
    elif damage == "pickle":
        np.savez(path, scores=np.array([{}], dtype=object), labels=[0], data="", settings="")
    elif damage == "compressed":
        np.savez_compressed(path, **vars(KEPT))
    elif damage == "a pipe":
        path.unlink()
        os.mkfifo(path)
    elif damage == "terabytes":
        path.write_bytes(
            content.replace(b"'shape': (2, 2), }" + b" " * 15, b"'shape': (2222222222, 2222222), }")
        )
        assert path.read_bytes() != content
    elif damage == "no scores":
        np.savez(path, labels=[0])
    else:
        np.savez(path, **{**vars(KEPT), "labels": np.zeros(3, int)})
    with pytest.raises(
        InputError, match=r"ten_view\.npz cannot be read as kept scores .*remove it and test"
    ):
        load(path)
