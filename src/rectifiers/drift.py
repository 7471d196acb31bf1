"""A warning of activations whose variance map drives deep chains away from the variance that they
start with."""

import math
import warnings
from collections.abc import Sequence
from contextlib import suppress

from rectifiers.activations import moments
from rectifiers.runtime.errors import InputError
from rectifiers.sites import Site

DRIFT_LIMIT = 10.0


def _drift(site: Site) -> float:
    """Return the variance map's slope at the activation after `site`; 1 where there is none or it
    is unknown."""
    with suppress(InputError):
        slope = moments(site.after, site.channels).map_slope if site.after else 1.0
        return slope if math.isfinite(slope) else 1.0
    return 1.0


def warn_of_drift(sites: Sequence[Site]) -> str | None:
    """Warn where the activations' variance map repels so strongly that a deep plain net leaves its
    fixed point.

    The warning concerns the activation and the depth, whatever the initialiser. Even where the gain
    is right layer by layer, each layer multiplies a relative error of the variance by `map_slope`
    (1.14 for GELU, 1.17 for SiLU), and random weights of finite width always cause one.

    Returns the sentence, or None.
    """
    drift, name = 1.0, ""
    for site in sites:
        slope = _drift(site)
        if slope > 1:
            drift, name = drift * slope, type(site.after).__name__
    if drift <= DRIFT_LIMIT:
        return None
    sentence = (
        f"{name} has a variance map whose fixed point, that of He's gain, repels: over "
        f"{len(sites)} layers without "
        f"normalisation a small error of the variance grows by up to {drift:.3g}, even from "
        "init=he; "
        "use model.norm=batch, fewer layers, or a rectifier"
    )
    warnings.warn(sentence, stacklevel=2)
    return sentence
