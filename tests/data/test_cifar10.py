import hashlib
import io
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torchvision import datasets

from rectifiers.data import cifar10 as module
from rectifiers.data.cifar10 import CLASSES, cifar10
from refusals import refused

PER_CLASS = {"train": 5, "test": 2}
ARCHIVE = "cifar-10-python.tar.gz"
# By split: class, file name, pixels [3, 32, 32].
Images = dict[str, list[tuple[int, str, np.ndarray]]]


class Python2Pickler(pickle._Pickler):
    """Writes bytes as Python 2 wrote its text."""

    dispatch = pickle._Pickler.dispatch.copy()

    def save_text(self, text: bytes) -> None:
        self.write(pickle.BINSTRING + struct.pack("<i", len(text)) + text)
        self.memoize(text)

    dispatch[bytes] = save_text


def pickled(value: object) -> bytes:
    """Return a file as those of the official archive are: protocol 2, of Python 2 and an old
    NumPy."""
    file = io.BytesIO()
    Python2Pickler(file, protocol=2).dump(value)
    return file.getvalue().replace(b"cnumpy._core.", b"cnumpy.core.")


def write_archive(images: Images, root: Path) -> Path:
    """Write an archive like the official one, which is taken for it, with the images of training in
    five batches."""
    root.mkdir()
    rng = np.random.default_rng(1)
    lists = {"train": datasets.CIFAR10.train_list, "test": datasets.CIFAR10.test_list}
    with tarfile.open(root / ARCHIVE, "w:gz") as archive:
        for split, batches in lists.items():
            shuffled = [images[split][i] for i in rng.permutation(len(images[split]))]
            for i, (name, _) in enumerate(batches):
                labels, files, pixels = zip(*shuffled[i :: len(batches)], strict=True)
                batch = {
                    b"batch_label": b"of the test",
                    b"labels": list(labels),
                    b"data": np.stack(pixels).reshape(-1, 3072),
                    b"filenames": [file.encode() for file in files],
                }
                body = pickled(batch)
                info = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
                info.size = len(body)
                archive.addfile(info, io.BytesIO(body))
    datasets.CIFAR10.tgz_md5 = hashlib.md5((root / ARCHIVE).read_bytes()).hexdigest()
    return root


def write_folder(images: Images, root: Path) -> Path:
    for split, those in images.items():
        for label, name, pixels in those:
            (root / split / CLASSES[label]).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.transpose(1, 2, 0)).save(root / split / CLASSES[label] / name)
    return root


@pytest.fixture
def images(monkeypatch) -> Images:
    """A small set like CIFAR-10, in its order, which `cifar10` takes for it."""
    rng = np.random.default_rng(0)
    made = {
        split: [
            (label, f"{kind}_s_{i:06d}.png", rng.integers(0, 256, (3, 32, 32), dtype=np.uint8))
            for label in range(10)
            for i, kind in enumerate(
                sorted(["tabby", "alley_cat", "a", "Manx", "true_cat"][:count])
            )
        ]
        for split, count in PER_CLASS.items()
    }
    rows = [
        np.uint8([label, *pixels.flatten()])
        for those in made.values()
        for label, _, pixels in those
    ]
    monkeypatch.setattr(module, "PER_CLASS", PER_CLASS)
    monkeypatch.setattr(datasets.CIFAR10, "tgz_md5", "")  # `write_archive` sets it
    monkeypatch.setattr(module, "DIGESTS", module._digests(np.stack(rows)))
    return made


