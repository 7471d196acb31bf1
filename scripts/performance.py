"""Make docs/results/performance.md from results/bench/*.json.

python scripts/performance.py           # write it
python scripts/performance.py --check   # exit with 1 where it is stale
"""

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rectifiers.results.generated import write_or_check
from rectifiers.runtime.programs import one_sentence

ROOT = Path(__file__).parents[1]
RESULTS, OUT = ROOT / "results" / "bench", ROOT / "docs" / "results" / "performance.md"
SECTIONS = {  # the title of each bench, in the order of the document
    "prelu": "PReLU",
    "step": "A training step",
    "layouts": "The order of maps",
    "layers": "A step's layers",
    "memory": "Memory",
    "overhead": "What stands around a step",
    "small": "Small runs",
    "frameworks": "Other libraries",
    "scaling": "Several processes",
    "windows": "Dense testing",
    "pipeline": "Reading images",
    "responses": "Listening to responses",
    "startup": "Start-up",
}


def spread(ratio: dict[str, float]) -> str:
    """Return a ratio with its quartiles."""
    return f"{ratio['median']:.2f} ({ratio['q25']:.2f} to {ratio['q75']:.2f})"


def percent(shares: Sequence[float]) -> str:
    """Return the median of shares with their range and number."""
    least, middle, most = (100 * f(shares) for f in (min, statistics.median, max))
    return f"{middle:.2f} % ({least:.2f} to {most:.2f} %, n = {len(shares)})"


def macros() -> Any:
    """Return the macros of the template, one per bench."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined
    )
    environment.filters |= {"spread": spread, "percent": percent, "median": statistics.median}
    return environment.get_template("performance.md.j2").module


def section(question: str, numbers: dict[str, Any]) -> str:
    """Return what the document says of one bench, from its numbers in
    results/bench/<machine>.json."""
    rounds = f", {numbers['rounds']} rounds" if "rounds" in numbers else ""
    origin = f"torch {numbers['versions']['torch']}, code {numbers['code']}{rounds}"
    text = getattr(macros(), question)(numbers)
    return (
        f"### {SECTIONS[question]}\n\n{text}\n\n`python scripts/bench/{question}.py`; {origin}.\n"
    )


def document() -> str:
    """Return the whole document; what has not been measured on a machine is left out."""
    parts = [macros().head()]
    for path in sorted(RESULTS.glob("*.json")):
        measured = json.loads(path.read_text())
        machine, questions = measured["machine"], measured["questions"]
        device = "" if machine["device"] == "cpu" else f"{machine['device']}, "
        parts.append(
            f"## {device}{machine['cores']} cores of {machine['cpu']}, {machine['instructions']}\n"
        )
        parts += [
            section(question, questions[question]) for question in SECTIONS if question in questions
        ]
    return "\n".join([*parts, macros().tail()])


if __name__ == "__main__":
    with one_sentence():
        write_or_check(
            {OUT: document()}, sys.argv[1:] == ["--check"], "python scripts/performance.py"
        )
