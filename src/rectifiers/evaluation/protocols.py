"""Test protocols: every image of a split through its views, softmax scores averaged, errors counted exactly."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from rectifiers.data.sources import Split
from rectifiers.data.transforms import resize_shorter
from rectifiers.evaluation.counters import ErrorCounter, Errors

Views = Callable[[Tensor, int], Tensor]
VIEWS_A_BATCH = 512


class ViewDataset(Dataset[tuple[Tensor, int]]):
    """(views uint8 [V, C, crop, crop], label) of every image of a split, in its order."""

    def __init__(self, split: Split, views: Views, resize_px: int, crop_px: int) -> None:
        self.split, self.views, self.resize_px, self.crop_px = split, views, resize_px, crop_px

    def __len__(self) -> int:
        return len(self.split.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = resize_shorter(self.split.image(index), self.resize_px)
        return self.views(image, self.crop_px), self.split.labels[index]


def mean_softmax(network: nn.Module, views: Tensor) -> Tensor:
    """Score views [N, V, C, H, W]: the mean over V of the softmax of each view's scores, [N, classes] float32."""
    scores = network(views.flatten(0, 1)).float().softmax(dim=1)
    return scores.unflatten(0, views.shape[:2]).mean(dim=1)


@torch.inference_mode()
def evaluate(
    network: nn.Module,
    dataset: ViewDataset,
    *,
    classes: int,
    device: torch.device,
    workers: int = 0,
    on_batch: Callable[[int], None] = lambda images: None,
) -> Errors:
    """Score a whole split and count its errors; `network` maps uint8 images to scores and is put into eval mode.

    on_batch: told the number of images after every batch, for a progress bar.

    Raises:
        RuntimeError: where the number of images counted is not the size of the split.
    """
    network.eval()
    counter = ErrorCounter(classes).to(device)
    views = len(dataset[0][0])
    for batch, labels in DataLoader(dataset, batch_size=max(1, VIEWS_A_BATCH // views), num_workers=workers):
        counter.update(mean_softmax(network, batch.to(device)), labels.to(device))
        on_batch(len(labels))
    errors = counter.errors()
    if errors.seen != len(dataset):
        raise RuntimeError(f"counted {errors.seen} images of a split of {len(dataset)}; the errors would be wrong")
    return errors
