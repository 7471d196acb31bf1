"""Tables and numbers as Markdown."""

from collections.abc import Iterable, Sequence

from rectifiers.reporting.statistics import Mean


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose first column is text and whose others are numbers."""
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def interval(mean: Mean, digits: int = 2, sign: str = "") -> str:
    """Return a mean with its interval and n."""
    text = f"{mean.mean:{sign}.{digits}f}"
    if mean.low is None:
        return f"{text} (n = 1)"
    return f"{text} ({mean.low:{sign}.{digits}f} to {mean.high:{sign}.{digits}f}, n = {mean.n})"
