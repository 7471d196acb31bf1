"""The LightningDataModule: transformed batches of a source's splits, in an order and with an
augmentation that depend on the seed alone, whatever the workers and the restarts."""

import math
import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, get_worker_info

from rectifiers.data import jpeg
from rectifiers.data.loader import ImageLoader
from rectifiers.data.sources import Source
from rectifiers.data.transforms import (
    ArrayViews,
    Geometry,
    Reader,
    center_plan,
    draw_plan,
)
from rectifiers.runtime.distributed import SINGLE_PROCESS, World, check_share
from rectifiers.runtime.errors import InputError, restoring
from rectifiers.runtime.seeds import derive_seed
from rectifiers.runtime.stopping import iterate_until_stopped
from rectifiers.runtime.torch_internals import shared_bytes

# Of a batch of centre views. Workers hand batches over in shared memory, which may be small.
MAX_IMAGES, MAX_BYTES = 512, 2**24


class Batch(NamedTuple):
    """Images as bytes, and the colour shifts that the device adds to them.

    images: uint8 [N, C, H, W]; labels: int64 [N]; shifts: float32 [N, 3], grey levels to add to
    red, green and blue before the preprocessing, or None."""

    images: Tensor
    labels: Tensor
    shifts: Tensor | None


class ShuffledBatches(Sampler[list[tuple[int, int]]]):
    """A batch sampler of (epoch, index) pairs: a fresh permutation each epoch, a pure function of
    (seed, epoch), in whole batches only.

    DEVIATION: the images that do not fill a whole batch, others in every epoch, are left out; Caffe
    wraps around. The epoch is part of the item, because a worker derives the augmentation from it.

    size: number of training images. batch: images of all processes together, so that their number
    changes no batch. rank, world: this process takes every `world`-th image of a batch, from the
    `rank`-th on. is_fixed: whether all epochs are like the first, augmentation included. `skip` is
    the number of batches that the next iteration leaves out at its beginning, to resume within an
    epoch.

    Raises:
        InputError: where a batch is larger than the split, or so many processes cannot share it.
    """

    def __init__(
        self,
        size: int,
        batch: int,
        seed: int,
        *,
        rank: int = 0,
        world: int = 1,
        is_fixed: bool = False,
    ) -> None:
        if batch > size:
            raise InputError(
                f"data.batch_size={batch} is more than the {size} training images; give {size} or "
                "fewer"
            )
        check_share(batch, world)
        self.size, self.batch, self.seed = size, batch, seed
        self.rank, self.world, self.is_fixed = rank, world, is_fixed
        self.epoch = self.skip = 0

    @property
    def sampler(self) -> "ShuffledBatches":
        """Itself: Lightning calls `set_epoch` on a batch sampler's `sampler`."""
        return self

    def set_epoch(self, epoch: int) -> None:
        self.epoch = 0 if self.is_fixed else epoch

    def __len__(self) -> int:
        return self.size // self.batch

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        first, self.skip = self.skip, 0
        generator = torch.Generator().manual_seed(derive_seed("order", self.seed, self.epoch))
        order = torch.randperm(self.size, generator=generator)
        batches = order[: len(self) * self.batch].view(-1, self.batch)
        for indices in batches[first:, self.rank :: self.world]:
            # one list at a time: those of all of ImageNet would take 50 MB
            yield [(self.epoch, index) for index in indices.tolist()]


class TrainDataset(Dataset[Batch]):
    """Augmented training images in whole batches, addressed by (epoch, index)."""

    def __init__(self, source: Source, geometry: Geometry, seed: int) -> None:
        self.reader, self.labels = Reader(source.train), source.train.labels
        self.channels, self.geometry, self.seed = source.channels, geometry, seed
        self.views = ArrayViews.of(source.train, geometry)

    def __getitems__(self, items: Sequence[tuple[int, int]]) -> Batch:
        """Return the batch of `items`, pairs of (epoch, index), of one epoch; torch's loader calls
        this."""
        epoch, indices = items[0][0], [index for _, index in items]
        if self.views is not None:
            views, shifts = self.views.augmented(self.seed, epoch, indices)
            return Batch(_shared(views), _labels(self.labels, indices), shifts)

        images = _buffer(len(items), self.channels, *self.geometry.crop)
        plans_for = [partial(draw_plan, self.geometry, self.seed, epoch, i) for i in indices]
        plans = self.reader.read(indices, plans_for, images)
        shifts = None
        if self.geometry.color_sigma:
            shifts = torch.from_numpy(np.array([plan.shift for plan in plans], dtype=np.float32))
        return Batch(images, _labels(self.labels, indices), shifts)


