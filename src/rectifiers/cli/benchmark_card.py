"""The measured parts of a card, each kept as soon as it is done, so that an interrupted card goes
on."""

import json
import os
from collections.abc import Callable
from typing import Any

from rectifiers.cli.benchmark import Entry, refusal
from rectifiers.results.benchmark.card import Card
from rectifiers.results.benchmark.definition import Task, benchmark
from rectifiers.runs.identity import run_id
from rectifiers.runs.provenance import code_fingerprint
from rectifiers.runtime.console import printable
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CHECKOUT, git, read_bytes, write_text
from rectifiers.runtime.processor import name as processor_name
from rectifiers.runtime.signals import deferring_signals, stop_if_requested

DEEP, FOR_COST = "deep50", "chain14"  # the tasks whose network starts, and whose steps are timed
LARGEST_BYTES = 2**24


def measure(entry: Entry) -> Card:
    """Measure what a card holds besides the runs; what an entry cannot do stands in `failed`, with
    the reason.

    Raises:
        Stopped: where a signal asked for it; the same call goes on with the next part.
    """
    from rectifiers.training.lightning import isolated

    parts = {"paper": _paper, "start": _start, "trains": _trains, "cost": _cost}
    found: dict[str, Any] = dict.fromkeys(parts)
    failed = {}
    config = entry.configuration(benchmark().tasks[DEEP])[0]
    with deferring_signals(), isolated(config):
        reason = refusal(config)
        for name, make in parts.items():
            try:
                if reason is not None:
                    raise InputError(reason)
                found[name] = _kept(entry, name, make)
            except InputError as error:
                failed[name] = printable(str(error))
            stop_if_requested("while the card was measured")
    return Card(
        benchmark=benchmark().hash,
        entry=entry.name,
        overrides=entry.overrides,
        code=code_fingerprint(),
        git_sha=git("rev-parse", "HEAD", at=CHECKOUT) if CHECKOUT else None,
        machine=f"{processor_name()}, {os.cpu_count()} cores",
        **found,
        failed=failed,
    )


def _kept(entry: Entry, name: str, make: Callable[[Entry], dict[str, Any]]) -> dict[str, Any]:
    """Return a part from the cache, or make it and keep it there: by the entry's settings and the
    code."""
    config = entry.configuration(benchmark().tasks[DEEP])[0]
    asked = {
        "entry": config.activation.as_dict(),
        "init": config.init.as_dict(),
        "code": code_fingerprint(),
    }
    path = config.cache_dir / "cards" / f"{name}-{run_id(asked)}.json"
    if path.is_file():
        found: dict[str, Any] = json.loads(read_bytes(path, LARGEST_BYTES))
        return found
    made = make(entry)
    write_text(path, json.dumps(made, allow_nan=False))
    return made


def _chain(entry: Entry, depth: int) -> Any:
    """The configuration of a chain of `depth` layers, otherwise as the deep task has it."""
    task = benchmark().tasks[DEEP]
    overrides = [each for each in task.overrides if not each.startswith("model.depth=")]
    changed: Task = task.model_copy(update={"overrides": (*overrides, f"model.depth={depth - 1}")})
    return entry.configuration(changed)[0]


def _paper(entry: Entry) -> dict[str, Any]:
    from rectifiers.analysis.card.paper import theory_section
    from rectifiers.analysis.card.trainability import Chain

    chain = Chain(entry.configuration(benchmark().tasks[DEEP])[0])
    return theory_section(chain.activation, chain.weight_variance)


def _start(entry: Entry) -> dict[str, Any]:
    from rectifiers.analysis.card.start import init_section

    return init_section(entry.configuration(benchmark().tasks[DEEP])[0])


def _trains(entry: Entry) -> dict[str, Any]:
    from rectifiers.analysis.card.trainability import MAP_DEPTHS, RATE_DEPTHS, trainability_section

    return trainability_section(
        {depth: _chain(entry, depth) for depth in sorted({*MAP_DEPTHS, *RATE_DEPTHS})}
    )


def _cost(entry: Entry) -> dict[str, Any]:
    from rectifiers.analysis.card.cost import BASELINE, cost

    task, relu = benchmark().tasks[FOR_COST], Entry((f"activation={BASELINE}",), entry.places)
    return cost({"entry": entry.configuration(task)[0], BASELINE: relu.configuration(task)[0]})
