"""Rectifiers and the initialisation that trains them, after He, Zhang, Ren and Sun (2015)."""

import importlib
from typing import Any

__version__ = "0.1.0"

PUBLIC_MODULES = ("activations", "initializers")


def __getattr__(name: str) -> Any:
    """Import `rectifiers.activations` and `rectifiers.initializers` when they are first used: they need torch."""
    if name in PUBLIC_MODULES:
        return importlib.import_module(f"rectifiers.nn.{name}")
    raise AttributeError(f"module 'rectifiers' has no attribute {name!r}")