class CenterDataset(Dataset[Batch]):
    """The centre view of every image of a split, in whole batches."""

    def __init__(self, source: Source, part: str, geometry: Geometry) -> None:
        split = source.train if part == "train" else source.val
        self.reader, self.labels, self.channels = Reader(split), split.labels, source.channels
        self.geometry = geometry
        self.views = ArrayViews.of(split, geometry)

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Return the views of these images."""
        if self.views is not None:
            views = _shared(self.views.centered(indices))
            return Batch(views, _labels(self.labels, indices), None)

        images = _buffer(len(indices), self.channels, *self.geometry.crop)
        plan_for = partial(center_plan, self.geometry)
        self.reader.read(indices, [plan_for] * len(indices), images)
        return Batch(images, _labels(self.labels, indices), None)

    __getitems__ = batch  # what torch's loader calls


def _labels(labels: Sequence[int], indices: Sequence[int]) -> Tensor:
    return torch.tensor([labels[index] for index in indices])


def _buffer(*shape: int) -> Tensor:
    """Return room for views, in a worker in shared memory, from which the training process reads
    without a copy."""
    if get_worker_info() is None:
        return torch.empty(shape, dtype=torch.uint8)
    return shared_bytes(math.prod(shape)).view(shape)


def _shared(views: Tensor) -> Tensor:
    """Return `views` where the training process reads them without a copy."""
    return views if get_worker_info() is None else _buffer(*views.shape).copy_(views)


def _identity(batch: Batch) -> Batch:
    """Collate function for items that are batches already."""
    return batch


class EpochLoader(ImageLoader):
    """A loader whose workers start with the first batch, which is after Lightning's `set_epoch`.

    A plain DataLoader starts them in `iter()`, before `set_epoch`: a resumed run would repeat the
    order of epoch 0. Lightning stores `state_dict` in its checkpoints, so that a run goes on within
    an epoch; it counts the batches that were yielded, not those that workers have prefetched."""

    taken = 0

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        self.taken = self.batch_sampler.skip  # type: ignore[union-attr]
        for batch in super().__iter__():  # from here on torch's, which sets `skip` back to 0
            self.taken += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        """Return the number of batches that the epoch has yielded."""
        return {"taken": self.taken % len(self)}

    @restoring()
    def load_state_dict(self, state: dict[str, int]) -> None:
        """Let the next epoch start after the batches that were taken."""
        self.batch_sampler.skip = state["taken"]  # type: ignore[union-attr]


class ImageData(pl.LightningDataModule):
    """Training batches shuffled by (seed, epoch), and the validation split's centre views in order.

    global_batch: images of a training batch, of all processes together. workers: processes that
    read ahead, 0 for none. timeout_s: how long to wait for a batch of theirs, 0 for ever. pinned:
    whether batches lie in pinned memory. is_fixed: whether all epochs are like the first, to
    overfit a few batches. place: this process among all.

    Raises:
        InputError: where processes are more than the images of a split, or the crop does not fit
            signals.
    """

    def __init__(
        self,
        source: Source,
        geometry: Geometry,
        *,
        global_batch: int,
        seed: int,
        workers: int,
        timeout_s: float = 0,
        pinned: bool = False,
        is_fixed: bool = False,
        place: World = SINGLE_PROCESS,
    ) -> None:
        super().__init__()
        self.source, self.geometry, self.place = source, geometry, place
        self.global_batch, self.seed, self.is_fixed = global_batch, seed, is_fixed
        for kind, split in (("training", source.train), ("validation", source.val)):
            if (images := len(split.labels)) < place.size:
                raise InputError(
                    f"{images} {kind} images are fewer than the {place.size} processes; start fewer"
                )
        if geometry.signal:
            self._check_signals()
        self.training = TrainDataset(source, geometry, seed)
        self._loading: dict[str, Any] = {
            "workers": workers,
            "timeout_s": timeout_s,
            "pin_memory": pinned,
            "collate_fn": _identity,
        }
        if hasattr(source.train, "encoded") and (reason := jpeg.unavailable_reason()):
            warnings.warn(reason, stacklevel=2)

    def _check_signals(self) -> None:
        """Refuse a crop that is not the size of the signals, judged by the first one."""
        height, width = self.source.train.shape(0)
        if (height, width) != self.geometry.crop:
            remedy = f"data.crop_px={width}, or " if height == 1 else ""
            raise InputError(
                f"data.crop_px={self.geometry.crop_px} does not fit the signals, which are "
                f"{height} x {width}; give {remedy}data.signal=false"
            )

    @cached_property
    def batches(self) -> ShuffledBatches:
        """The order of the training images, made on first use: testing needs none, and may do with
        fewer images than a batch."""
        return ShuffledBatches(
            len(self.source.train.labels),
            self.global_batch,
            self.seed,
            rank=self.place.rank,
            world=self.place.size,
            is_fixed=self.is_fixed,
        )

    def first_batch(self, seed: int) -> Tensor:
        """Return the centre views, uint8 [N, C, crop, crop], of the first batch of a run of `seed`,
        whole on any rank."""
        order = ShuffledBatches(len(self.source.train.labels), self.global_batch, seed)
        indices = [index for _, index in next(iter(order))]
        return self.centre_views("train").batch(indices).images

    def centre_views(self, part: str) -> CenterDataset:
        """Return the centre views of a split, "train" or "val"."""
        return CenterDataset(self.source, part, self.geometry)

    def train_dataloader(self) -> DataLoader:
        return EpochLoader(self.training, batch_sampler=self.batches, **self._loading)

    def val_dataloader(self) -> DataLoader:
        return self._ordered_loader(self.centre_views("val"))

    def statistics_batches(
        self, where: str = "while learning the preprocessing"
    ) -> Iterator[Tensor]:
        """Yield the training split's centre views, uint8 [N, C, crop, crop], to which preprocessing
        is fitted."""
        crops = self.centre_views("train")
        largest_share = math.ceil(len(crops) / self.place.size)  # of a process, in images
        most_batches = math.ceil(largest_share / self._centre_batch)
        for batch in iterate_until_stopped(self._ordered_loader(crops), most_batches, where):
            yield batch.images

    def _ordered_loader(self, crops: CenterDataset) -> DataLoader:
        """Return a loader of this process's share: no image twice, none left out."""
        share = range(self.place.rank, len(crops), self.place.size)
        return ImageLoader(crops, batch_size=self._centre_batch, sampler=share, **self._loading)

    @property
    def _centre_batch(self) -> int:
        image_bytes = self.source.channels * math.prod(self.geometry.crop)
        return max(1, min(MAX_IMAGES, MAX_BYTES // image_bytes))
