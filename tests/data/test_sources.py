import os
import random
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import datasets

from rectifiers.benchmark.definition import benchmark
from rectifiers.data import sources
from rectifiers.data.sources import digits, folder, mnist1d
from rectifiers.data.splits import ArraySplit
from refusals import refused


def test_the_split_of_digits_is_the_same_everywhere() -> None:
    assert digits().digest == "edfcf97831340b5068c8594798d4efb6"
    assert digits(split_seed=1).digest != digits().digest


def test_mnist1d_has_the_pinned_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    random.seed(1)
    np.random.seed(1)
    states = random.getstate(), np.random.get_state()[1].tolist()
    source = mnist1d.__wrapped__()
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states
    assert source.digest == "ffc861b8b246434b6129c03e0f73d6e8"
    assert (len(source.train.labels), len(source.val.labels)) == (4000, 4000)
    assert source.train.image(0).shape == (1, 1, 40)
    monkeypatch.setattr(sources, "MNIST1D", {"num_samples": 80, "train_split": 0.5})
    with refused("data=mnist1d made other signals"):
        mnist1d.__wrapped__()


def test_fresh_signals_of_another_seed_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = {**sources.MNIST1D_FRESH, "num_samples": 80}
    monkeypatch.setattr(sources, "MNIST1D_FRESH", fewer)
    with refused(rf"made other signals .*{sources.MNIST1D_FRESH_DIGEST}"):
        mnist1d.__wrapped__(fresh=True)


@pytest.mark.slow
def test_fresh_signals_are_pinned_and_new() -> None:
    plain, fresh = mnist1d(), mnist1d(fresh=True)
    assert fresh.digest == benchmark().tasks["conv6_late"].data
    assert Counter(fresh.val.labels) == dict.fromkeys(range(10), 4000)
    assert fresh.train.digest() == plain.train.digest()
    seen = {bytes(row) for split in (plain.train, plain.val) for row in split.images.numpy()}
    assert not any(bytes(row) in seen for row in fresh.val.images.numpy())


def test_splits_of_digits_are_disjoint_and_balanced() -> None:
    source = digits(split_seed=3)
    counts, held_out = Counter(source.train.labels), Counter(source.val.labels)
    assert all(abs(held_out[c] - (counts[c] + held_out[c]) / 4) <= 1 for c in range(10))
    rows = torch.cat([source.train.images, source.val.images])  # type: ignore[attr-defined]
    whole = digits()
    others = torch.cat([whole.train.images, whole.val.images])  # type: ignore[attr-defined]
    assert Counter(map(bytes, rows.flatten(1).tolist())) == Counter(
        map(bytes, others.flatten(1).tolist())
    )


def test_a_fraction_that_empties_a_class_is_refused() -> None:
    with refused(r"data\.val_fraction=0\.001"):
        digits(val_fraction=0.001)


def test_a_digest_depends_on_every_pixel_and_label() -> None:
    images = torch.zeros(3, 1, 2, 2, dtype=torch.uint8)
    other = images.clone()
    other[2, 0, 1, 1] = 1
    digests = {
        ArraySplit(images, [0, 1, 2]).digest(),
        ArraySplit(other, [0, 1, 2]).digest(),
        ArraySplit(images, [0, 1, 1]).digest(),
    }
    assert len(digests) == 3


# ---- a folder of image files ----


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """train/{cat,dog} and val/{cat,dog} of small files in several modes and formats."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 6), ("val", 3)):
        for group in ("dog", "cat"):
            place = tmp_path / "photos" / part / group
            place.mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(0, 256, (20 + i, 24, 3), dtype=np.uint8)
                mode, suffix = (("RGB", "png"), ("L", "jpg"), ("P", "png"), ("CMYK", "jpeg"))[i % 4]
                Image.fromarray(pixels).convert(mode).save(place / f"{i}.{suffix}")
    return tmp_path / "photos"


def test_folder_gives_rgb_images_and_sorted_classes(photos: Path) -> None:
    source = folder(str(photos))
    assert source.classes == ("cat", "dog")
    assert Counter(source.train.labels) == {0: 6, 1: 6}
    assert Counter(source.val.labels) == {0: 3, 1: 3}
    shapes = {tuple(source.train.image(i).shape) for i in range(6)}
    assert shapes == {(3, 20 + i, 24) for i in range(6)}


def test_digest_does_not_depend_on_the_path(photos: Path, tmp_path: Path) -> None:
    before = folder(str(photos)).digest
    moved = photos.rename(tmp_path / "elsewhere")
    assert folder(str(moved)).digest == before
    Image.new("RGB", (9, 9)).save(moved / "val" / "cat" / "9.png")
    assert folder(str(moved)).digest != before


def test_images_have_the_order_of_their_paths(photos: Path) -> None:
    for name in ("a", "a.x", "b"):
        shutil.copytree(photos / "train" / "dog", photos / "train" / "cat" / name)
    shutil.copy(photos / "train" / "cat" / "0.png", photos / "train" / "cat" / "a.png")
    split = folder(str(photos)).train
    assert split.paths == sorted(split.paths)
    assert len(split.paths) == 6 + 3 * 6 + 1 + 6


def test_links_are_read_as_torchvision_reads_them(photos: Path, tmp_path: Path) -> None:
    more = Path(shutil.copytree(photos / "val" / "cat", tmp_path / "more"))
    (photos / "train" / "cat" / "more").symlink_to(more)
    (photos / "train" / "dog" / "one.png").symlink_to(more / "0.png")
    source, theirs = folder(str(photos)), datasets.ImageFolder(str(photos / "train"))
    assert Counter(source.train.labels) == Counter(theirs.targets) == {0: 9, 1: 7}


def copy_of(place: str) -> None:
    shutil.copytree("train/cat", place)


# composed and decomposed, one in train and the other in val
TWO_FORMS = {"train/dog": "train/\u1100\u1161", "val/dog": "val/\uac00"}
UNUSABLE = [
    (lambda: (Path("val")).rename("test"), r"data\.root=.*val is not a folder"),
    (lambda: Path("train/ant").mkdir(), "train/ant holds no images"),
    (lambda: Path("val/dog").rename("val/wolf"), "val/wolf is a class that .*train has not"),
    (lambda: Path("train/cat/loop").symlink_to("../../train"), "loop is a link.*remove it"),
    (lambda: os.mkfifo("train/cat/odd.png"), r"train/cat/odd\.png cannot be read .*remove it"),
    (
        lambda: [Path("train/dog").rename("train/caf\xe9"), copy_of("train/cafe\u0301")],
        r"two Unicode forms, 'cafe\\u0301' and 'caf\\xe9'",
    ),
    (
        lambda: [Path(part).rename(to) for part, to in TWO_FORMS.items()],
        r"two Unicode forms, '\\u1100\\u1161' and '\\uac00'",
    ),
    (lambda: Path("train/dog").rename("train/\udcff"), r"train has a class '\\udcff'; rename it"),
]


@pytest.mark.parametrize(("spoil", "sentence"), UNUSABLE)
def test_unusable_folder_is_refused(photos: Path, spoil, sentence: str, monkeypatch) -> None:
    monkeypatch.chdir(photos)
    spoil()
    with refused(sentence):
        folder(str(photos))
