"""Which images make a batch: a pure function of (seed, epoch), whatever the workers and the restarts."""

from collections.abc import Iterator

import torch
from torch.utils.data import Sampler

from rectifiers.runtime.errors import InputError
from rectifiers.runtime.seeds import derive_seed


class ShuffledBatches(Sampler[list[tuple[int, int]]]):
    """A batch sampler of (epoch, index) pairs: a fresh permutation each epoch, whole batches only.

    DEVIATION: the images left over by whole batches, others in every epoch, are not seen in it; Caffe wraps around.
    The epoch travels with the index, so that a worker draws its augmentation from it.

    rank, world: of every batch this process takes each `world`-th image, from the `rank`-th on. Setting `skip` leaves
    out the first batches of the epoch that is iterated next.

    Raises:
        InputError: where the split is smaller than one batch, or a batch does not divide over the processes.
    """

    def __init__(self, size: int, batch: int, seed: int, *, rank: int = 0, world: int = 1) -> None:
        if batch > size:
            raise InputError(
                f"optim.global_batch={batch} is more than the {size} training images; give {size} or fewer"
            )
        if batch % world:
            raise InputError(
                f"optim.global_batch={batch} does not divide over {world} processes; give a multiple of {world}, or "
                "start another number of processes"
            )
        self.size, self.batch, self.seed, self.epoch = size, batch, seed, 0
        self.rank, self.world, self.skip = rank, world, 0

    @property
    def sampler(self) -> "ShuffledBatches":
        """Itself: Lightning calls `set_epoch` on a batch sampler's `sampler`, never on the batch sampler."""
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
            yield [(self.epoch, index) for index in indices.tolist()]  # not all at once: ImageNet's would take 50 MB
