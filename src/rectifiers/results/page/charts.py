"""Charts as data, which the page's script draws."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rectifiers.results.statistics import Mean


@dataclass(frozen=True)
class Series:
    """One line of a chart. low, high: the interval of each value, or None; at: what a point is
    called."""

    name: str
    x: Sequence[float | str]
    y: Sequence[float | None]
    low: Sequence[float | None]
    high: Sequence[float | None]
    at: Sequence[str] = ()


@dataclass(frozen=True)
class Chart:
    """Numbers to draw, with a sentence that says what is drawn to readers who do not see it."""

    title: str
    description: str
    x: str
    y: str
    series: Sequence[Series]
    scale: Literal["linear", "log", "names"] = "linear"  # of x
    band: bool = False  # intervals as a band and not as bars


def series(name: str, points: Iterable[tuple[float | str, Mean]], at: Sequence[str] = ()) -> Series:
    """Return a line through points; its numbers are kept to five digits."""
    places, means = [], []
    for place, mean in points:
        places.append(place)
        means.append(mean)
    y, low, high = (
        [rounded(getattr(mean, end), 5) for mean in means] for end in ("mean", "low", "high")
    )
    return Series(name, places, y, low, high, at)


def rounded(value: float | None, digits: int = 4) -> float | None:
    """Round to significant digits: a page of thousands of curves is made of them."""
    return None if value is None else float(f"{value:.{digits}g}")
