"""A whole split through a test protocol: batches of images of one shape, errors and calibration
counted exactly."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from rectifiers.data.sources import Split
from rectifiers.evaluation.counters import ErrorCounter
from rectifiers.evaluation.protocols import TestProtocol
from rectifiers.evaluation.result import Result
from rectifiers.runtime.distributed import all_reduce, world
from rectifiers.runtime.signals import iterate_until_stopped, leave_signals_to_the_parent

PIXELS_PER_BATCH = 2**19  # of views, whatever their size: 512 of 32 x 32, 10 of 224 x 224


class ViewDataset(Dataset[tuple[list[Tensor], int, int]]):
    """(views at each scale, label, index) of every image of a split."""

    def __init__(self, split: Split, protocol: TestProtocol) -> None:
        self.split, self.protocol = split, protocol

    def __len__(self) -> int:
        return len(self.split.labels)

    def __getitem__(self, index: int) -> tuple[list[Tensor], int, int]:
        image = self.split.image(index)
        return (
            [self.protocol.views(image, px) for px in self.protocol.scales_px],
            self.split.labels[index],
            index,
        )


def same_shape_batches(split: Split, protocol: TestProtocol) -> Iterator[list[int]]:
    """Yield every index once, in batches of images of one shape and a bounded number of pixels."""
    groups: dict[tuple[int, int], list[int]] = {}
    for index in range(len(split.labels)):
        groups.setdefault(split.shape(index), []).append(index)
    for indices in groups.values():
        image = split.image(indices[0])
        pixels = [
            views[:, 0].numel()
            for views in (protocol.views(image, px) for px in protocol.scales_px)
        ]
        size = max(1, PIXELS_PER_BATCH // max(pixels))
        for start in range(0, len(indices), size):
            yield indices[start : start + size]


@torch.inference_mode()
def evaluate(
    classifier: nn.Module,
    split: Split,
    protocol: TestProtocol,
    *,
    classes: int,
    device: torch.device,
    workers: int = 0,
    timeout_s: float = 0,
    on_batch: Callable[[int], None] = lambda images: None,
) -> Result:
    """Test `classifier` (see `protocols.ImageClassifier`) on a whole split; it is put into eval
    mode.

    workers: processes that read images; timeout_s: how long to wait for a batch of theirs, 0 for
    ever. on_batch: called with the number of images after every batch, for a progress bar. Several
    processes share the batches, and each of them returns the result of all.

    Raises:
        Stopped: where a signal asks for it, on all processes.
        RuntimeError: where the number of images counted is not the size of the split.
    """
    classifier.eval()
    dataset = ViewDataset(split, protocol)
    counters = {px: ErrorCounter(classes).to(device) for px in protocol.scales_px}
    all_scores = torch.zeros(len(dataset), classes)
    here = world()
    batches = list(same_shape_batches(split, protocol))
    loader = DataLoader(
        dataset,
        batch_sampler=batches[here.rank :: here.size],
        num_workers=workers,
        timeout=timeout_s if workers else 0,
        worker_init_fn=leave_signals_to_the_parent,
    )
    longest = math.ceil(len(batches) / here.size)
    for views_by_scale, labels, indices in iterate_until_stopped(loader, longest, "while testing"):
        total = torch.zeros((), device=device)
        for (px, weight), views in zip(protocol.scales_px.items(), views_by_scale, strict=True):
            scores = protocol.score(classifier, views.to(device))  # type: ignore[arg-type]
            counters[px].update(scores, labels.to(device))
            total = total + weight * scores
        all_scores[indices] = total.float().cpu()
        on_batch(len(labels))
    by_scale = {px: counter.errors() for px, counter in counters.items()}
    for errors in by_scale.values():
        if errors.num_images != len(dataset):
            raise RuntimeError(
                f"counted {errors.num_images} images of a split of {len(dataset)}; the errors "
                "would be wrong"
            )
    # Each image has its scores on one process and zeros on the others.
    all_scores = all_reduce(all_scores.to(device), "sum").cpu()
    return replace(
        Result.from_scores(all_scores, torch.tensor(list(split.labels))), by_scale=by_scale
    )
