"""A test's effect drawn on a strip: its interval, every seed, and where it would be supported or
contradicted."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from rectifiers.results.claims import Tested

WIDTH = 320.0
MARGIN = 0.08  # of the range, on both sides
APART = 40.0  # the least distance of two labels; the later one is left out


@dataclass(frozen=True)
class Strip:
    """Places from 0 to WIDTH. spans: of `supported` and `contradicted`; ticks: the criterion's
    bounds and no effect."""

    effect: float
    low: float
    high: float
    seeds: Sequence[float]
    spans: Sequence[tuple[str, float, float]]
    ticks: Sequence[tuple[float, str]]


def strip(tested: Tested) -> Strip | None:
    """Return the drawing of a test, a ratio in logarithms; None where there is no effect with an
    interval."""
    test, found = tested.test, tested.finding
    if not (math.isfinite(found.effect) and math.isfinite(found.low) and math.isfinite(found.high)):
        return None
    seeds = [value for each in tested.measured if (value := test.effect(each)) is not None]
    none = [] if test.minus is None and test.over is None else [1.0 if test.over else 0.0]
    marks = sorted({*test.criterion.bounds(), *none})
    shown = [found.low, found.high, *seeds, *marks]
    if test.over:
        shown = [value for value in shown if value > 0]
    scale = math.log if test.over else float
    left, right = scale(min(shown)), scale(max(shown))
    reach = (1 + 2 * MARGIN) * (right - left or 1.0)
    start = (left + right - reach) / 2

    def place(value: float) -> float:
        if test.over and value <= 0:
            return 0.0
        return round(min(max((scale(value) - start) / reach, 0.0), 1.0) * WIDTH, 1)

    regions = (
        ("supported", test.criterion.supported),
        ("contradicted", test.criterion.contradicted),
    )
    spans = [
        (name, 0.0 if low == -math.inf else place(low), WIDTH if high == math.inf else place(high))
        for name, region in regions
        for low, high in region.spans()
    ]
    ticks = [(place(value), f"{value:g}") for value in marks]
    crowded = {later for earlier, later in pairwise(ticks) if later[0] - earlier[0] < APART}
    return Strip(
        place(found.effect),
        place(found.low),
        place(found.high),
        [place(value) for value in seeds],
        spans,
        [(x, "" if (x, label) in crowded else label) for x, label in ticks],
    )
