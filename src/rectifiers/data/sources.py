"""Sources of images: training and held-out splits of uint8 images with their classes.

A new source is a function here (or in any importable module) that returns a `Source`, and a file in
`conf/data/` that names it. It writes to its `root` only where its parameter `download` is true."""

import functools
import hashlib
import random
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from filelock import FileLock
from torchvision.datasets.folder import IMG_EXTENSIONS

from rectifiers.data.images import FolderSplit, Inspection, list_classes
from rectifiers.data.splits import ArraySplit, Split, choose, part_digest, take
from rectifiers.runtime.distributed import world
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.ranges import Range

UNPINNED = "unpinned-"
MNIST1D = {"num_samples": 8000, "train_split": 0.5}  # beside its authors' settings; their seed: 42
MNIST1D_FRESH = {"num_samples": 40_000, "train_split": 0.0, "seed": 43}
MNIST1D_LEVELS, MNIST1D_MEAN = 24, 128  # grey levels of a standard deviation, and of 0
MNIST1D_DIGESTS = (  # of both splits, signals and labels
    "8c93323500ed0283f7ed963208a81eb7",
    "58ac3bc6dd6087699b6bc55ee62dabe2",
)
MNIST1D_FRESH_DIGEST = "0565ea6e41c14526d9ab8a2025c00526"


@dataclass(frozen=True)
class Source:
    """A data set: its class names in label order, channels (1 or 3) and its splits.

    val chooses rates, drops and the end of a training, and test is looked at once, by a finished
    run. A set with one held-out split has it as val and no test, which is the paper's protocol;
    `three_splits` makes it the test.

    pinned: for prepared data, whether a `dvc.lock` names them; None for other data. Hashes of
    unpinned data begin with UNPINNED, so that no run and no cached statistics of theirs pass for
    those of pinned data. digests: the hashes of the splits as they were opened, where they are
    known. Those of `three_splits` are still the original ones, so that the hash of a data set does
    not depend on how many images are for validation. remainder: the hash of what `three_splits` has
    left of train."""

    name: str
    classes: tuple[str, ...]
    channels: int
    train: Split
    val: Split
    pinned: bool | None = None
    digests: tuple[str, ...] | None = None
    test: Split | None = None
    remainder: str = ""

    @property
    def tested(self) -> Split:
        """What a finished run is tested on."""
        return self.val if self.test is None else self.test

    @cached_property
    def train_digest(self) -> str:
        """A hash of the content of the training split."""
        return self._mark + (self.remainder or self.split_digests[0])

    @cached_property
    def digest(self) -> str:
        """The data's hash in a record: of the classes and all content of all splits."""
        parts = "\n".join([*self.classes, *self.split_digests]).encode(errors="surrogateescape")
        return self._mark + hashlib.blake2b(parts, digest_size=16).hexdigest()

    @cached_property
    def split_digests(self) -> tuple[str, ...]:
        """The hashes of the splits as they were opened."""
        return self.digests or tuple(split.digest() for split in self._splits)

    @property
    def outline(self) -> str:
        """A hash of what is known without reading files: the same on all processes that see the
        same data."""
        return " ".join(getattr(split, "outline", split.digest)() for split in self._splits)

    @property
    def _splits(self) -> list[Split]:
        return [split for split in (self.train, self.val, self.test) if split is not None]

    @property
    def _mark(self) -> str:
        return UNPINNED if self.pinned is False else ""

    def inspected(self, cache_dir: Path) -> "Source":
        """Return the source with its hashes, for which all files of all splits are read, or as it
        is with known ones.

        Raises:
            InputError: where an image cannot be read.
        """
        if self.digests is not None:
            return self
        inspections = [_inspect(split, cache_dir) for split in self._splits]
        sentences = [line for split in inspections for line in split.unreadable.values()]
        if sentences:
            more = f" (and {len(sentences) - 1:,} more)" if len(sentences) > 1 else ""
            raise InputError(sentences[0] + more)
        return replace(self, digests=tuple(split.digest for split in inspections))


def _inspect(split: Split, cache_dir: Path) -> Inspection:
    """Return the hash of a split, and what of it cannot be read; images in memory always can."""
    if hasattr(split, "inspect"):
        inspection: Inspection = split.inspect(cache_dir)
        return inspection
    return Inspection(split.digest(), {})


