"""What listening to responses costs a training: the run of `make train`, shortened, on one thread, in CPU time.

`python scripts/bench/responses.py [rounds]`. Two answers: the share of `trainer.fit` that is spent listening, counted
within every run that listens, and the ratio of runs that listen to runs that do not, interleaved.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")

from pairs import interleave, ratios, show

from rectifiers.composition import composed
from rectifiers.evaluation.responses import ResponseMeter
from rectifiers.runs.provenance import provenance
from rectifiers.runs.record import write_text
from rectifiers.training import run
from rectifiers.training.module import Classifier

OUT = Path(__file__).parents[2] / "results" / "bench" / "responses.json"
RUN = ("activation=prelu", "init=he", "optim.epochs=3", "evaluation=center", "logger=none", "compute.threads=1")


class Stopwatch:
    """CPU seconds within functions that are patched to be timed."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, place: Any, name: str) -> Any:
        original: Callable[..., Any] = getattr(place, name)

        def within(*arguments: Any, **keywords: Any) -> Any:
            started = time.process_time()
            try:
                return original(*arguments, **keywords)
            finally:
                self.seconds += time.process_time() - started

        return mock.patch.object(place, name, within)


def main(rounds: int) -> None:
    shares: list[float] = []
    with tempfile.TemporaryDirectory() as place:
        given = [*RUN, f"runs_dir={place}/runs", f"cache_dir={place}/cache", "rerun=true"]

        def listening() -> None:
            heard, fitted = Stopwatch(), Stopwatch()
            with (
                heard.timed(ResponseMeter, "update"),
                heard.timed(ResponseMeter, "by_layer"),
                fitted.timed(run._Run, "_fit"),
            ):
                run.train(composed(given), {})
            shares.append(heard.seconds / fitted.seconds)

        def not_listening() -> None:
            with mock.patch.object(Classifier, "_heard", Classifier.forward):
                run.train(composed(given), {})

        seconds = interleave({"listening": listening, "not listening": not_listening}, rounds)
    del shares[0]  # the round that warms up
    ratio = ratios(seconds, "listening", "not listening")
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    show(
        f"CPU seconds of small14 on digits, 3 epochs, median of {rounds} rounds",
        [(name, f"{s:.2f}") for name, s in medians.items()],
        ("the run", "CPU s"),
    )
    share = statistics.median(shares)
    print(f"listening is {100 * share:.2f} % of the training ({100 * min(shares):.2f} to {100 * max(shares):.2f} %)")
    print(f"run by run {ratio['median']:.4f} (quartiles {ratio['q25']:.4f} to {ratio['q75']:.4f}, n = {rounds})")
    told = {"share": share, "shares": shares, "ratio": ratio, "seconds": seconds, "run": RUN}
    write_text(OUT, json.dumps({**told, "provenance": provenance("", "", "cpu", 1)}, indent=1) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
