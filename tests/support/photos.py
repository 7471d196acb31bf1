"""JPEG files of real photos, scikit-learn's two, at any size and in the flavours that cameras and
the web make."""

import io
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images


@cache
def _photos() -> list[Image.Image]:
    return [Image.fromarray(pixels) for pixels in load_sample_images().images]


def photo(height: int, width: int, which: int = 0) -> Image.Image:
    """A real photo, 427 x 640, cut to the aspect ratio and scaled, with a sensor's noise."""
    image = _photos()[which % 2]
    scale = min(image.width / width, image.height / height)
    box = (0, 0, max(1, width * scale), max(1, height * scale))
    pixels = np.asarray(
        image.resize((width, height), Image.Resampling.LANCZOS, box=box), dtype=np.float64
    )
    noise = np.random.default_rng([height, width, which]).normal(0, 6, pixels.shape)
    return Image.fromarray((pixels + noise).clip(0, 255).astype(np.uint8))


def jpeg(image: Image.Image, **options: object) -> bytes:
    """The image as a JPEG file; `options` are Pillow's."""
    file = io.BytesIO()
    image.save(file, "JPEG", **{"quality": 92, **options})
    return file.getvalue()


def write_folder(root: Path, images: int = 4) -> Path:
    """Write two classes of so many JPEG files for training and for validation below `root`, and
    return it."""
    for part in ("train", "val"):
        for group in "ab":
            (root / part / group).mkdir(parents=True)
            for i in range(images):
                (root / part / group / f"{i}.jpg").write_bytes(jpeg(photo(40, 48, i)))
    return root
