"""The cache of fitted preprocessing, addressed by a hash of everything it depends on."""

import hashlib
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rectifiers.config import InputError
from rectifiers.data import preprocess, transforms
from rectifiers.data.preprocess import Preprocess
from rectifiers.runs.record import atomic_file


def statistics_key(inputs: dict[str, Any]) -> str:
    """Return 16 hex digits of `inputs` (plain JSON types) and of the code that fits."""
    content = hashlib.blake2b(json.dumps(inputs, sort_keys=True).encode(), digest_size=8)
    for module in (preprocess, transforms):
        content.update(Path(str(module.__file__)).read_bytes())
    return content.hexdigest()


def load_or_fit(folder: Path, key: str, fit: Callable[[], Preprocess]) -> Preprocess:
    """Return the map kept under `key`, or fit it and keep it. A damaged file is fitted again and replaced."""
    path = folder / f"{key}.pt"
    try:
        return Preprocess(**torch.load(path, weights_only=True))
    except (OSError, RuntimeError, EOFError, TypeError, pickle.UnpicklingError):
        fitted = fit()
    try:
        save(fitted, path)
    except OSError as fault:
        raise InputError(f"cache_dir cannot be written ({fault}); give another cache_dir") from fault
    return fitted


def save(fitted: Preprocess, path: Path) -> None:
    """Write a fitted map; whole or not at all."""
    with atomic_file(path) as file:
        torch.save(fitted.fitted(), file)
