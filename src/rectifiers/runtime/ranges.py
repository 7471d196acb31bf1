"""Ranges of numbers, for annotations that `schema` checks."""

from typing import Annotated

from annotated_types import Interval as Range

__all__ = ["LARGEST", "Count", "NonNegative", "Positive", "Range", "Real"]

LARGEST = 1e30  # of a number that float32 has to hold
LARGEST_PX = 8192  # of an image's shorter side

Real = Annotated[float, Range(ge=-LARGEST, le=LARGEST)]
Positive = Annotated[float, Range(gt=0, le=LARGEST)]
NonNegative = Annotated[float, Range(ge=0, le=LARGEST)]
Count = Annotated[int, Range(ge=1)]
