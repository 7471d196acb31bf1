"""Three splits: val is cut out of train by a fixed rule, and what was held out tests."""

import pickle
import shutil
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from conftest import compose_config
from rectifiers.data.datamodule import CenterDataset, ImageData, TrainDataset
from rectifiers.data.sources import Source, digits, folder, one_at_a_time, three_splits
from rectifiers.data.splits import choose
from rectifiers.data.transforms import Geometry
from rectifiers.training.build import inspect_source, open_source
from rectifiers.training.targets import import_functions
from refusals import refused

CLASSES = ("a", "b", "c")


def opened(*overrides: str) -> Source:
    config = compose_config(*overrides)
    return inspect_source(open_source(config, import_functions(config)), config)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(0, 2), min_size=30, max_size=300).filter(
        lambda y: min(Counter(y)[c] for c in range(3)) >= 5
    ),
    st.sampled_from([None, 1, 4]),
)
def test_val_is_a_part_of_every_class(labels: list[int], per_class: int | None) -> None:
    train, val = choose(labels, CLASSES, per_class)
    assert sorted([*train, *val]) == list(range(len(labels)))
    assert list(train) == sorted(train)
    assert list(val) == sorted(val)
    counts = Counter(labels[i] for i in val)
    assert all(counts[c] == (per_class or max(1, labels.count(c) // 10)) for c in range(3))


def test_the_rule_is_the_same_everywhere() -> None:
    train, val = choose([0] * 50 + [1] * 50, ("a", "b"), 5)
    assert val.tolist() == [7, 18, 30, 33, 48, 58, 65, 68, 69, 89]
    assert len(train) == 90


def test_digits_have_three_splits() -> None:
    source, whole = opened("data=digits"), digits()
    assert source.test is not None
    assert [len(s.labels) for s in (source.train, source.val, source.test)] == [1077, 270, 450]
    assert Counter(source.val.labels) == dict.fromkeys(range(10), 27)
    assert torch.equal(source.test.images, whole.val.images)  # type: ignore[attr-defined]
    rows = Counter(
        bytes(s.image(i).flatten().tolist())
        for s in (source.train, source.val)
        for i in range(len(s.labels))
    )
    assert rows == Counter(bytes(whole.train.image(i).flatten().tolist()) for i in range(1347))


def test_parts_have_hashes_of_their_own() -> None:
    three, two = opened("data=digits"), opened("data=digits", "data.protocol=paper")
    assert three.digest == two.digest == digits().digest
    nine = opened("data=digits", "data.val_per_class=9")
    assert len({source.train_digest for source in (three, two, nine)}) == 3


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for part, count in (("train", 12), ("val", 3)):
        for group in "ab":
            (tmp_path / part / group).mkdir(parents=True)
            for i in range(count):
                colour = (ord(group), i, count)
                Image.new("RGB", (40 + i, 40), colour).save(
                    tmp_path / part / group / f"{i}.jpg", quality=95
                )
    return tmp_path


def test_test_folder_is_kept(photos: Path) -> None:
    (photos / "test" / "b").mkdir(parents=True)
    Image.new("RGB", (40, 40)).save(photos / "test" / "b" / "0.png")
    with pytest.warns(UserWarning, match=r"test has no images of some classes \(1, such as a\)"):
        source = opened("data=folder", f"data.root={photos}")
    shutil.copy(photos / "train" / "a" / "0.jpg", photos / "test" / "b" / "1.jpg")
    (photos / "test" / "a").mkdir()
    shutil.copy(photos / "train" / "a" / "0.jpg", photos / "test" / "a" / "1.jpg")
    two = opened("data=folder", f"data.root={photos}", "data.protocol=paper")
    assert source.test is not None
    assert [len(s.labels) for s in (source.train, source.val, source.test)] == [24, 6, 1]
    assert two.test is None
    assert two.digest != source.digest
    (photos / "test" / "wolf").mkdir()
    with refused(r"test/wolf is a class that.*or remove it from test"):
        folder(str(photos))


def test_part_of_a_folder_is_read_alike(photos: Path) -> None:
    source = three_splits(folder(str(photos)), 3)
    part = source.train
    assert hasattr(part, "encoded")
    whole = folder(str(photos)).train
    kept = choose(whole.labels, ("a", "b"), 3)[0].tolist()
    for j, i in enumerate(kept):
        assert part.encoded(j) == whole.encoded(i)
        assert torch.equal(part.image(j), whole.image(i))
        assert (part.shape(j), part.labels[j]) == (whole.shape(i), whole.labels[i])
    assert pickle.loads(pickle.dumps(part)).labels == part.labels
    geometry = Geometry(36, 32, True)
    data = ImageData(source, geometry, global_batch=6, seed=0, workers=2)
    expected = TrainDataset(source, geometry, 0)
    for items, batch in zip(data.batches, data.train_dataloader(), strict=True):
        assert torch.equal(batch.images, expected.__getitems__(items).images)
    assert len(CenterDataset(source, "val", geometry)) == 6


def test_small_class_is_refused(photos: Path) -> None:
    with refused(r"^12 of the 12 .* class a .*lower data\.val_per_class"):
        opened("data=folder", f"data.root={photos}", "data.val_per_class=12")
    for i in range(1, 12):
        (photos / "train" / "b" / f"{i}.jpg").unlink()
    with refused("1 of the 1 training images of class b would be for"):
        opened("data=folder", f"data.root={photos}")


def test_one_process_at_a_time_downloads(tmp_path: Path) -> None:
    inside: list[int] = []
    most: list[int] = []

    def download(number: int) -> None:
        with one_at_a_time(tmp_path / "cache"):
            inside.append(number)
            most.append(len(inside))
            time.sleep(0.1)
            inside.remove(number)

    with ThreadPoolExecutor() as pool:
        list(pool.map(download, range(2)))
    assert most == [1, 1]
