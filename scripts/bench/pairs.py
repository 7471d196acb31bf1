"""Interleaved rounds of several ways to do the same, and what can be said of their ratios."""

import json
import os
import random
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from rectifiers.runs.provenance import provenance
from rectifiers.runtime.files import write_text

RESULTS = Path(__file__).parents[2] / "results" / "bench"


def interleave(
    ways: dict[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.process_time
) -> dict[str, list[float]]:
    """Return seconds of each way and round, in random order within a round; a first round warms up and is dropped."""
    if rounds < 2:
        sys.exit(f"error: rounds={rounds} gives no spread; give 2 or more")
    order = random.Random(0)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for n in track(range(rounds + 1), "rounds", console=Console(stderr=True), transient=True):
        for name in order.sample(list(ways), len(ways)):
            started = clock()
            ways[name]()
            if n > 0:
                seconds[name].append(clock() - started)
    return seconds


def ratios(seconds: dict[str, list[float]], name: str, other: str) -> dict[str, float]:
    """How many times `name` takes what `other` takes: the median of the rounds' ratios, and their quartiles."""
    values = [a / b for a, b in zip(seconds[name], seconds[other], strict=True)]
    low, middle, high = statistics.quantiles(values, n=4)
    return {"median": middle, "q25": low, "q75": high}


def show(title: str, rows: list[tuple[str, ...]], columns: tuple[str, ...]) -> None:
    """Print a table."""
    table = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def keep(question: str, told: dict[str, Any], device: str = "cpu") -> None:
    """Put what was measured into results/bench/<machine>.json, with its code and versions.

    device: cpu, or what `torch.cuda.get_device_name` says.
    """
    found = provenance("", "", device, 1)
    machine = {key: found["machine"][key] for key in ("system", "cpu", "cores", "device")}
    name = re.sub(r"\W+", "-", device if device != "cpu" else machine["cpu"].replace("(R)", "")).strip("-").lower()
    path = RESULTS / f"{name}.json"
    kept = json.loads(path.read_text()) if path.is_file() else {"machine": machine, "questions": {}}
    about = {"code": found["code"], "versions": found["versions"], "load_average": os.getloadavg()[0]}
    kept["questions"] = dict(sorted({**kept["questions"], question: {**told, **about}}.items()))
    write_text(path, json.dumps(kept, indent=1) + "\n")
    print(path)


def spread(ratio: dict[str, float]) -> str:
    """Return a ratio with its quartiles."""
    return f"{ratio['median']:.2f} ({ratio['q25']:.2f} to {ratio['q75']:.2f})"


def median_of(seconds: dict[str, list[float]], images: int) -> dict[str, float]:
    """Return the median milliseconds an image of each way."""
    return {name: 1e3 * statistics.median(taken) / images for name, taken in seconds.items()}
