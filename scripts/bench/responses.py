"""What listening to responses costs a training: the run of `make train`, shortened, on one thread,
in CPU time.

`python scripts/bench/responses.py [rounds]` writes results/bench/<machine>.json. Two answers: the
share of the training that is spent listening, within every run that listens; and the ratio of runs
that listen to runs that do not."""

import contextlib
import statistics
import tempfile
from typing import Any
from unittest import mock

from harness import Stopwatch, interleave, measure, ratios, train
from pytorch_lightning import Trainer

from rectifiers.evaluation.responses import ResponseMeter

RUN = (
    "activation=prelu",
    "init=he",
    "trainer.max_epochs=3",
    "evaluation=center",
    "logger=none",
    "threads=1",
)


def main(rounds: int) -> dict[str, Any]:
    shares: list[float] = []
    with tempfile.TemporaryDirectory() as place:

        def listening() -> None:
            meter, fit = Stopwatch(), Stopwatch()
            with (
                meter.timed("listening", ResponseMeter, "update"),
                meter.timed("listening", ResponseMeter, "by_layer"),
                fit.timed("fit", Trainer, "fit"),
            ):
                train(place, *RUN)
            shares.append(meter.seconds["listening"] / fit.seconds["fit"])

        def not_listening() -> None:
            deaf = {"listening": lambda _: contextlib.nullcontext(), "by_layer": lambda _: {}}
            with mock.patch.multiple(ResponseMeter, **deaf):
                train(place, *RUN)

        seconds = interleave({"listening": listening, "not listening": not_listening}, rounds)
    del shares[0]  # of the warm-up
    ratio = ratios(seconds, "listening", "not listening")
    return {"share": statistics.median(shares), "shares": shares, "ratio": ratio, "run": RUN}


if __name__ == "__main__":
    measure(main, __doc__, rounds=9)
