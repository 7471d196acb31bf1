"""The cache of fitted preprocessing, addressed by a hash of everything that it depends on."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rectifiers.data import preprocess, transforms
from rectifiers.data.preprocess import Preprocess
from rectifiers.runtime.distributed import all_gather, broadcast_from_rank_zero
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import atomic_file, check_zip


def statistics_key(inputs: dict[str, Any]) -> str:
    """Return 16 hex digits of `inputs` (plain JSON types) and of the code that fits."""
    content = hashlib.blake2b(json.dumps(inputs, sort_keys=True).encode(), digest_size=8)
    for module in (preprocess, transforms):
        content.update(Path(str(module.__file__)).read_bytes())
    return content.hexdigest()


def load_or_fit(
    folder: Path,
    key: str,
    fit: Callable[[], Preprocess],
    is_whole: Callable[[], bool] = lambda: True,
) -> Preprocess:
    """Return the map in the cache under `key`, or fit it and store it. A damaged file is replaced
    by a new fit.

    Several processes fit together. is_whole: whether the fit has used every image; otherwise it is
    not stored."""
    path = folder / f"{key}.pt"

    def cached() -> Preprocess | None:
        try:
            return load(path)
        except InputError:
            return None

    def store() -> None:
        try:
            save(fitted, path)
        except OSError as error:
            raise InputError(
                f"cache_dir cannot be written ({error}); give another cache_dir"
            ) from error

    known = broadcast_from_rank_zero(cached)
    if known is not None:
        return known
    fitted = fit()
    if all(all_gather(is_whole())):
        broadcast_from_rank_zero(store)
    return fitted


def save(fitted: Preprocess, path: Path) -> None:
    """Write a fitted map, whole or not at all."""
    with atomic_file(path) as file:
        torch.save(fitted.fitted(), file)


def load(path: Path) -> Preprocess:
    """Return the map that `save` wrote.

    Raises:
        InputError: where the file is missing or damaged, by its zip's own checksums.
    """
    if not path.exists():
        raise InputError(
            f"{path} is missing; train.py with rerun=true fits the preprocessing again"
        )
    try:
        check_zip(path)
        parts = torch.load(path, weights_only=True)
        return Preprocess(**parts)
    except Exception as error:  # damage can raise anything
        raise InputError(
            f"{path} is damaged ({type(error).__name__}); train.py with rerun=true fits the "
            "preprocessing again"
        ) from error
