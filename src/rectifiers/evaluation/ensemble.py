"""Several networks as one: the mean of their scores, with equal weights."""

from collections.abc import Sequence

import torch

from rectifiers.evaluation.scores import Scores
from rectifiers.evaluation.testing import Result
from rectifiers.runtime.errors import InputError


def mean_result(members: Sequence[Scores]) -> Result:
    """Return the result of the members' mean scores (section 4.2; how the paper weighs its six models is not known).

    Raises:
        InputError: where the scores are of other images, or by another protocol.
    """
    first = members[0]
    for other in members[1:]:
        if (other.data, other.scores.shape) != (first.data, first.scores.shape):
            raise InputError("the runs of an ensemble were tested on different data; give runs of one data set")
        if other.settings != first.settings:
            raise InputError(
                f"the runs of an ensemble were tested by different settings, {first.settings} and {other.settings}; "
                "test them by the same"
            )
    total = sum(torch.from_numpy(member.scores) for member in members)
    return Result.from_scores(torch.as_tensor(total) / len(members), torch.from_numpy(first.labels))
