"""The order of the training images: a pure function of (seed, epoch), whatever the workers and the
restarts."""

from collections.abc import Iterator

import torch
from torch.utils.data import Sampler

from rectifiers.runtime.errors import InputError
from rectifiers.runtime.seeds import derive_seed


class ShuffledBatches(Sampler[list[tuple[int, int]]]):
    """A batch sampler of (epoch, index) pairs: a fresh permutation each epoch, whole batches only.

    DEVIATION: the images that do not fill a whole batch, others in every epoch, are left out; Caffe
    wraps around. The epoch is part of the item, because a worker derives the augmentation from it.

    rank, world: this process takes every `world`-th image of a batch, from the `rank`-th on. `skip`
    is the number of batches that the next iteration leaves out at its beginning.

    Raises:
        InputError: where the split is smaller than a batch, or the processes do not divide a batch.
    """

    def __init__(self, size: int, batch: int, seed: int, *, rank: int = 0, world: int = 1) -> None:
        if batch > size:
            raise InputError(
                f"data.batch_size={batch} is more than the {size} training images; give "
                f"{size} or fewer"
            )
        check_share(batch, world)
        self.size, self.batch, self.seed, self.epoch = size, batch, seed, 0
        self.rank, self.world, self.skip = rank, world, 0

    @property
    def sampler(self) -> "ShuffledBatches":
        """Itself: Lightning calls `set_epoch` on a batch sampler's `sampler`, not on the batch
        sampler."""
        return self

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.size // self.batch

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        first, self.skip = self.skip, 0
        generator = torch.Generator().manual_seed(derive_seed("order", self.seed, self.epoch))
        order = torch.randperm(self.size, generator=generator)[: len(self) * self.batch]
        for indices in order.view(-1, self.batch)[first:, self.rank :: self.world]:
            yield [
                (self.epoch, index) for index in indices.tolist()
            ]  # batch by batch: all of ImageNet's would take 50 MB


def check_share(batch: int, processes: int) -> None:
    """Raise an InputError where a batch cannot be shared by so many processes."""
    if batch % processes:
        raise InputError(
            f"data.batch_size={batch} does not divide over {processes} processes; give a "
            f"multiple of {processes}, "
            "or start another number of processes"
        )
