"""The image files of a folder with a sub-folder per class, and what else lies there."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from PIL import Image
from torch import Tensor
from torchvision.datasets.folder import IMG_EXTENSIONS
from torchvision.transforms.v2.functional import pil_to_tensor

from rectifiers.data.images import FORMATS, check_pixels, digest_files
from rectifiers.data.inspection import Inspection, examine_image, look_at_files, memory_path
from rectifiers.runtime.errors import InputError

IN_NO_CLASS, OTHER_FILE, HIDDEN = (
    "images in no class",
    "files of other formats",
    "hidden images or folders",
)


class LeftOut:
    """What is not read: how many files and folders of each kind, and one of them as an example."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, str] = {}

    def add(self, kind: str, path: str) -> None:
        self.counts[kind] += 1
        self.examples[kind] = min(path, self.examples.get(kind, path))

    def sentence(self) -> str:
        """Return "images in no class (2, such as train/a.png), files of ...", or nothing."""
        return ", ".join(
            f"{kind} ({count:,}, such as {self.examples[kind]})"
            for kind, count in self.counts.items()
        )


def list_classes(folder: Path, left_out: LeftOut) -> dict[str, list[Path]]:
    """Return the image files of every sub-folder, by its name; both are sorted, and a class may
    have no images.

    Links are followed to files and to folders, as torchvision does. Hidden files and folders, among
    them the `._name` that macOS writes, are no images.

    Raises:
        InputError: for a link to nothing or to a folder around it, for what is neither file nor
        folder, and for a folder that cannot be read. A pipe would be waited for without end, so
        nothing is opened here.
    """
    classes = {}
    for entry in _entries(folder, left_out):
        if entry.is_dir():
            classes[entry.name] = _images_below(entry.path, left_out, around=[folder])
        else:
            left_out.add(IN_NO_CLASS if _is_named_as_image(entry.name) else OTHER_FILE, entry.path)
    return classes


def _images_below(folder: str, left_out: LeftOut, around: list[Path]) -> list[Path]:
    if any(os.path.samefile(folder, other) for other in around):
        raise InputError(f"{folder} is a link to a folder that it lies in; remove it")
    images: list[Path] = []
    for entry in _entries(Path(folder), left_out):
        if entry.is_dir():
            images += _images_below(entry.path, left_out, [*around, Path(folder)])
        elif _is_named_as_image(entry.name):
            images.append(Path(entry.path))
        else:
            left_out.add(OTHER_FILE, entry.path)
    return images


def _entries(folder: Path, left_out: LeftOut) -> list[os.DirEntry[str]]:
    """Return the files and folders of a folder, sorted by their names and without the hidden ones.

    Raises:
        InputError: for what `list_classes` names, and for a name that is no text.
    """
    entries = []
    try:
        with os.scandir(folder) as found:
            for entry in found:
                if not _is_text(entry.name):
                    raise InputError(f"{entry.path!a} has a name that is no UTF-8 text; rename it")
                if entry.name.startswith("."):
                    if entry.is_dir() or _is_named_as_image(entry.name):
                        left_out.add(HIDDEN, entry.path)
                elif entry.is_dir() or entry.is_file():
                    entries.append(entry)
                elif entry.is_symlink() and not os.path.exists(entry.path):
                    raise InputError(f"{entry.path} is a link to nothing; repair or remove it")
                else:
                    raise InputError(f"{entry.path} is neither a file nor a folder; remove it")
    except OSError as error:
        raise InputError(
            f"{folder} cannot be listed ({error}); make it readable or remove it"
        ) from error
    return sorted(entries, key=lambda entry: entry.name)


def _is_text(name: str) -> bool:
    """Return whether a record can hold the name; Python stands for other bytes by lone
    surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_named_as_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in IMG_EXTENSIONS


def read_rgb(
    file: Path | BytesIO,
    name: str,
    formats: tuple[str, ...] = FORMATS,
    remedy: str = "repair or remove it",
) -> Tensor:
    """Decode an image file to uint8 [3, H, W].

    name: its name in messages. formats: the decoders to try. remedy: the end of the message
    where it cannot be read.

    Raises:
        InputError: for a file that no decoder reads, is too large, or has more than 8 bits per
        channel.
    """
    try:
        with Image.open(file, formats=formats) as image:
            check_pixels(image)
            return pil_to_tensor(image.convert("RGB"))
    except Exception as error:  # a hostile file can raise anything
        reason = str(error).partition(" <_io")[0]  # Pillow appends the file object
        raise InputError(f"{name} cannot be read as an image ({reason}); {remedy}") from error


@dataclass(frozen=True)
class FolderSplit:
    """Image files of any size below a folder, each read as RGB when it is needed."""

    root: Path
    paths: Sequence[Path]
    labels: Sequence[int]

    def image(self, index: int) -> Tensor:
        return read_rgb(self.paths[index], str(self.paths[index]))

    def encoded(self, index: int) -> bytes:
        """Return the bytes of the file, of which a JPEG decoder may read a part."""
        try:
            return self.paths[index].read_bytes()
        except OSError as error:
            raise InputError(
                f"{self.paths[index]} cannot be read ({error}); repair or remove it"
            ) from error

    def shape(self, index: int) -> tuple[int, int]:
        try:
            with Image.open(self.paths[index], formats=FORMATS) as image:
                return image.height, image.width
        except Exception as error:
            raise InputError(
                f"{self.paths[index]} cannot be read as an image ({error}); repair or remove it"
            ) from error

    def digest(self) -> str:
        return self.inspect(None).digest

    def inspect(self, cache_dir: Path | None) -> Inspection:
        """Look at the content of every file, unless the memory in `cache_dir` knows the file as it
        is."""
        names = self._names()
        memory = cache_dir and memory_path(
            cache_dir, str(self.root.resolve()), names[0].partition("/")[0]
        )
        found = look_at_files(self.paths, names, examine_image, memory)
        hashes = (bytes.fromhex(content) for content, _, _ in found)
        return Inspection(
            digest_files(zip(names, self.labels, hashes, strict=True)),
            [
                f"{path} cannot be read as an image ({reason}); repair or remove it"
                for path, (_, reason, _) in zip(self.paths, found, strict=True)
                if reason is not None
            ],
            sum(is_slow for _, _, is_slow in found),
        )

    def outline(self) -> str:
        """Return a hash of the names, the labels and the sizes of the files."""
        sizes = (b"%d" % path.stat().st_size for path in self.paths)
        return digest_files(zip(self._names(), self.labels, sizes, strict=True))

    def _names(self) -> list[str]:
        """Return the paths below the root, such as "train/cat/1.jpg"."""
        start = len(str(self.root / "x")) - 1
        return [str(path)[start:] for path in self.paths]


def folder_split(
    root: Path, classes: Sequence[str], images: Mapping[str, list[Path]]
) -> FolderSplit:
    """Return the split of the images of each class; a label is a class' place in `classes`."""
    labelled = [
        (path, label) for label, name in enumerate(classes) for path in images.get(name, [])
    ]
    return FolderSplit(root, [path for path, _ in labelled], [label for _, label in labelled])
