"""A whole split through a protocol: images of one shape a batch, errors and calibration counted exactly."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from rectifiers.data.sources import Split
from rectifiers.evaluation.calibration import Calibration
from rectifiers.evaluation.counters import ErrorCounter, Errors
from rectifiers.evaluation.protocols import TestProtocol
from rectifiers.runtime.distributed import world
from rectifiers.runtime.signals import iterate_until_stopped, leave_signals_to_the_parent

PIXELS_A_BATCH = 2**19  # of views, whatever their size: 512 of 32 x 32, 10 of 224 x 224


class ViewDataset(Dataset[tuple[list[Tensor], int, int]]):
    """(views at each scale, label, index) of every image of a split."""

    def __init__(self, split: Split, protocol: TestProtocol) -> None:
        self.split, self.protocol = split, protocol

    def __len__(self) -> int:
        return len(self.split.labels)

    def __getitem__(self, index: int) -> tuple[list[Tensor], int, int]:
        image = self.split.image(index)
        return [self.protocol.views(image, px) for px in self.protocol.scales_px], self.split.labels[index], index


def same_shape_batches(split: Split, protocol: TestProtocol) -> Iterator[list[int]]:
    """Yield every index once, in batches of images of one shape and a bounded number of pixels."""
    groups: dict[tuple[int, int], list[int]] = {}
    for index in range(len(split.labels)):
        groups.setdefault(split.shape(index), []).append(index)
    for indices in groups.values():
        image = split.image(indices[0])
        pixels = [
            views.shape[0] * views[0, 0].numel() for views in (protocol.views(image, s) for s in protocol.scales_px)
        ]
        size = max(1, PIXELS_A_BATCH // max(pixels))
        for start in range(0, len(indices), size):
            yield indices[start : start + size]


@dataclass(frozen=True)
class Result:
    """What a protocol found: errors over all scales, errors by scale where there are several, and calibration.

    hits: bool [images], whether each image of the split, in its order, is right (top-1). scores: [images, classes].
    """

    errors: Errors
    by_scale: dict[int, Errors]
    calibration: dict[str, float | None]
    hits: Tensor
    scores: Tensor

    @classmethod
    def of(cls, scores: Tensor, labels: Tensor) -> "Result":
        """Count what scores [images, classes] say of images with `labels` [images]."""
        hits, in_five = ErrorCounter.hits(scores, labels), ErrorCounter.hits(scores, labels, 5)
        top5 = int(in_five.sum()) if scores.shape[1] > 5 else None
        errors = Errors(len(labels), int(hits.sum()), top5)
        return cls(errors, {}, Calibration.of(scores, labels).as_dict(), hits, scores)

    def as_dict(self) -> dict[str, Any]:
        """Plain types for a record; `hits` as hexadecimal digits, the first image in the highest bit."""
        by_scale = {"by_scale": {str(px): errors.as_dict() for px, errors in self.by_scale.items()}}
        return {
            **self.errors.as_dict(),
            **(by_scale if len(self.by_scale) > 1 else {}),
            **self.calibration,
            "top1_hits": _hexadecimal(self.hits),
        }


def _hexadecimal(hits: Tensor) -> str:
    padded = torch.nn.functional.pad(hits.int(), (0, -len(hits) % 4)).view(-1, 4)
    return "".join(f"{digit:x}" for digit in (padded * torch.tensor([8, 4, 2, 1])).sum(1).tolist())


@torch.inference_mode()
def evaluate(
    scored: nn.Module,
    split: Split,
    protocol: TestProtocol,
    *,
    classes: int,
    device: torch.device,
    workers: int = 0,
    timeout_s: float = 0,
    on_batch: Callable[[int], None] = lambda images: None,
) -> Result:
    """Score a whole split; `scored` (see `protocols.Scored`) is put into eval mode.

    timeout_s: how long a batch of a worker is waited for; 0 for ever. on_batch: told the number of images after every
    batch, for a progress bar. Several processes share the batches, and each of them returns the result of all.

    Raises:
        Stopped: where a signal asks for it, on all processes.
        RuntimeError: where the number of images counted is not the size of the split.
    """
    scored.eval()
    dataset = ViewDataset(split, protocol)
    whole = ErrorCounter(classes).to(device)
    by_scale = {px: ErrorCounter(classes).to(device) for px in protocol.scales_px}
    kept = torch.zeros(len(dataset), classes)
    here = world()
    batches = list(same_shape_batches(split, protocol))
    loader = DataLoader(
        dataset,
        batch_sampler=batches[here.rank :: here.size],
        num_workers=workers,
        timeout=timeout_s if workers else 0,
        worker_init_fn=leave_signals_to_the_parent,
    )
    for at_scales, labels, indices in iterate_until_stopped(
        loader, math.ceil(len(batches) / here.size), "while testing"
    ):
        labels = labels.to(device)
        total = torch.zeros((), device=device)
        for px, views in zip(protocol.scales_px, at_scales, strict=True):
            scores = protocol.score(scored, views.to(device))  # type: ignore[arg-type]
            by_scale[px].update(scores, labels)
            total = total + protocol.scales_px[px] * scores
        whole.update(total, labels)
        kept[indices] = total.float().cpu()
        on_batch(len(labels))
    errors = whole.errors()
    if errors.seen != len(dataset):
        raise RuntimeError(f"counted {errors.seen} images of a split of {len(dataset)}; the errors would be wrong")
    if here.size > 1:
        kept = kept.to(device)
        torch.distributed.all_reduce(kept)  # every image has its scores on one process and zeros on the others
        kept = kept.cpu()
    found = Result.of(kept, torch.tensor(list(split.labels)))
    return replace(found, errors=errors, by_scale={px: counter.errors() for px, counter in by_scale.items()})
