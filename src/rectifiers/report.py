"""What `initialize` and `propagation` return: tables of a network's layers, in text, Markdown and
HTML."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

Row = Sequence[str]


def table(head: Row, rows: Sequence[Row]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


class Report(ABC):
    """Rows of layers, which print as an aligned table and show as HTML in a notebook."""

    @property
    def title(self) -> str:
        """What stands above the table."""
        return ""

    @property
    @abstractmethod
    def head(self) -> Row:
        """The names of the columns."""

    @abstractmethod
    def rows(self) -> list[Row]:
        """Return a row per layer."""

    def notes(self) -> list[str]:
        """Return what stands below the table."""
        return []

    def to_markdown(self) -> str:
        """Return the table in Markdown, and its notes as a list."""
        notes = "\n".join(f"- {note}" for note in self.notes())
        parts = (self.title, table(self.head, self.rows()), notes)
        return "\n\n".join(part for part in parts if part)

    def __str__(self) -> str:
        columns = [
            _aligned(name, column)
            for name, column in zip(self.head, zip(*self.rows(), strict=True), strict=False)
        ]
        lines = ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]
        return "\n".join([*filter(None, [self.title]), *lines, *self.notes()])

    def _repr_html_(self) -> str:
        def cells(line: Row, tag: str) -> str:
            return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in line)}</tr>"

        body = "".join(cells(row, "td") for row in self.rows())
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes())
        title = f"<p>{escape(self.title)}</p>" if self.title else ""
        return f"{title}<table>{cells(self.head, 'th')}{body}</table><ul>{notes}</ul>"


def _aligned(name: str, cells: Row) -> list[str]:
    """Return a column with its name, numbers to the right and words to the left."""
    width = max(map(len, (name, *cells)))
    is_numeric = all(cell.replace("-", "").replace(".", "")[:1].isdigit() for cell in cells if cell)
    return [text.rjust(width) if is_numeric else text.ljust(width) for text in (name, *cells)]


@dataclass(frozen=True)
class LayerInit:
    """One layer that was filled.

    reads: what arrives at it first, in words, and `second_in`, E[x^2] of it. feeds: what reads its
    responses. share: the part of E[y^2] = 1 that it is to make, below 1 at the end of a residual
    branch. std: asked of the rule; std_drawn, mean_drawn: of the weights. predicted, measured:
    E[y^2] of its responses on the example (None within attention)."""

    layer: str
    shape: tuple[int, ...]
    fan_in: int
    fan_out: int
    reads: str
    second_in: float
    feeds: str
    share: float
    std: float
    std_drawn: float
    mean_drawn: float
    predicted: float | None
    measured: float | None


@dataclass(frozen=True)
class InitReport(Report):
    """What `initialize` did: the layers it filled, in the order of their use, and `left`, by name
    why it did not."""

    rule: str
    layers: tuple[LayerInit, ...]
    left: dict[str, str]

    @property
    def title(self) -> str:
        return f"Initialised by {self.rule}."

    @property
    def head(self) -> Row:
        columns = ("layer", "shape", "reads", "E[x²]", "feeds", "share", "std", "drawn")
        return (*columns, "E[y²] predicted", "measured")

    def rows(self) -> list[Row]:
        return [
            (
                row.layer,
                "x".join(map(str, row.shape)),
                row.reads,
                f"{row.second_in:.3g}",
                row.feeds,
                *(f"{number:.4g}" for number in (row.share, row.std, row.std_drawn)),
                *("" if n is None else f"{n:.3g}" for n in (row.predicted, row.measured)),
            )
            for row in self.layers
        ]

    def notes(self) -> list[str]:
        return [f"{name}: left as it was; {reason}" for name, reason in self.left.items()]

    __repr__ = Report.__str__


@dataclass(frozen=True)
class Propagation(Report):
    """E[y^2] of the responses of every layer, by the network's weights as they are: predicted and
    measured."""

    responses: dict[str, tuple[float, float]]

    @property
    def head(self) -> Row:
        return ("layer", "E[y²] predicted", "measured")

    def rows(self) -> list[Row]:
        return [
            (name, f"{predicted:.4g}", f"{measured:.4g}")
            for name, (predicted, measured) in self.responses.items()
        ]

    __repr__ = Report.__str__
