import gc
import os
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from photos import jpeg, photo, write_folder
from rectifiers.data import datamodule
from rectifiers.data import jpeg as decoder
from rectifiers.data.datamodule import (
    Batch,
    CenterDataset,
    ImageData,
    ShuffledBatches,
    TrainDataset,
)
from rectifiers.data.sources import Source, digits, folder
from rectifiers.data.splits import take
from rectifiers.data.transforms import Geometry, apply_plan, center_plan, draw_plan
from rectifiers.runtime.distributed import World
from rectifiers.runtime.errors import InputError
from refusals import refused

PAPER = Geometry(72, 64, True, scale_jitter_px=(72, 144), color_sigma=0.1)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """A folder of JPEG files, plain, tiled and progressive, and a PNG."""
    root = tmp_path_factory.mktemp("photos")
    for part in ("train", "val"):
        for group in "ab":
            (root / part / group).mkdir(parents=True)
            for i in range(7):
                plain = jpeg(photo(90 + 8 * i, 120, i), progressive=i == 3)
                content = decoder.tile(plain) if i % 2 else plain
                (root / part / group / f"{i}.jpg").write_bytes(content or plain)
            photo(90, 100).save(root / part / group / "7.png")
    return folder(str(root))


def digit_data(workers: int, epoch: int) -> ImageData:
    data = ImageData(digits(), Geometry(10, 8, True), global_batch=128, seed=3, workers=workers)
    data.batches.set_epoch(epoch)
    return data


def test_validation_meets_every_image_once(monkeypatch) -> None:
    monkeypatch.setattr(datamodule, "MAX_IMAGES", 64)  # the last batch of the 450 is a part of one
    loaded = list(digit_data(0, 0).val_dataloader())
    assert {len(batch.labels) for batch in loaded} == {64, 450 % 64}
    assert torch.cat([batch.labels for batch in loaded]).tolist() == list(digits().val.labels)


def batches(workers: int, epoch: int) -> list[Batch]:
    return list(digit_data(workers, epoch).train_dataloader())


def same(one: Batch, two: Batch) -> bool:
    assert one.shifts is not None
    assert two.shifts is not None
    return all(torch.equal(a, b) for a, b in zip(one[:3], two[:3], strict=True))


@cache
def photo_batches(source_root: Path, workers: int) -> list[Batch]:
    data = ImageData(folder(str(source_root)), PAPER, global_batch=8, seed=3, workers=workers)
    data.batches.set_epoch(4)
    return list(data.train_dataloader())


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_change_no_number(photos: Source, workers: int) -> None:
    alone, helped = (photo_batches(photos.train.root, n) for n in (0, workers))
    assert len(alone) == 2
    assert all(same(one, two) for one, two in zip(alone, helped, strict=True))


def test_two_ranks_read_the_images_of_one_process(photos: Source) -> None:
    data = ImageData(photos, PAPER, global_batch=8, seed=3, workers=0)
    data.batches.set_epoch(4)
    for items, whole in zip(data.batches, photo_batches(photos.train.root, 0), strict=True):
        for rank in range(2):
            part = data.training.__getitems__(items[rank::2])
            assert same(part, Batch(*(parts[rank::2] for parts in whole)))


@pytest.mark.parametrize("geometry", [PAPER, replace(PAPER, pad_px=9)])
def test_every_image_equals_pillows(photos: Source, geometry: Geometry) -> None:
    """Training views, and the centre views that validation and preprocessing read."""
    for epoch in range(3):
        batch = TrainDataset(photos, geometry, 3).__getitems__([(epoch, i) for i in range(16)])
        for i in range(16):
            image = photos.train.image(i)
            plan = draw_plan(geometry, 3, epoch, i, (image.shape[1], image.shape[2]))
            assert torch.equal(batch.images[i], apply_plan(plan, image))
            assert torch.equal(batch.shifts[i], torch.from_numpy(plan.shift).float())
            assert batch.labels[i] == photos.train.labels[i]
    for part, split in (("train", photos.train), ("val", photos.val)):
        views = CenterDataset(photos, part, geometry).batch(range(16)).images
        for i, view in enumerate(views):
            image = split.image(i)
            plan = center_plan(geometry, (image.shape[1], image.shape[2]))
            assert torch.equal(view, apply_plan(plan, image))


@pytest.mark.parametrize("part", ["train", "val"])
def test_processes_without_an_image_are_refused(photos: Source, part: str) -> None:
    few = replace(photos, **{part: take(getattr(photos, part), [0, 8])})
    place = World(rank=0, size=3)
    with refused(r"2 \w+ images are fewer than the 3 processes"):
        ImageData(few, PAPER, global_batch=3, seed=0, workers=0, place=place)


