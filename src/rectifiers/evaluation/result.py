"""The result of a test, judged from mean scores: errors, calibration and each image's answer; also
of an ensemble's."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchmetrics.functional.classification import binary_calibration_error

from rectifiers.evaluation.counters import Errors, is_correct
from rectifiers.evaluation.scores import Scores
from rectifiers.runtime.errors import InputError

BINS = 15  # of equal width, as in Guo et al. (2017)


@dataclass(frozen=True)
class Result:
    """The outcome of a protocol on a split.

    errors, calibration: of the scores averaged over all scales. correct: bool [images], whether
    each image's top-1
    answer is. scores: float32 [images, classes]. by_scale: the errors at each scale (px) alone,
    where it was measured."""

    errors: Errors
    calibration: dict[str, float | None]
    correct: Tensor
    scores: Tensor
    by_scale: dict[int, Errors] = field(default_factory=dict)

    @classmethod
    def from_scores(cls, scores: Tensor, labels: Tensor) -> "Result":
        """Judge scores [images, classes] by the images' labels [images]."""
        correct = is_correct(scores, labels)
        top5_correct = (
            int(is_correct(scores, labels, top_k=5).sum()) if scores.shape[1] > 5 else None
        )
        errors = Errors(len(labels), int(correct.sum()), top5_correct)
        return cls(errors, calibration(scores, labels), correct, scores)

    def as_dict(self) -> dict[str, Any]:
        """Return plain types for a record; `correct` in hexadecimal digits, the first image in the
        highest bit."""
        by_scale = {str(px): errors.as_dict() for px, errors in self.by_scale.items()}
        return {
            **self.errors.as_dict(),
            "by_scale": by_scale if len(by_scale) > 1 else {},
            **self.calibration,
            "correct_mask": np.packbits(self.correct.numpy())
            .tobytes()
            .hex()[: math.ceil(len(self.correct) / 4)],
        }


def calibration(scores: Tensor, labels: Tensor) -> dict[str, float | None]:
    """Return `nll`, `brier` and `ece` of mean softmax scores [N, classes] against labels [N].

    nll: the mean negative log-likelihood in nats. brier: the mean of sum_c (p_c - y_c)^2, from 0 to
    2. ece: the expected calibration error of the top-1 answer, from 0 to 1. A number that is not
    finite (the label scores 0, or the network diverged) is None."""
    p = scores.double()
    if not torch.isfinite(p).all():
        return {"nll": None, "brier": None, "ece": None}
    label_score = p.gather(1, labels[:, None])[:, 0]
    confidence, answer = p.max(dim=1)
    nll = float(-label_score.log().mean())
    return {
        "nll": nll if math.isfinite(nll) else None,
        "brier": float((p.square().sum(1) - 2 * label_score + 1).mean()),
        "ece": float(binary_calibration_error(confidence, (answer == labels).int(), n_bins=BINS)),
    }


def mean_result(members: Sequence[Scores]) -> Result:
    """Return the result of the members' mean scores (section 4.2; how the paper weighs its six
    models is not known).

    Raises:
        InputError: where the scores are of other images, or by another protocol.
    """
    first = members[0]
    for other in members[1:]:
        if (other.data, other.scores.shape) != (first.data, first.scores.shape):
            raise InputError(
                "the runs of an ensemble were tested on different data; give runs of one data set"
            )
        if other.settings != first.settings:
            raise InputError(
                f"the runs of an ensemble were tested by different settings, {first.settings} "
                f"and {other.settings}; "
                "test them by the same"
            )
    total = sum(torch.from_numpy(member.scores) for member in members)
    return Result.from_scores(torch.as_tensor(total) / len(members), torch.from_numpy(first.labels))
