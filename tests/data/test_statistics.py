from pathlib import Path

import torch

from rectifiers.data import preprocess as P
from rectifiers.data.module import ImageData
from rectifiers.data.preprocess import PixelMoments, Preprocess, fit
from rectifiers.data.sources import ArraySplit, Source, digits
from rectifiers.data.statistics import load_or_fit, statistics_key
from rectifiers.data.transforms import Geometry

GEOMETRY = Geometry(10, 8, True)


def fitted(source: Source) -> Preprocess:
    data = ImageData(source, GEOMETRY, global_batch=8, seed=0, workers=0)
    return fit(P.zca, PixelMoments(data.statistics_batches), "unit_rms")


def test_the_validation_split_cannot_move_a_statistic() -> None:
    source = digits()
    white = ArraySplit(torch.full((10, 1, 8, 8), 255, dtype=torch.uint8), [0] * 10)
    other = Source("other", source.classes, 1, source.train, white)
    first, second = fitted(source).fitted(), fitted(other).fitted()
    assert all(torch.equal(first[name], second[name]) for name in ("offset", "scale", "matrix"))
    swapped = Source("swapped", source.classes, 1, source.val, source.train)
    assert not torch.equal(fitted(swapped).fitted()["offset"], first["offset"])


def test_a_fitted_map_is_kept_and_found_again(tmp_path: Path) -> None:
    calls = []

    def fit_now() -> Preprocess:
        calls.append(1)
        return fitted(digits())

    first = load_or_fit(tmp_path, "key", fit_now)
    second = load_or_fit(tmp_path, "key", fit_now)
    image = digits().val.image(0)[None]
    assert calls == [1]
    assert torch.equal(first(image), second(image))
    assert second.image_form

    (tmp_path / "key.pt").write_bytes(b"damaged")
    load_or_fit(tmp_path, "key", fit_now)
    load_or_fit(tmp_path, "key", fit_now)
    assert calls == [1, 1]
    assert [p.name for p in tmp_path.iterdir()] == ["key.pt"]


def test_the_key_follows_every_input() -> None:
    inputs = {"train": "ab", "resize_px": 36, "preprocess": {"scale": "unit_rms"}}
    keys = {
        statistics_key(inputs),
        statistics_key({**inputs, "train": "cd"}),
        statistics_key({**inputs, "resize_px": 37}),
    }
    assert len(keys) == 3
    assert statistics_key(dict(reversed(inputs.items()))) in keys
