from dataclasses import replace

import numpy as np
import pytest
import torch

from rectifiers.evaluation.result import mean_result
from rectifiers.evaluation.scores import Scores
from rectifiers.runtime.errors import InputError


def kept(*rows: list[float]) -> Scores:
    return Scores(np.array(rows, np.float32), np.array([0, 1]), "abc", "{}")


def test_the_ensemble_weighs_all_members_equally() -> None:
    sure, unsure = kept([0.9, 0.1, 0.0], [0.0, 0.4, 0.6]), kept([0.3, 0.4, 0.3], [0.2, 0.5, 0.3])
    found = mean_result([sure, unsure])
    assert torch.allclose(found.scores, torch.tensor([[0.6, 0.25, 0.15], [0.1, 0.45, 0.45]]))
    assert found.correct.tolist() == [True, False]  # a tie is an error
    assert (found.errors.num_images, found.errors.top1_correct) == (2, 1)
    three = mean_result([sure, sure, unsure])
    assert torch.allclose(three.scores[0], torch.tensor([0.7, 0.2, 0.1]))


def test_scores_of_other_images_or_settings_are_refused() -> None:
    one = kept([1, 0], [0, 1])
    with pytest.raises(InputError, match="tested on different data; give runs of one data set"):
        mean_result([one, replace(one, data="other")])
    with pytest.raises(
        InputError, match=r"tested by different settings, \{\} and {'a'}; test them by the same"
    ):
        mean_result([one, replace(one, settings="{'a'}")])
