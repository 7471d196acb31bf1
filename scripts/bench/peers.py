"""The same work by other libraries, as each does it best: a folder in batches of 64, [N, 3, 224,
224], uint8 but one.

Those that are not installed are left out; none of them is a requirement. Shorter side, crop and
mirror are drawn from the same distribution everywhere."""

import random
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import Way
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import functional as F1
from torchvision.transforms.v2 import functional as F

from rectifiers.data.transforms import COLOR_VALUES, COLOR_VECTORS, resized

BATCH, SIDE, JITTER = 64, 224, (256, 512)


def _draw(height: int, width: int) -> tuple[tuple[int, int], tuple[int, int], bool]:
    size = resized(height, width, random.randint(*JITTER))
    return (
        size,
        (random.randint(0, size[0] - SIDE), random.randint(0, size[1] - SIDE)),
        random.random() < 0.5,
    )


def drain(loader: DataLoader) -> None:
    for _ in loader:
        pass


def _folder(root: Path, **options: Any) -> Way:
    folder = ImageFolder(str(root), **options)
    return lambda: drain(DataLoader(folder, BATCH, shuffle=True))


def _pil_view(image: Image.Image) -> Image.Image:
    size, (top, left), mirrored = _draw(image.height, image.width)
    crop = F1.crop(F1.resize(image, list(size)), top, left, SIDE, SIDE)
    return F1.hflip(crop) if mirrored else crop


def image_folder(root: Path) -> Way:
    """What most training scripts do: ImageFolder, PIL transforms, float32, mean image and colour
    shift on the host."""
    mean = torch.rand(3, SIDE, SIDE)

    def transform(image: Image.Image) -> torch.Tensor:
        pixels = F1.to_tensor(_pil_view(image)) - mean
        alphas = np.random.default_rng().normal(0, 0.1, 3)
        return (
            pixels
            + torch.from_numpy(COLOR_VECTORS @ (COLOR_VALUES * alphas)).float()[:, None, None]
        )

    return _folder(root, transform=transform)


def image_folder_bytes(root: Path) -> Way:
    """The same photos as bytes, the rest left to the device: like for like with the other ways."""
    return _folder(root, transform=lambda image: F1.pil_to_tensor(_pil_view(image)))


def _tensor_view(content: torch.Tensor) -> torch.Tensor:
    image = decode_jpeg(content, ImageReadMode.RGB)
    size, (top, left), mirrored = _draw(*image.shape[-2:])
    crop = F.crop(F.resize(image, list(size), antialias=True), top, left, SIDE, SIDE)
    return F.horizontal_flip(crop) if mirrored else crop


def torchvision_v2(root: Path) -> Way:
    return _folder(root, loader=lambda path: _tensor_view(read_file(path)))


def _region(image: np.ndarray) -> tuple[np.ndarray, bool]:
    """The part of the image that the crop comes from, rounded to whole pixels."""
    size, corner, mirrored = _draw(*image.shape[:2])
    (top, bottom), (left, right) = (
        (round(at * whole / part), round((at + SIDE) * whole / part))
        for at, whole, part in zip(corner, image.shape[:2], size, strict=True)
    )
    return image[top:bottom, left:right], mirrored


def _cv2_view(image: np.ndarray) -> torch.Tensor:
    import cv2

    region, mirrored = _region(image)
    crop = cv2.resize(
        region, (SIDE, SIDE), interpolation=cv2.INTER_LINEAR
    )  # neither antialiased nor Pillow's
    return torch.from_numpy(np.ascontiguousarray(crop[:, ::-1] if mirrored else crop)).permute(
        2, 0, 1
    )


def opencv(root: Path) -> Way:
    import cv2

    cv2.setNumThreads(1)
    return _folder(root, loader=lambda path: _cv2_view(cv2.imread(path)))


def simplejpeg_opencv(root: Path) -> Way:
    import simplejpeg

    return _folder(
        root, loader=lambda path: _cv2_view(simplejpeg.decode_jpeg(Path(path).read_bytes()))
    )


