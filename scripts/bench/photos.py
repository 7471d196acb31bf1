"""Files like ImageNet's, made of real photos: what can be had without ImageNet."""

import io
import json
import zlib
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

from rectifiers.data import jpeg
from rectifiers.data.imagenet.store import FORMAT, INDEX, MANIFEST, SPLITS, ShardWriter, file_sha256

NOTE = (
    "cut from scikit-learn's two sample photos (427 x 640) and scaled to 500 x 375, 375 x 500 "
    "and other sizes, with "
    "sensor noise, JPEG quality about 92, 4:2:0; they imitate ImageNet's mean size and shape, "
    "not its variety"
)
NOISE = 9.0  # grey levels, for about 106 kB at 500 x 375, ImageNet's mean


def write_photos(root: Path, count: int) -> dict[str, float]:
    """Write `count` files below root/plain/train and the same tiled below root/tiled/train; return
    their mean bytes."""
    photos = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    draw = np.random.default_rng(0)
    sizes = {"plain": 0, "tiled": 0}
    for i in range(count):
        height, width = ((375, 500), (375, 500), (375, 500), (500, 375), (333, 500), (480, 640))[
            i % 6
        ]
        photo = photos[draw.integers(2)]
        scale = min(photo.width / width, photo.height / height) * draw.uniform(0.6, 1)
        left, top = (
            draw.uniform(0, photo.width - scale * width),
            draw.uniform(0, photo.height - scale * height),
        )
        box = (left, top, left + scale * width, top + scale * height)
        pixels = np.asarray(
            photo.resize((width, height), Image.Resampling.LANCZOS, box=box), dtype=np.float64
        )
        pixels = (pixels + draw.normal(0, NOISE, pixels.shape)).clip(0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(
            file, "JPEG", quality=int(draw.integers(88, 97)), subsampling="4:2:0"
        )
        tiled = jpeg.tile(file.getvalue())
        assert tiled is not None, jpeg.unavailable_reason()
        for kind, content in (("plain", file.getvalue()), ("tiled", tiled)):
            for part in ("train", "val"):
                path = root / kind / part / f"n{i % 2:08d}" / f"{i}.JPEG"
                path.parent.mkdir(parents=True, exist_ok=True)
                if part == "train" or i < 2:
                    path.write_bytes(content)
            sizes[kind] += len(content)
    return {kind: total / count for kind, total in sizes.items()}


def write_shards(root: Path, times: int = 1) -> Path:
    """Write the tiled photos as prepared data, each `times` in the index; return the folder."""
    prepared = root / f"prepared-{times}"
    files: dict[str, dict[str, object]] = {}
    splits: dict[str, dict[str, object]] = {}
    for split in SPLITS:
        (prepared / split).mkdir(parents=True, exist_ok=True)
        rows = []
        with ShardWriter(prepared / split, (0, 0), 1 << 30) as shards:
            for path in sorted((root / "tiled" / split).rglob("*.JPEG")):
                body = path.read_bytes()
                shard, offset = shards.add(body)
                with Image.open(path) as image:
                    rows.append(
                        (
                            offset,
                            len(body),
                            zlib.crc32(body),
                            shard,
                            int(path.parent.name[1:]),
                            *image.size[::-1],
                        )
                    )
        np.save(prepared / split / "index.npy", np.array(rows * times, INDEX))
        for path in (prepared / split).iterdir():
            files[f"{split}/{path.name}"] = {
                "bytes": path.stat().st_size,
                "sha256": file_sha256(path),
            }
        splits[split] = {"images": len(rows) * times, "digest": ""}
    manifest = {
        "format": FORMAT,
        "classes": [{"wnid": "a"}, {"wnid": "b"}],
        "splits": splits,
        "files": files,
    }
    (prepared / MANIFEST).write_text(json.dumps(manifest))
    return prepared
