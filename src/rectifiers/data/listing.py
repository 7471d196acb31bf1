"""The image files of a folder with a sub-folder per class, and what else lies there."""

import os
from collections import Counter
from pathlib import Path

from torchvision.datasets.folder import IMG_EXTENSIONS

from rectifiers.runtime.errors import InputError

IN_NO_CLASS, OTHER_FILE, HIDDEN = "images in no class", "files of other formats", "hidden images or folders"


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
        return ", ".join(f"{kind} ({count:,}, such as {self.examples[kind]})" for kind, count in self.counts.items())


def list_classes(folder: Path, left_out: LeftOut) -> dict[str, list[Path]]:
    """Return the image files of every sub-folder, by its name; both are sorted, and a class may have no images.

    Links are followed to files and to folders, as torchvision does. Hidden files and folders, among them the `._name`
    that macOS writes, are no images.

    Raises:
        InputError: for a link to nothing or to a folder around it, for what is neither file nor folder, and for a
        folder that cannot be read. A pipe would be waited for without end, so nothing is opened here.
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
    """Return the files and folders of a folder, sorted by their names and without the hidden ones."""
    entries = []
    try:
        with os.scandir(folder) as found:
            for entry in found:
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
        raise InputError(f"{folder} cannot be listed ({error}); make it readable or remove it") from error
    return sorted(entries, key=lambda entry: entry.name)


def _is_named_as_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in IMG_EXTENSIONS
