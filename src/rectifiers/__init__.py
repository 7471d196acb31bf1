"""Rectifiers and their initialisation, after He, Zhang, Ren and Sun (2015).

The names in `PUBLIC` are the library, which needs only torch and numpy. Everything else needs the
extras of `pip install rectifiers[all]`."""

import pkgutil
from typing import Any

__version__ = "1.0.0"

PUBLIC = {
    "activations": "activations",
    "initializers": "initializers",
    "PReLU": "prelu:PReLU",
    "swap_prelu": "prelu:swap_prelu",
    "parameter_groups": "parameters:parameter_groups",
    "Moments": "quadrature:Moments",
    "moments": "gains:moments",
    "gain": "gains:gain",
    "he_normal_": "gains:he_normal_",
    "audit": "initialization.audit:audit",
    "dead_units": "initialization.audit:dead_units",
    "initialize": "initialization.initialize:initialize",
    "stability": "theory.stability:stability",
    "InputError": "runtime.errors:InputError",
}
__all__ = sorted(PUBLIC)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the command line answers before torch is
    loaded."""
    if name not in PUBLIC:
        raise AttributeError(f"module 'rectifiers' has no attribute {name!r}")
    return pkgutil.resolve_name(f"rectifiers.{PUBLIC[name]}")


def __dir__() -> list[str]:
    return __all__