FORMS: dict[str, Callable[[Images, Path], Path]] = {
    "archive": write_archive,
    "PNG files": write_folder,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_holds_the_same_images(images: Images, form: str, tmp_path: Path) -> None:
    root = FORMS[form](images, tmp_path / "there")
    source = cifar10(str(root), cache_dir=str(tmp_path / "cache"))
    assert (source.classes, source.channels, source.digests) == (CLASSES, 3, module.DIGESTS)
    assert source.inspected(tmp_path / "cache").digest == source.digest
    for split, those in ((source.train, images["train"]), (source.val, images["test"])):
        assert list(split.labels) == [label for label, _, _ in those]
        for i, (_, _, pixels) in enumerate(those):
            assert np.array_equal(split.image(i).numpy(), pixels)


def test_part_of_each_class_and_half_the_side(images: Images, tmp_path: Path) -> None:
    root, cache = str(write_folder(images, tmp_path / "there")), str(tmp_path / "cache")
    whole = cifar10(root, cache_dir=cache)
    part = cifar10(root, cache_dir=cache, train_per_class=2, halved=True)
    assert list(part.train.labels) == [label for label in range(10) for _ in range(2)]
    assert len(part.val.labels) == len(whole.val.labels)
    for i, j in ((0, 0), (1, PER_CLASS["train"] // 2), (2, PER_CLASS["train"])):
        means = F.avg_pool2d(whole.train.image(j).double(), 2)
        assert torch.equal(part.train.image(i), (means + 0.5).floor().to(torch.uint8))
    assert part.digest != whole.digest


def test_a_damaged_cache_is_made_again(images: Images, tmp_path: Path) -> None:
    root, cache = str(write_folder(images, tmp_path / "there")), tmp_path / "cache"
    cifar10(root, cache_dir=str(cache))
    (kept,) = cache.rglob("*.npy")
    whole = kept.read_bytes()
    for damaged in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[:1000], b""):
        kept.write_bytes(damaged)
        assert cifar10(root, cache_dir=str(cache)).digests == module.DIGESTS
        assert kept.read_bytes() == whole


def exchange_labels(root: Path) -> None:
    cat, dog = (next((root / "train" / name).iterdir()) for name in ("cat", "dog"))
    (root / "new").write_bytes(cat.read_bytes())
    cat.write_bytes(dog.read_bytes())
    dog.write_bytes((root / "new").read_bytes())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (exchange_labels, "their pixels and labels have another hash"),
        (
            lambda root: (root / "train/cat").rename(root / "train/lion"),
            "train has not 5 images of each class",
        ),
        (
            lambda root: next((root / "test/cat").iterdir()).unlink(),
            "test has not 2 images of each class",
        ),
        (
            lambda root: Image.new("RGB", (33, 32)).save(next((root / "test/cat").iterdir())),
            "has not 32 x 32 px",
        ),
    ],
)
def test_other_images_are_refused(images, tmp_path, change, reason) -> None:
    root = write_folder(images, tmp_path / "there")
    change(root)
    with refused(rf"^data\.root=.* holds other .*{reason}\); get the"):
        cifar10(str(root), cache_dir=str(tmp_path / "cache"))


def test_archive_with_another_md5_runs_no_code(images, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = b"cos\nsystem\n(S'touch reached'\ntR."
    monkeypatch.setitem(globals(), "pickled", lambda _: code)
    root = write_archive(images, tmp_path / "there")
    datasets.CIFAR10.tgz_md5 = "of another"
    with refused(rf"{ARCHIVE} is not the official one, by its md5; remove"):
        cifar10(str(root), cache_dir=str(tmp_path / "cache"))
    assert not (tmp_path / "reached").exists()


@pytest.fixture
def downloads(monkeypatch) -> list[Path]:
    """The folders that the archive was to be downloaded into."""
    folders: list[Path] = []

    def refuse(url: str, root: str, *_: str) -> None:
        folders.append(Path(root))
        raise OSError("no network")

    monkeypatch.setattr(module, "download_url", refuse)
    return folders


@pytest.mark.parametrize(
    ("root", "beside"), [("test", ["train/cat", "test/cat"]), (".", ["train/cat", "val/cat"])]
)
def test_foreign_folder_gets_no_download(tmp_path, downloads, root, beside) -> None:
    for folder in beside:
        (tmp_path / "there" / folder).mkdir(parents=True)
    place = tmp_path / "there" / root
    with refused(rf"^data\.root={place} contains neither train/ and"):
        cifar10(str(place), download=True, cache_dir=str(tmp_path / "cache"))
    assert downloads == []