def dali(root: Path) -> Way:
    """DALI on the CPU: decodes the crop's region and resizes it; one thread."""
    from nvidia.dali import fn, pipeline_def, types

    samples = ImageFolder(str(root)).samples
    paths, labels = [path for path, _ in samples], [label for _, label in samples]

    @pipeline_def(batch_size=BATCH, num_threads=1, device_id=None)
    def pipe() -> tuple:
        content, label = fn.readers.file(
            files=paths, labels=labels, random_shuffle=True, name="files"
        )
        shape = fn.cast(fn.peek_image_shape(content), dtype=types.FLOAT)[:2]
        side = (
            SIDE
            * fn.reductions.min(shape)
            / fn.random.uniform(range=[float(bound) for bound in JITTER])
        )
        extent = fn.stack(side, side)
        anchor = fn.random.uniform(range=[0.0, 1.0], shape=[2]) * (shape - extent)
        absolute = {"axes": [0, 1], "normalized_anchor": False, "normalized_shape": False}
        image = fn.resize(
            fn.decoders.image_slice(content, anchor, extent, **absolute), size=[SIDE, SIDE]
        )
        return fn.transpose(fn.flip(image, horizontal=fn.random.coin_flip()), perm=[2, 0, 1]), label

    built = pipe()
    built.build()

    def work() -> None:
        for _ in range(len(samples) // BATCH):
            torch.from_numpy(built.run()[0].as_array())

    return work


def webdataset(root: Path) -> Way:
    """A tar read in order, shuffled in a buffer, decoded by torchvision."""
    import webdataset as wds

    tar = root.parent / "webdataset.tar"
    with wds.TarWriter(str(tar)) as archive:
        for i, (path, _) in enumerate(ImageFolder(str(root)).samples):
            archive.write({"__key__": f"{i:06d}", "jpg": Path(path).read_bytes()})

    def view(content: bytes) -> torch.Tensor:
        return _tensor_view(torch.frombuffer(bytearray(content), dtype=torch.uint8))

    stream = (
        wds.WebDataset(str(tar), shardshuffle=False, empty_check=False)
        .shuffle(200)
        .to_tuple("jpg")
        .map_tuple(view)
    )
    return lambda: drain(DataLoader(stream, BATCH))


def litdata(root: Path) -> Way:
    """litdata's own chunks of files, shuffled by it, decoded by torchvision."""
    import litdata as ld

    place = root.parent / "litdata"
    samples = [Path(path).read_bytes() for path, _ in ImageFolder(str(root)).samples]
    ld.optimize(
        samples.__getitem__,
        list(range(len(samples))),
        str(place),
        chunk_bytes="64MB",
        num_workers=1,
        verbose=False,
    )

    class Views(ld.StreamingDataset):
        def __getitem__(self, index: object) -> torch.Tensor:
            return _tensor_view(
                torch.frombuffer(bytearray(super().__getitem__(index)), dtype=torch.uint8)
            )

    loader = ld.StreamingDataLoader(
        Views(str(place), shuffle=True), batch_size=BATCH, num_workers=0
    )
    return lambda: drain(loader)


def ffcv(root: Path) -> Way:
    """ffcv's own file of JPEGs, encoded again as it needs them: with loss, at the quality that the
    photos have."""
    from ffcv.fields import IntField, RGBImageField
    from ffcv.fields.rgb_image import ResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import RandomHorizontalFlip, ToTensor, ToTorchImage
    from ffcv.writer import DatasetWriter

    def draw(height: int, width: int, scale: object, ratio: object) -> tuple[int, int, int, int]:
        side = int(SIDE * min(height, width) / np.random.randint(256, 513))
        return (
            np.random.randint(0, height - side + 1),
            np.random.randint(0, width - side + 1),
            side,
            side,
        )

    class Crop(ResizedCropRGBImageDecoder):
        scale = ratio = (0.0, 0.0)

        @property
        def get_crop_generator(self) -> Callable:
            return draw

    place = root.parent / "photos.beton"
    fields = {"image": RGBImageField(write_mode="jpg", jpeg_quality=92), "label": IntField()}
    DatasetWriter(str(place), fields, num_workers=1).from_indexed_dataset(ImageFolder(str(root)))
    steps = [Crop((SIDE, SIDE)), RandomHorizontalFlip(), ToTensor(), ToTorchImage()]
    loader = Loader(
        str(place),
        BATCH,
        num_workers=1,
        order=OrderOption.RANDOM,
        pipelines={"image": steps, "label": None},
    )
    return lambda: drain(loader)


# Each way with the modules that it needs beside torchvision.
WAYS: dict[str, tuple[Callable[[Path], Way], tuple[str, ...]]] = {
    "ImageFolder + PIL, float32": (image_folder, ()),
    "ImageFolder + PIL, uint8": (image_folder_bytes, ()),
    "torchvision v2 on tensors": (torchvision_v2, ()),
    "OpenCV (not antialiased)": (opencv, ("cv2",)),
    "simplejpeg + OpenCV (not antialiased)": (simplejpeg_opencv, ("cv2", "simplejpeg")),
    "DALI CPU": (dali, ("nvidia", "nvidia.dali")),
    "webdataset + torchvision v2": (webdataset, ("webdataset",)),
    "litdata + torchvision v2": (litdata, ("litdata",)),
    "ffcv, JPEG (encoded anew, not antialiased)": (ffcv, ("ffcv",)),
}


def installed(root: Path) -> dict[str, Way]:
    """Return every way whose libraries are installed, over the files in `root`."""
    return {
        name: make(root) for name, (make, modules) in WAYS.items() if all(map(find_spec, modules))
    }
