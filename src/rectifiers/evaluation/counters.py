"""Exact error counts: integers that are summed over batches and processes, never a mean of
means."""

from dataclasses import asdict, dataclass

import torch
from torch import Tensor
from torchmetrics import Metric


@dataclass(frozen=True)
class Errors:
    """Counts over `num_images` images; `top5_correct` is None for five classes or fewer, where it
    would be trivial."""

    num_images: int
    top1_correct: int
    top5_correct: int | None

    @property
    def top1_error_pct(self) -> float:
        return 100 * (self.num_images - self.top1_correct) / self.num_images

    @property
    def top5_error_pct(self) -> float | None:
        return (
            None
            if self.top5_correct is None
            else 100 * (self.num_images - self.top5_correct) / self.num_images
        )

    def as_dict(self) -> dict[str, float | None]:
        """Return the counts and the errors in percent, under the names that a record gives them."""
        return {
            **asdict(self),
            "top1_error_pct": self.top1_error_pct,
            "top5_error_pct": self.top5_error_pct,
        }


def is_correct(scores: Tensor, labels: Tensor, top_k: int = 1) -> Tensor:
    """Return whether each image's label is among its `top_k` highest scores, bool [N].

    scores: [N, classes]; labels: [N]. The rank is strict: an answer is correct when fewer than
    `top_k` other classes score at least as high as the label's. A tie with a wrong class is
    therefore an error, so that a network that gives all classes the same score is wrong everywhere
    instead of being right by the order of the classes. An image with a score that is infinite or
    NaN is an error."""
    rivals = (scores >= scores.gather(1, labels[:, None])).sum(1) - 1
    return (rivals < top_k) & torch.isfinite(scores).all(1)


class ErrorCounter(Metric):
    """Counts top-1 and top-5 answers by `is_correct`; update(scores [N, classes], labels [N])."""

    full_state_update = False
    num_images: Tensor
    top1_correct: Tensor
    top5_correct: Tensor

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes
        for state in ("num_images", "top1_correct", "top5_correct"):
            self.add_state(state, torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, scores: Tensor, labels: Tensor) -> None:
        self.num_images += len(labels)
        self.top1_correct += is_correct(scores, labels).sum()
        self.top5_correct += is_correct(scores, labels, top_k=5).sum()

    def compute(self) -> Tensor:
        """Return the counts (images, top-1, top-5), int64 [3]; torchmetrics sums them over
        processes."""
        return torch.stack([self.num_images, self.top1_correct, self.top5_correct])

    def errors(self) -> Errors:
        """Return the counts so far, over all processes."""
        num_images, top1, top5 = self.compute().tolist()
        return Errors(num_images, top1, top5 if self.num_classes > 5 else None)