def three_splits(source: Source, val_per_class: int | None = None) -> Source:
    """Return `source` with its held-out images as test, and a part of its training images as val.

    A source that has three splits already keeps them. The rule is fixed: it depends on the order of
    the training images alone, and on no seed. val_per_class: images of each class; None for a
    tenth, and at least one.
    """
    if source.test is not None:
        return source
    train, val = choose(source.train.labels, source.classes, val_per_class)
    return replace(
        source,
        train=take(source.train, train),
        val=take(source.train, val),
        test=source.val,
        digests=source.split_digests,
        remainder=part_digest(source.split_digests[0], train),
    )


def digits(
    val_fraction: Annotated[float, Range(gt=0, lt=1)] = 0.25,
    split_seed: Annotated[int, Range(ge=0, le=2**32 - 1)] = 0,
) -> Source:
    """scikit-learn's 1,797 handwritten digits, 8 x 8 grey levels 0..16 (UCI's optical recognition
    test set), which are part of its wheel. The set has no split; this one is stratified by
    class."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    bunch = load_digits()
    images = torch.from_numpy(np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, None])
    options = {"stratify": bunch.target, "test_size": val_fraction, "random_state": split_seed}
    try:
        parts = train_test_split(np.arange(len(images)), **options)
    except ValueError as error:
        raise InputError(
            f"data.val_fraction={val_fraction} leaves a class without images in one split; give a "
            "fraction nearer to 0.5"
        ) from error

    all_digits = ArraySplit(images, bunch.target.tolist())
    train, val = (take(all_digits, np.sort(indices)) for indices in parts)
    return Source("digits", tuple("0123456789"), 1, train, val)


@functools.cache
def mnist1d(fresh: bool = False) -> Source:
    """MNIST-1D (Greydanus and Kobak 2024): 4,000 + 4,000 signals of 40 numbers in ten classes, made
    by the generator of the package `mnist1d` as maps of 1 x 40.

    fresh: whether 40,000 signals of another seed of the generator stand in for the 4,000 held-out
    ones. The generator divides each set by its own standard deviation; of two sets it differs by up
    to 0.4 %.

    DEVIATION: the numbers are rounded to 256 levels, so that all machines have the same bytes. A
    standard deviation has 24 levels; one level is a fifth of the generator's white noise.

    Raises:
        InputError: where the package makes other signals than the pinned ones.
    """
    train, held_out = _mnist1d_splits(MNIST1D)
    digests, pinned = (train.digest(), held_out.digest()), MNIST1D_DIGESTS
    if fresh and digests == pinned:
        held_out = _mnist1d_splits(MNIST1D_FRESH)[1]
        digests, pinned = (digests[0], held_out.digest()), (pinned[0], MNIST1D_FRESH_DIGEST)

    if digests != pinned:
        made, known = next(pair for pair in zip(digests, pinned, strict=True) if pair[0] != pair[1])
        raise InputError(
            f"data=mnist1d made other signals ({made}) than those of the benchmark ({known}); "
            "install mnist1d and numpy as requirements.lock has them"
        )
    return Source("mnist1d", tuple("0123456789"), 1, train, held_out, digests=digests)


def _mnist1d_splits(changes: Mapping[str, float]) -> tuple[ArraySplit, ArraySplit]:
    """Return both splits that the generator makes with these of its settings changed."""
    from mnist1d.data import get_dataset_args, make_dataset

    settings = get_dataset_args()
    vars(settings).update(changes)
    states = random.getstate(), np.random.get_state()
    try:
        made = make_dataset(settings)  # it seeds both generators, which are the process's own
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
    return _in_grey_levels(made["x"], made["y"]), _in_grey_levels(made["x_test"], made["y_test"])


def _in_grey_levels(signals: np.ndarray, labels: np.ndarray) -> ArraySplit:
    levels = np.rint(MNIST1D_MEAN + MNIST1D_LEVELS * signals).clip(0, 255).astype(np.uint8)
    return ArraySplit(torch.from_numpy(levels)[:, None, None], labels.tolist())


def noise(classes: int = 6, train: int = 72, val: int = 24, px: int = 96) -> Source:
    """Random colour images in memory, for runs that only exercise the code: results on them mean
    nothing."""
    generator = torch.Generator().manual_seed(0)

    def split(count: int) -> ArraySplit:
        shape = (count, 3, px, px)
        images = torch.randint(64, 192, shape, generator=generator, dtype=torch.uint8)
        return ArraySplit(images, [i % classes for i in range(count)])

    names = tuple(str(i) for i in range(classes))
    return Source("noise", names, 3, split(train), split(val))


@contextmanager
def one_at_a_time(cache_dir: Path) -> Iterator[None]:
    """Let one process at a time open data that it may download: ranks, and runs of a list, start
    together."""
    with ExitStack() as stack:
        with suppress(OSError):  # the cache may be for reading alone
            cache_dir.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(cache_dir / "download.lock", fallback_to_soft=False))
        yield


def missing(name: str, place: Path, file: str, reason: object) -> InputError:
    """Return the error that `file` of the data set `name` is not at `place` and was not
    downloaded."""
    return InputError(
        f"data={name} is missing or incomplete in data.root={place}, and was not downloaded "
        f"({' '.join(str(reason).split())}); put {file} there, give data.download=true, or choose "
        "data=digits, which needs none"
    )


def folder(root: str | None = None) -> Source:
    """Any folder with `train/<class>/*` and `val/<class>/*`; classes are the sorted names below
    train, images are RGB.

    `test/<class>/*` is a third split. Transparency is dropped, an EXIF rotation is not applied, and
    links are followed. A warning counts the classes that val or test have no images of.
    """
    layout = "a folder with train/<class>/* and val/<class>/*"
    if root is None:
        raise InputError(f"data=folder needs data.root=<{layout}>")
    base = Path(root)
    if not base.is_dir():
        raise InputError(f"data.root={base} is not a folder; give {layout}")
    for place in (base / "train", base / "val"):
        if not place.is_dir():
            raise InputError(f"data.root={base}: {place} is not a folder; give {layout}")

    parts = [part for part in ("train", "val", "test") if (base / part).is_dir()]
    ignored: Counter[str] = Counter()
    images = {part: list_classes(base / part, ignored) for part in parts}
    classes = tuple(images["train"])
    _check_classes(base, images)

    splits = {}
    for part, members in images.items():
        empty = [name for name in classes if not members.get(name)]
        if empty and world().rank == 0:
            few = f"{len(empty):,}, such as {empty[0]}"
            message = f"data.root={root}: {part} has no images of some classes ({few})"
            warnings.warn(message, stacklevel=2)
        paths = [path for name in classes for path in members.get(name, [])]
        labels = [label for label, name in enumerate(classes) for _ in members.get(name, [])]
        splits[part] = FolderSplit(base, paths, labels)

    if ignored and world().rank == 0:
        counts = ", ".join(f"{count:,} {kind}" for kind, count in ignored.most_common())
        message = (
            f"data.root={root}: {ignored.total():,} files are not read ({counts}); images end in "
            f"{', '.join(IMG_EXTENSIONS)}"
        )
        warnings.warn(message, stacklevel=2)
    return Source("folder", classes, 3, splits["train"], splits["val"], test=splits.get("test"))


def _check_classes(base: Path, images: Mapping[str, Mapping[str, Sequence[Path]]]) -> None:
    """Refuse classes that cannot be learned or named; images: by split and class."""
    classes = tuple(images["train"])
    if len(classes) < 2:
        raise InputError(
            f"{base / 'train'} has {len(classes)} class folders and must have two or more; put "
            "the images into train/<class>/"
        )
    if odd := [name for name in classes if not name.isprintable()]:  # they stand in the record
        raise InputError(f"{base / 'train'} has a class {odd[0]!a}; rename it")
    _refuse_two_forms(base, dict.fromkeys(name for members in images.values() for name in members))

    for part, members in images.items():
        if unknown := [name for name in members if name not in classes]:
            raise InputError(
                f"{base / part / unknown[0]} is a class that {base / 'train'} has not; add it "
                f"there or remove it from {part}"
            )
        empty = [name for name in classes if not members.get(name)]
        if empty and (part == "train" or len(empty) == len(classes)):
            raise InputError(
                f"{base / part / empty[0]} holds no images; add some or remove the class"
            )


def _refuse_two_forms(base: Path, classes: Iterable[str]) -> None:
    """Refuse a class whose name is there in two Unicode forms, which look alike and are two."""
    forms: dict[str, str] = {}
    for name in classes:
        first = forms.setdefault(unicodedata.normalize("NFC", name), name)
        if first != name:
            raise InputError(
                f"{base} has a class {name} in two Unicode forms, {first!a} and {name!a}; give "
                "both folders one name"
            )
