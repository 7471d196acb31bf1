"""Write a folder of images as archives in the official layout of ImageNet (ILSVRC 2012).

The folder holds train/<wnid>/ and val/<wnid>/. Images are renamed in the order in which data=folder
numbers them, so each keeps its index and its pixels through `prepare_imagenet.py`. The archives
have the same bytes on any machine."""

import argparse
import io
from pathlib import Path

import numpy as np
from make_miniature import DEVKIT, gzipped, tar
from scipy.io import savemat

from rectifiers.data.images import FolderSplit
from rectifiers.data.sources import folder
from rectifiers.runtime.console import cli_errors


def meta(wnids: tuple[str, ...]) -> bytes:
    """Return `meta.mat`, in which the ids of the classes are their labels, counted from 1."""
    fields = ("ILSVRC2012_ID", "WNID", "words", "num_children")
    synsets = np.zeros((len(wnids), 1), dtype=[(name, object) for name in fields])
    for label, wnid in enumerate(wnids):
        synsets[label, 0] = (float(label + 1), wnid, wnid, 0.0)
    file = io.BytesIO()
    savemat(file, {"synsets": synsets})
    return b"MATLAB 5.0 MAT-file".ljust(116) + file.getvalue()[116:]  # scipy's has the time


def archive_folder(root: Path, out: Path) -> None:
    """Write the three archives of the folder `root` below `out`."""
    source = folder(str(root))
    train, val = source.train, source.val
    assert isinstance(train, FolderSplit)
    assert isinstance(val, FolderSplit)
    out.mkdir(parents=True, exist_ok=True)

    photos: dict[str, dict[str, bytes]] = {wnid: {} for wnid in source.classes}
    for index, label in enumerate(train.labels):
        inner = photos[source.classes[label]]
        inner[f"{source.classes[label]}_{len(inner):07d}.JPEG"] = train.encoded(index)
    outer = {f"{wnid}.tar": tar(inner) for wnid, inner in photos.items()}
    (out / "ILSVRC2012_img_train.tar").write_bytes(tar(outer))

    flat = {f"ILSVRC2012_val_{i + 1:08d}.JPEG": val.encoded(i) for i in range(len(val.labels))}
    (out / "ILSVRC2012_img_val.tar").write_bytes(tar(flat))

    truth = "".join(f"{label + 1}\n" for label in val.labels).encode()
    devkit = {
        f"{DEVKIT}/data/meta.mat": meta(source.classes),
        f"{DEVKIT}/data/ILSVRC2012_validation_ground_truth.txt": truth,
    }
    (out / f"{DEVKIT}.tar.gz").write_bytes(gzipped(tar(devkit)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder with train/<wnid>/ and val/<wnid>/")
    parser.add_argument("out", type=Path, help="folder to write the archives to")
    arguments = parser.parse_args()
    with cli_errors():
        archive_folder(arguments.folder, arguments.out)


if __name__ == "__main__":
    main()
