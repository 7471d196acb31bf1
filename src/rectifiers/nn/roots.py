"""Roots of functions of one number, without scipy: the library needs torch and numpy alone."""

from collections.abc import Callable


def root_between(function: Callable[[float], float], low: float, high: float, *, tolerance: float = 1e-12) -> float:
    """Return where a continuous `function` changes its sign between `low` and `high`, by bisection.

    tolerance: of the result, relative to 1 or to its own size.

    Raises:
        ValueError: where both ends have one sign.

    >>> f"{root_between(lambda x: x**2 - 2, 0, 2):.10f}"
    '1.4142135624'
    """
    is_positive = function(low) > 0
    if is_positive == (function(high) > 0):
        raise ValueError(f"the function has one sign at {low:g} and at {high:g}, so no root is known between them")
    while abs(high - low) > tolerance * max(1.0, abs(low)):
        middle = (low + high) / 2
        if (function(middle) > 0) == is_positive:
            low = middle
        else:
            high = middle
    return (low + high) / 2
