"""Ranges of numbers, for annotations that `schema` checks. Nothing is imported, so that `nn` needs
torch alone."""

from dataclasses import dataclass
from typing import Annotated, Any

LARGEST = 1e30  # of a number that float32 has to hold


@dataclass(frozen=True)
class Range:
    """The bounds of a number: at least `ge`, above `gt`, at most `le`, below `lt`."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def given(self) -> dict[str, float]:
        """Return the bounds that there are."""
        return {name: bound for name, bound in vars(self).items() if bound is not None}

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Tell pydantic, which calls this, what to check."""
        return {**handler(source), **self.given()}


Real = Annotated[float, Range(ge=-LARGEST, le=LARGEST)]
Positive = Annotated[float, Range(gt=0, le=LARGEST)]
NonNegative = Annotated[float, Range(ge=0, le=LARGEST)]
Count = Annotated[int, Range(ge=1)]
