"""What a section of the page is made of."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from rectifiers.results.claims import Answer
from rectifiers.results.layout import Table
from rectifiers.results.listing import Found
from rectifiers.results.numerical_floor import NumericalFloor
from rectifiers.results.statistics import Mean
from rectifiers.runs.record import TrainingRecord


@dataclass(frozen=True)
class Material:
    """What sections are made from: all runs, the tables of those that belong into tables, and the claims' answers."""

    found: Sequence[Found]
    tables: Sequence[Table]
    answers: Sequence[Answer] = ()
    floor: NumericalFloor | None = None

    def trained(self) -> list[TrainingRecord]:
        """Return a record per run that trained for more than an epoch; the user's own where there are two."""
        first = {each.record.run: each.record for each in reversed(self.found)}
        found = [first.pop(each.record.run) for each in self.found if each.record.run in first]
        return [record for record in found if isinstance(record, TrainingRecord) and _drawn(record)]

    def of_kind(self, *kinds: str) -> list[Table]:
        """Return the tables of some kinds, in the order of TABLES.md."""
        return [table for table in self.tables if table.kind in kinds]


def _drawn(record: TrainingRecord) -> bool:
    return record.status == "finished" and record.choices.get("debug") is None and record.epochs > 1


@dataclass
class Series:
    """One line of a chart. low, high: the interval of each value, or None; at: what a point is called."""

    name: str
    x: list[float | str] = field(default_factory=list)
    y: list[float | None] = field(default_factory=list)
    low: list[float | None] = field(default_factory=list)
    high: list[float | None] = field(default_factory=list)
    at: list[str] = field(default_factory=list)

    def add(self, x: float | str, y: Mean, at: str | None = None) -> None:
        """Append a point; its numbers are kept to five digits."""
        self.x.append(x)
        for values, value in ((self.y, y.mean), (self.low, y.low), (self.high, y.high)):
            values.append(None if value is None else short(value, 5))
        if at is not None:
            self.at.append(at)


@dataclass(frozen=True)
class Chart:
    """Numbers to draw, with the sentence that says what is drawn to who does not see it."""

    title: str
    description: str
    x: str
    y: str
    series: Sequence[Series]
    scale: Literal["linear", "log", "names"] = "linear"  # of x
    band: bool = False  # intervals as a band and not as bars

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as the page's script reads it."""
        return asdict(self)


@dataclass(frozen=True)
class Folded:
    """Tables and charts behind a line that opens them."""

    summary: str
    parts: Sequence["Table | Chart"]


Part = Table | Chart | Folded


@dataclass(frozen=True)
class Block:
    """A section: an anchor, a heading, a paragraph, and what follows it."""

    anchor: str
    title: str
    lead: str
    parts: Sequence[Part]


def short(value: float, digits: int = 4) -> float:
    """Round to significant digits: a page of thousands of curves is made of them."""
    return float(f"{value:.{digits}g}")
