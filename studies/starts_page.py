"""Write results/STARTS.md from the numbers that studies/starts.py measured."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from rectifiers.results.documents import markdown, write_or_check
from rectifiers.results.statistics import mean_of
from rectifiers.runtime.console import cli_errors
from rectifiers.runtime.errors import InputError

NUMBERS = Path(__file__).parents[1] / "results" / "starts.json"
Results = dict[str, Any]  # by network, or by start

STEPS, EARLY, SHORT = 2000, 300, 1000  # of a run, of its early loss, and of a search
WARMUP, DECAY = 50, 0.05
SEARCHED, JUDGED = (1000, 1001), (0, 1, 2, 3, 4)  # seeds
EXAMPLES, TEXTS, CONTEXT = 32, 8, 64
OURS, DEFAULT = "`initialize`", "torch's default"
HEAD = f"""# A model's own start, and `initialize`

Made by `python studies/starts.py`.

Five small networks, as practitioners build them, are trained from three starts: what torch's
constructors draw, the rule that the authors of the network gave, and `initialize(model, batch)`.
The protocol was fixed before the first run:

- AdamW (weight decay {DECAY}, without biases, norms and slopes), {WARMUP} steps of warm-up, then a
  cosine to a tenth; {STEPS:,} steps of {EXAMPLES} images, or of {TEXTS} pieces of {CONTEXT} bytes.
- The learning rate of each start is the one with the lowest held-out loss after {SHORT:,} steps
  with a cosine of their own, the mean over {len(SEARCHED)} seeds. The grid has factors of
  sqrt(10), and grows until the best rate has a worse neighbour on both sides.
- Then {len(JUDGED)} other seeds run at that rate. Losses are means over them on held-out examples
  that are always the same, at {EARLY} and at {STEPS:,} steps of the same run.
- "minus `initialize`" is paired by seed, with its 95 % interval; above 0, `initialize` is better.
"""


def rows(starts: Results) -> list[list[str]]:
    """Return a row per start: its rate, and its losses beside those of `initialize`."""
    ours = starts[OURS]["runs"]
    lines = []
    for label, start in starts.items():
        cells = [label, f"{start['rate']:.2g}"]
        for moment in (0, 1):
            losses = [run[moment] for run in start["runs"]]
            gaps = [loss - run[moment] for loss, run in zip(losses, ours, strict=True)]
            cells += [f"{fmean(losses):.4g}", "" if label == OURS else interval(gaps)]
        lines.append(cells)
    return lines


def interval(gaps: Sequence[float]) -> str:
    mean = mean_of(gaps)
    return f"{mean.mean:+.3g} ({mean.low:+.3g} to {mean.high:+.3g})"


def grid(label: str, losses: dict[str, float]) -> str:
    return f"- {label}: " + ", ".join(f"{loss:.4g} at {rate}" for rate, loss in losses.items())


def page(results: Results) -> str:
    """results: by network, `what` it is, and by start the search's losses, the rate and the runs,
    each (loss at EARLY steps, loss at the end)."""
    head = ["start", "rate", f"loss at {EARLY}", f"minus {OURS}", f"at {STEPS:,}", f"minus {OURS}"]
    parts = [HEAD]
    for network in results.values():
        starts = network["starts"]
        grids = "\n".join(grid(label, start["search"]) for label, start in starts.items())
        table = markdown(head, rows(starts))
        parts.append(f"## {network['what']}\n\n{table}\nThe search, by rate:\n\n{grids}\n")
    return "\n".join(parts)


def read_numbers() -> Results:
    """Return what was measured so far, by network."""
    return json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}


def write_page(*, check: bool = False) -> None:
    numbers = read_numbers()
    if not numbers:
        raise InputError("results/starts.json has no numbers yet; run python studies/starts.py")
    pages = {NUMBERS.with_name("STARTS.md"): page(numbers)}
    write_or_check(pages, check, "python studies/starts_page.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 if the page is stale")
    options = parser.parse_args()
    with cli_errors():
        write_page(check=options.check)


if __name__ == "__main__":
    main()
