import pytest
from hypothesis import given
from hypothesis import strategies as st

from rectifiers.data.samplers import ShuffledBatches
from rectifiers.runtime.errors import InputError


@given(st.integers(1, 200), st.integers(1, 200), st.integers(0, 3), st.integers(0, 5))
def test_every_batch_is_whole_and_no_image_comes_twice(
    size: int, batch: int, seed: int, epoch: int
) -> None:
    if batch > size:
        with pytest.raises(
            InputError, match=f"data.batch_size={batch} is more than the {size} training images"
        ):
            ShuffledBatches(size, batch, seed)
        return
    sampler = ShuffledBatches(size, batch, seed)
    sampler.set_epoch(epoch)
    batches = list(sampler)
    assert len(batches) == len(sampler) == size // batch
    assert all(len(b) == batch and {e for e, _ in b} == {epoch} for b in batches)
    indices = [i for b in batches for _, i in b]
    assert len(set(indices)) == len(indices)
    assert set(indices) <= set(range(size))
    assert batches == list(sampler)


def test_epochs_and_seeds_have_their_own_order() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        sampler = ShuffledBatches(100, 10, seed)
        sampler.set_epoch(epoch)
        return [i for b in sampler for _, i in b]

    orders = [order(0, 0), order(0, 1), order(1, 0)]
    assert len({tuple(o) for o in orders}) == 3
    assert all(sorted(o) == list(range(100)) for o in orders)
