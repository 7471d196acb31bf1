"""How far scores can be trusted as probabilities."""

import math

import torch
from torch import Tensor
from torchmetrics.functional.classification import binary_calibration_error

BINS = 15  # of equal width, as in Guo et al. (2017)


def calibration(scores: Tensor, labels: Tensor) -> dict[str, float | None]:
    """Return `nll`, `brier` and `ece` of mean softmax scores [N, classes] against labels [N].

    nll: the mean negative log-likelihood in nats. brier: the mean of sum_c (p_c - y_c)^2, from 0 to 2. ece: the
    expected calibration error of the top-1 answer, from 0 to 1. A number that is not finite (the label scores 0, or the
    network diverged) is None.
    """
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
