"""Roots of functions of one number, without scipy: the library needs torch and numpy alone."""

import math
from collections.abc import Callable


def root_between(
    function: Callable[[float], float], low: float, high: float, *, tolerance: float = 1e-12
) -> float:
    """Return where a continuous, finite `function` changes its sign between `low` and `high`, by
    Ridders' method.

    tolerance: of the result, relative to 1 or to its own size.

    Raises:
        ValueError: where both ends have one sign.

    >>> f"{root_between(lambda x: x**2 - 2, 0, 2):.10f}"
    '1.4142135624'
    """
    at_low, at_high = function(low), function(high)
    if at_low == 0 or at_high == 0:
        return low if at_low == 0 else high
    if not at_low * at_high < 0:
        raise ValueError(
            f"the function is {at_low:g} at {low:g} and {at_high:g} at {high:g}, so no root "
            "lies between"
        )
    found = math.inf
    while True:
        middle = (low + high) / 2
        at_middle = function(middle)
        # the root of the line through the three points, after a factor exp(x) has made them lie on
        # one
        step = (
            (middle - low)
            * math.copysign(1, at_low)
            * at_middle
            / math.sqrt(at_middle**2 - at_low * at_high)
        )
        before, found = found, middle + step
        at_found = function(found)
        if at_found == 0 or abs(found - before) <= tolerance * max(1.0, abs(found)):
            return found
        if at_middle * at_found < 0:
            low, at_low, high, at_high = middle, at_middle, found, at_found
        elif at_low * at_found < 0:
            high, at_high = found, at_found
        else:
            low, at_low = found, at_found
