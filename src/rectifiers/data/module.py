"""The LightningDataModule: a source's splits through the geometry, in batches that depend on the seed alone."""

from collections.abc import Iterator
from typing import Any

import pytorch_lightning as pl
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from rectifiers.data.samplers import ShuffledBatches
from rectifiers.data.sources import Source, Split
from rectifiers.data.transforms import Geometry, center_view, train_view
from rectifiers.distributed import ALONE, World

VAL_BATCH = 512


class TrainDataset(Dataset[tuple[Tensor, int]]):
    """Augmented training images, addressed by (epoch, index)."""

    def __init__(self, split: Split, geometry: Geometry, seed: int) -> None:
        self.split, self.geometry, self.seed = split, geometry, seed

    def __getitem__(self, item: tuple[int, int]) -> tuple[Tensor, int]:
        epoch, index = item
        view = train_view(self.split.image(index), self.geometry, self.seed, epoch, index)
        return view, self.split.labels[index]


class CenterDataset(Dataset[tuple[Tensor, int]]):
    """The centre view of every image of a split."""

    def __init__(self, split: Split, geometry: Geometry) -> None:
        self.split, self.geometry = split, geometry

    def __len__(self) -> int:
        return len(self.split.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return center_view(self.split.image(index), self.geometry), self.split.labels[index]


class EpochLoader(DataLoader):
    """A loader whose workers start at the first batch asked for, which is after Lightning's `set_epoch`.

    A plain DataLoader starts them in `iter()`, before it: a run resumed with workers would see epoch 0's order again.
    Lightning keeps `state_dict` in its checkpoints, so that a run goes on within an epoch; it counts the batches handed
    out, not those that workers have ready.
    """

    taken = 0

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self.taken = self.batch_sampler.skip  # type: ignore[union-attr]
        for batch in super().__iter__():
            self.taken += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        """What the epoch has given so far."""
        return {"taken": self.taken % len(self)}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Start the next epoch behind what was taken."""
        self.batch_sampler.skip = state["taken"]  # type: ignore[union-attr]


class ImageData(pl.LightningDataModule):
    """Training batches shuffled by (seed, epoch), and the validation split's centre views in order."""

    def __init__(
        self, source: Source, geometry: Geometry, *, global_batch: int, seed: int, workers: int, here: World = ALONE
    ) -> None:
        super().__init__()
        self.source, self.geometry, self.workers, self.here = source, geometry, workers, here
        self.batches = ShuffledBatches(len(source.train.labels), global_batch, seed, rank=here.rank, world=here.size)
        self.training = TrainDataset(source.train, geometry, seed)

    def train_dataloader(self) -> DataLoader:
        return EpochLoader(self.training, batch_sampler=self.batches, num_workers=self.workers)

    def val_dataloader(self) -> DataLoader:
        own = range(self.here.rank, len(self.source.val.labels), self.here.size)  # none twice, none left out
        images = CenterDataset(self.source.val, self.geometry)
        return DataLoader(images, batch_size=VAL_BATCH, sampler=own, num_workers=self.workers)

    def statistics_batches(self) -> Iterator[Tensor]:
        """The training split's centre views, uint8 [N, C, crop, crop]: what preprocessing learns from."""
        crops = CenterDataset(self.source.train, self.geometry)
        for images, _ in DataLoader(crops, batch_size=VAL_BATCH, num_workers=self.workers):
            yield images