def test_pillow_alone_gives_equal_images(photos: Source, monkeypatch) -> None:
    with_it = photo_batches(photos.train.root, 0)
    monkeypatch.setattr(decoder, "unavailable_reason", lambda: "no library today")
    with pytest.warns(UserWarning, match="no library today"):
        data = ImageData(photos, PAPER, global_batch=8, seed=3, workers=0)
    assert data.training.reader.encoded is None
    data.batches.set_epoch(4)
    assert all(same(one, two) for one, two in zip(with_it, data.train_dataloader(), strict=True))
    digit_data(0, 0)  # which has no files to decode, and says nothing


def test_epoch_may_be_set_after_the_iterator() -> None:
    """Lightning does it in this order when a run is resumed with workers."""
    data = ImageData(digits(), Geometry(10, 8, True), global_batch=128, seed=3, workers=2)
    iterator = iter(data.train_dataloader())
    data.batches.set_epoch(5)
    assert torch.equal(next(iterator).images, batches(0, 5)[0].images)


def test_batches_of_small_images_stay_as_they_are() -> None:
    import hashlib

    data = ImageData(digits(), Geometry(36, 32, True), global_batch=128, seed=3, workers=0)
    data.batches.set_epoch(2)
    content = hashlib.blake2b(digest_size=8)
    for batch in data.train_dataloader():
        assert batch.shifts is None
        content.update(batch.images.numpy().tobytes())
        content.update(batch.labels.numpy().tobytes())
    assert content.hexdigest() == "5bfd8c5a2ed937c2"


@pytest.fixture
def damaged(tmp_path: Path) -> Source:
    write_folder(tmp_path, images=3)
    for name in ("a/1.jpg", "a/2.jpg"):
        (tmp_path / "train" / name).write_bytes(b"broken")
    return folder(str(tmp_path))


def test_worker_frees_nothing_of_the_training_process(tmp_path: Path, monkeypatch) -> None:
    owner, forked = os.getpid(), os.fork

    class Garbage:
        def __init__(self) -> None:
            self.cycle = self  # which only the collector frees

        def __del__(self) -> None:
            if os.getpid() != owner:
                (tmp_path / "freed").touch()

    def fork() -> int:
        Garbage()
        if (pid := forked()) == 0:
            gc.set_threshold(1)  # any new object starts a collection
        return pid

    monkeypatch.setattr(os, "fork", fork)
    thresholds = gc.get_threshold()
    gc.set_threshold(10**6)
    try:
        for loader in (digit_data(1, 0).train_dataloader(), digit_data(1, 0).val_dataloader()):
            assert list(loader)
            assert gc.isenabled()
    finally:
        gc.set_threshold(*thresholds)
    assert not (tmp_path / "freed").exists()


def test_worker_reports_an_unreadable_image(damaged: Source) -> None:
    data = ImageData(damaged, Geometry(36, 32, True), global_batch=6, seed=0, workers=2)
    with pytest.raises(InputError) as raised:
        list(data.train_dataloader())
    assert str(raised.value).startswith(str(damaged.train.root / "train" / "a"))
    assert "Traceback" not in str(raised.value)


@pytest.mark.parametrize("library", [True, False])
def test_thin_image_is_refused(library: bool, damaged: Source, monkeypatch) -> None:
    """1 x 65,000 px would have 13 GB at the paper's size."""
    thin = jpeg(Image.new("RGB", (1, 65000)))
    for path in damaged.train.paths:
        path.write_bytes(thin)
    if not library:
        monkeypatch.setattr(decoder, "unavailable_reason", lambda: "no library today")
    data = ImageData(damaged, Geometry(256, 224, True), global_batch=6, seed=0, workers=0)
    sentence = (
        r"image 0 cannot be used: an image of 65000 x 1 px would have more than 89,000,000 "
        r"px .* side is 256; remove"
    )
    with refused(sentence):
        data.training.__getitems__([(0, 0)])


# ---- the order of the training images ----


@given(st.integers(1, 200), st.integers(1, 200), st.integers(0, 3), st.integers(0, 5))
def test_batches_are_whole_and_disjoint(size: int, batch: int, seed: int, epoch: int) -> None:
    if batch > size:
        with refused(f"data.batch_size={batch} is more than the {size}"):
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
    def order(seed: int, epoch: int, is_fixed: bool = False) -> list[int]:
        sampler = ShuffledBatches(100, 10, seed, is_fixed=is_fixed)
        sampler.set_epoch(epoch)
        return [i for b in sampler for _, i in b]

    orders = [order(0, 0), order(0, 1), order(1, 0)]
    assert len({tuple(o) for o in orders}) == 3
    assert all(sorted(o) == list(range(100)) for o in orders)
    assert order(0, 1, is_fixed=True) == orders[0]
