"""A benchmark of two quick tasks and a full one, and results that are made up."""

from collections.abc import Mapping, Sequence
from typing import Any

from rectifiers.benchmark.card import Card
from rectifiers.benchmark.definition import Benchmark
from rectifiers.benchmark.entries import EntryResults, RunResult
from rectifiers.runtime.schema import checked

RATES = (0.01, 0.03, 0.1)
SEARCH = (1000, 1001)
TASK = {
    "size": "quick",
    "title": "a task",
    "overrides": [],
    "rates": RATES,
    "seeds": 5,
    "science": "5c1e",
    "data": "da7a",
}
SMALL = checked(
    Benchmark,
    {
        "version": "v0",
        "search_seeds": SEARCH,
        "reach": 2.0,
        "admission": {"worse": "identity", "better": "relu"},
        "controls": ["identity"],
        "late": [],
        "ladder": [0.003, *RATES, 0.3],
        "always": [],
        "tasks": {"easy": TASK, "deep": TASK | {"depth": 50}, "large": TASK | {"size": "full"}},
    },
)


def run(task: str, rate: float, seed: int, error_pct: float | None, loss: float = 1.0) -> RunResult:
    """A run with this error on val and on test; None for one that diverged."""
    return RunResult(
        task=task,
        rate=rate,
        seed=seed,
        run="0" * 12,
        data="da7a",
        val_error_pct=error_pct,
        least_val_error_pct=error_pct,
        test_error_pct=error_pct,
        least_loss=loss,
    )


def searched(task: str, errors: Mapping[float, Sequence[float | None]]) -> list[RunResult]:
    """The runs of a search: by rate, the errors of its seeds; None for a run that failed."""
    return [
        run(task, rate, seed, error)
        for rate, row in errors.items()
        for seed, error in zip(SEARCH, row, strict=True)
    ]


def results(
    name: str, errors: Sequence[float | None], losses: Sequence[float] = (1.0,) * 5, **changes: Any
) -> EntryResults:
    """An entry that is complete on the quick tasks at a rate of 0.03, with these errors on `easy`
    and losses on `deep`."""
    search = {0.01: (50.0, 51.0), 0.03: (20.0, 21.0), 0.1: (40.0, 41.0)}
    runs = [*searched("easy", search), *searched("deep", search)]
    runs += [run("easy", 0.03, seed, error) for seed, error in enumerate(errors)]
    runs += [run("deep", 0.03, seed, 50.0, loss) for seed, loss in enumerate(losses)]
    entry = {
        "benchmark": SMALL.hash,
        "entry": name,
        "overrides": (f"activation={name}",),
        "refused": {},
        "runs": tuple(runs),
    }
    return EntryResults(**entry | changes)


LAYER = {
    "fan_in": 64,
    "response_second": {"n": 5, "mean": 0.1, "low": -0.2, "high": 0.4},
    "gradient_second": None,
    "theory": {"response": 0.5, "gradient": 0.25, "width_drift": -0.1, "width_spread": 1.0},
}
THEORY: dict[str, Any] = {
    "words": "The gain is 1.48 and χ = 1.06.",
    "markdown": "The gain is 1.48 and χ = 1.06.",
    "limits": {"explosion": 281},
    "weight_variance": 2.2,
    "gain": 1.48,
    "chi": 1.06,
    "map_slope": 1.08,
    "fixed_point": "repels",
}
RATIO = {"median": 1.8, "low": 1.6, "high": 1.9, "rounds": 15}
PARTS = {
    "theory": THEORY,
    "init": {"layers": [LAYER] * 5},
    "cost": {"seconds_ratio": RATIO, "bytes_ratio": 1.5},
}


def card(
    entry: EntryResults,
    *baselines: EntryResults,
    better: EntryResults | None = None,
    **failed: str,
) -> Card:
    """A card of which everything was measured but what `failed`, for the reasons given."""
    parts = {name: part for name, part in PARTS.items() if name not in failed}
    entries = {base.entry: base for base in baselines}
    return Card(entry, entries, parts, failed, "make card ACTIVATION=mish", better)
