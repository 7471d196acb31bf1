"""A benchmark of two tasks of seconds, and results that are made up."""

from collections.abc import Sequence

from rectifiers.results.benchmark.definition import Benchmark
from rectifiers.results.benchmark.entries import EntryResults, Origin, RunResult
from rectifiers.runtime.schema import checked

TASK = {"size": "quick", "title": "a task", "overrides": [], "rates": [0.01, 0.1], "science": "5c1e", "data": "da7a"}
ORIGIN = Origin(code="c0de", git_sha="0123456789", git_dirty=False, data="da7a", machine="a processor", torch="2")
SMALL = checked(
    Benchmark,
    {
        "version": "v0", "seeds": 5, "search_seed": 1000, "always": [],
        "tasks": {"easy": TASK, "deep": TASK | {"reach": 2.0}, "large": TASK | {"size": "full"}},
    },
)  # fmt: skip


def run(task: str, rate: float, seed: int, error_pct: float | None, loss: float = 1.0) -> RunResult:
    """A run with this error on val and on 1,000 test images; None for one that diverged."""
    return RunResult(
        task=task, rate=rate, seed=seed, run="0" * 12, origin=0, diverged=error_pct is None, val_error_pct=error_pct,
        correct=None if error_pct is None else round(1000 - 10 * error_pct),
        num_images=None if error_pct is None else 1000, least_loss=loss, dead_share=None, parameters=10, seconds=1.0,
    )  # fmt: skip


def results(name: str, errors: Sequence[float], losses: Sequence[float] = (1.0,) * 5) -> EntryResults:
    """An entry that is complete on the quick tasks, with these errors on `easy` and losses on `deep`."""
    runs = [run(task, rate, 1000, error) for task in ("easy", "deep") for rate, error in ((0.01, 50.0), (0.1, 20.0))]
    runs += [run("easy", 0.1, seed, error) for seed, error in enumerate(errors)]
    runs += [run("deep", 0.1, seed, 50.0, loss) for seed, loss in enumerate(losses)]
    return EntryResults(
        benchmark=SMALL.hash, entry=name, overrides=(f"activation={name}",), refused={}, origins=(ORIGIN,),
        runs=tuple(runs),
    )  # fmt: skip
