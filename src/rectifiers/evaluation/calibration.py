"""How far the scores themselves can be trusted, beside the errors."""

import math
from dataclasses import asdict, dataclass

import torch
from torch import Tensor
from torchmetrics.functional.classification import binary_calibration_error

BINS = 15  # of equal width, as Guo et al. (2017) have it


@dataclass(frozen=True)
class Calibration:
    """Of mean softmax scores: negative log-likelihood (nats), Brier score, expected calibration error.

    The Brier score is the mean of sum_c (p_c - y_c)^2, from 0 to 2; the calibration error is top-1's, from 0 to 1.
    A number that is not finite (a right class of score 0, a network that diverged) is None.
    """

    nll: float | None
    brier: float | None
    ece: float | None

    @classmethod
    def of(cls, scores: Tensor, labels: Tensor) -> "Calibration":
        """Measure scores [N, classes] against labels [N]."""
        p = scores.double()
        if not torch.isfinite(p).all():
            return cls(None, None, None)
        own = p.gather(1, labels[:, None])[:, 0]
        confidence, answer = p.max(dim=1)
        nll = float(-own.log().mean())
        brier = float((p.square().sum(1) - 2 * own + 1).mean())
        ece = float(binary_calibration_error(confidence, (answer == labels).int(), n_bins=BINS))
        return cls(nll if math.isfinite(nll) else None, brier, ece)

    def as_dict(self) -> dict[str, float | None]:
        """The three numbers by name."""
        return asdict(self)
