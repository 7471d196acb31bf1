"""Ranges of numbers, for annotations that `schema` checks. The library imports them without
pydantic."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated

LARGEST = 1e30  # of a number that float32 has to hold
LARGEST_PX = 8192  # of an image's shorter side
Schema = Mapping[str, object]  # pydantic's, of a type


@dataclass(frozen=True, kw_only=True)
class Range:
    """In an annotation of an int, a float or a list: the bounds that pydantic checks."""

    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None
    min_length: int | None = None

    def __get_pydantic_core_schema__(self, kind: type, handler: Callable[[type], Schema]) -> Schema:
        bounds = {name: bound for name, bound in asdict(self).items() if bound is not None}
        return {**handler(kind), **bounds}


Real = Annotated[float, Range(ge=-LARGEST, le=LARGEST)]
Positive = Annotated[float, Range(gt=0, le=LARGEST)]
NonNegative = Annotated[float, Range(ge=0, le=LARGEST)]
Count = Annotated[int, Range(ge=1)]
