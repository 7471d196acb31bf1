"""Exact error counting: integers, summed over processes, never a mean of means."""

from dataclasses import asdict, dataclass

import torch
from torch import Tensor
from torchmetrics import Metric


@dataclass(frozen=True)
class Errors:
    """What was counted. top5_correct is None where there are five classes or fewer, for every answer would be right."""

    seen: int
    top1_correct: int
    top5_correct: int | None

    @property
    def top1_error_pct(self) -> float:
        return 100 * (self.seen - self.top1_correct) / self.seen

    @property
    def top5_error_pct(self) -> float | None:
        return None if self.top5_correct is None else 100 * (self.seen - self.top5_correct) / self.seen

    def as_dict(self) -> dict:
        """The counts and the errors in percent, as a record keeps them."""
        return {**asdict(self), "top1_error_pct": self.top1_error_pct, "top5_error_pct": self.top5_error_pct}


class ErrorCounter(Metric):
    """Counts top-1 and top-5 hits over everything it is shown.

    update(scores [N, classes], labels [N]): higher is better, a softmax or not. An answer is right when fewer than k
    classes score at least as high as the label's, so a tie with a wrong class counts as an error: a network that gives
    all classes the same score is wrong everywhere, and not right by the order of the classes.
    """

    full_state_update = False
    seen: Tensor
    top1: Tensor
    top5: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes
        for state in ("seen", "top1", "top5"):
            self.add_state(state, torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    @staticmethod
    def hits(scores: Tensor, labels: Tensor, k: int = 1) -> Tensor:
        """Return which answers are right, bool [N]."""
        rivals = (scores >= scores.gather(1, labels[:, None])).sum(1) - 1
        return (rivals < k) & torch.isfinite(scores).all(1)  # an image with a score that is not a number is an error

    def update(self, scores: Tensor, labels: Tensor) -> None:
        self.seen += len(labels)
        self.top1 += self.hits(scores, labels).sum()
        self.top5 += self.hits(scores, labels, 5).sum()

    def compute(self) -> Tensor:
        """The counts (seen, top1, top5), int64 [3]; torchmetrics sums them over processes."""
        return torch.stack([self.seen, self.top1, self.top5])

    def errors(self) -> Errors:
        """Return what has been counted so far, over all processes."""
        seen, top1, top5 = self.compute().tolist()
        return Errors(seen, top1, top5 if self.classes > 5 else None)
