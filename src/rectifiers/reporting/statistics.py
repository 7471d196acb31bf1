"""Intervals for what was measured."""

import math
from statistics import NormalDist

Z_95 = NormalDist().inv_cdf(0.975)


def error_interval_pct(errors: int, seen: int) -> tuple[float, float]:
    """Return the 95 % Wilson interval, in percent, of an error rate from `errors` wrong answers on `seen` images.

    It speaks of the choice of test images for this one network, not of the spread over seeds.
    """
    rate, z2 = errors / seen, Z_95**2 / seen
    centre = (rate + z2 / 2) / (1 + z2)
    half = Z_95 / (1 + z2) * math.sqrt(rate * (1 - rate) / seen + z2 / (4 * seen))
    return 100 * max(0.0, centre - half), 100 * min(1.0, centre + half)
