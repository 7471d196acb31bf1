import pytest

from benchmark_made_up import SMALL
from rectifiers.benchmark import card, entries, leaderboard, ranking, run
from rectifiers.benchmark import cheaper as shortcuts


@pytest.fixture
def small_benchmark(monkeypatch) -> None:
    """Let the benchmark be that of `benchmark_made_up`."""
    for module in (card, entries, leaderboard, ranking, run, shortcuts):
        monkeypatch.setattr(module, "benchmark", lambda: SMALL)
