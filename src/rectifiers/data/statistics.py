"""The cache of fitted preprocessing, addressed by a hash of everything it depends on."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rectifiers.data import preprocess, transforms
from rectifiers.data.preprocess import Preprocess
from rectifiers.runtime.distributed import all_gather, broadcast_from_rank_zero
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import atomic_file


def statistics_key(inputs: dict[str, Any]) -> str:
    """Return 16 hex digits of `inputs` (plain JSON types) and of the code that fits."""
    content = hashlib.blake2b(json.dumps(inputs, sort_keys=True).encode(), digest_size=8)
    for module in (preprocess, transforms):
        content.update(Path(str(module.__file__)).read_bytes())
    return content.hexdigest()


def load_or_fit(
    folder: Path, key: str, fit: Callable[[], Preprocess], is_whole: Callable[[], bool] = lambda: True
) -> Preprocess:
    """Return the map kept under `key`, or fit it and keep it. A damaged file is fitted again and replaced.

    Several processes fit together. is_whole: whether the fit has seen every image; one that has not is not kept.
    """
    path = folder / f"{key}.pt"

    def kept() -> Preprocess | None:
        try:
            return load(path)
        except InputError:
            return None

    def keep() -> None:
        try:
            save(fitted, path)
        except OSError as fault:
            raise InputError(f"cache_dir cannot be written ({fault}); give another cache_dir") from fault

    found = broadcast_from_rank_zero(kept)
    if found is not None:
        return found
    fitted = fit()
    if all(all_gather(is_whole())):
        broadcast_from_rank_zero(keep)
    return fitted


def save(fitted: Preprocess, path: Path) -> None:
    """Write a fitted map and its checksum; whole or not at all."""
    parts = fitted.fitted()
    with atomic_file(path) as file:
        torch.save({**parts, "checksum": _checksum(parts)}, file)


def load(path: Path) -> Preprocess:
    """Return the map that `save` wrote.

    Raises:
        InputError: where the file is missing, or is not what was written.
    """
    if not path.exists():
        raise InputError(f"{path} is missing; run again with rerun=true to fit the preprocessing anew")
    try:
        parts = torch.load(path, weights_only=True)
        if parts.pop("checksum") != _checksum(parts):
            raise ValueError("its checksum does not fit")
        return Preprocess(**parts)
    except Exception as fault:  # damage fails in as many ways as there are bytes
        raise InputError(
            f"{path} is damaged ({type(fault).__name__}); run again with rerun=true to fit the preprocessing anew"
        ) from fault


def _checksum(parts: Mapping[str, Tensor | bool | None]) -> str:
    """A hash of names, dtypes, shapes and bytes."""
    content = hashlib.blake2b(digest_size=16)
    for name, value in sorted(parts.items()):
        if isinstance(value, Tensor):
            content.update(f"{name} {value.dtype} {tuple(value.shape)} ".encode())
            content.update(value.flatten().view(torch.uint8).numpy().tobytes())
        else:
            content.update(f"{name} {value!r} ".encode())
    return content.hexdigest()
