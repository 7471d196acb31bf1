import importlib
import sys
from pathlib import Path

import torch

from rectifiers.data import preprocess as P
from rectifiers.data.datamodule import ImageData
from rectifiers.data.preprocess import (
    PixelMoments,
    Preprocess,
    fit,
    load_or_fit,
    load_preprocess,
    save_preprocess,
    statistics_key,
)
from rectifiers.data.sources import ArraySplit, Source, digits
from rectifiers.data.transforms import Geometry
from rectifiers.training.build import build_data, build_preprocess, inspect_source, open_source
from rectifiers.training.targets import import_functions
from refusals import refused

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


def test_a_fitted_map_is_cached_and_loaded_again(tmp_path: Path) -> None:
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


def test_key_follows_every_input() -> None:
    inputs = {"train": "ab", "resize_px": 36, "preprocess": {"scale": "unit_rms"}}
    others = [inputs, inputs | {"train": "cd"}, inputs | {"preprocess": {"scale": 1}}]
    assert len(set(map(statistics_key, others))) == 3
    assert statistics_key(dict(reversed(inputs.items()))) == statistics_key(inputs)


def test_a_users_function_that_changed_is_fitted_anew(tiny, tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    config = tiny(
        "preprocess=a_users_preprocess.mine", "preprocess.scale=1.0", f"cache_dir={tmp_path}"
    )
    keys = []
    for method in ("pixel_mean", "scalar_mean", "scalar_mean"):
        text = f"@torch.no_grad()\ndef mine(moments):\n    return P.{method}(moments)\n"
        (tmp_path / "a_users_preprocess.py").write_text(
            "import torch\nfrom rectifiers.data import preprocess as P\n" + text
        )
        sys.modules.pop("a_users_preprocess", None)
        importlib.invalidate_caches()
        functions = import_functions(config)
        source = inspect_source(open_source(config, functions), config)
        keys.append(build_preprocess(config, functions, build_data(config, source))[1])
    assert keys[0] != keys[1] == keys[2]


def test_a_damaged_file_is_never_used(tmp_path: Path) -> None:
    path = tmp_path / "key.pt"
    right = fitted(digits())
    save_preprocess(right, path)
    assert torch.equal(load_preprocess(path).scale, right.scale)
    whole = torch.load(path)
    spoiled = [{name: part for name, part in whole.items() if name != "matrix"}, list(whole)]
    for content in spoiled:
        torch.save(content, path)
        with refused(r"key\.pt cannot be read .*train.py with"):
            load_preprocess(path)
        assert torch.equal(load_or_fit(tmp_path, "key", lambda: right).scale, right.scale)
        assert torch.equal(load_preprocess(path).scale, right.scale)
    save_preprocess(right, path)
    content = bytearray(path.read_bytes())
    content[content.index(bytes(whole["matrix"].untyped_storage())[:64])] ^= 1
    (tmp_path / "bent.pt").write_bytes(content)
    with refused(r"bent\.pt cannot be read"):
        load_preprocess(tmp_path / "bent.pt")
    with refused(r"none\.pt cannot be read .*no regular file"):
        load_preprocess(tmp_path / "none.pt")
