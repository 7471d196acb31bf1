"""What listening to responses costs a training: the run of `make train`, shortened, on one thread, in CPU time.

`python scripts/bench/responses.py [rounds]`. Two answers: the share of `trainer.fit` that is spent listening, counted
within every run that listens, and the ratio of runs that listen to runs that do not, interleaved.
"""

import os
import statistics
import sys
import tempfile
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")

from pairs import interleave, keep, ratios, show
from stopwatch import Stopwatch

from rectifiers.cli.composition import composed
from rectifiers.evaluation.responses import ResponseMeter
from rectifiers.training import run
from rectifiers.training.module import Classifier

RUN = ("activation=prelu", "init=he", "optim.epochs=3", "evaluation=center", "logger=none", "compute.threads=1")


def main(rounds: int) -> None:
    shares: list[float] = []
    with tempfile.TemporaryDirectory() as place:
        given = [*RUN, f"runs_dir={place}/runs", f"cache_dir={place}/cache", "rerun=true"]

        def listening() -> None:
            heard, fitted = Stopwatch(), Stopwatch()
            with (
                heard.timed("heard", ResponseMeter, "update"),
                heard.timed("heard", ResponseMeter, "by_layer"),
                fitted.timed("fitted", run._Run, "_fit"),
            ):
                run.train(composed(given), {})
            shares.append(heard.seconds["heard"] / fitted.seconds["fitted"])

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
    keep("responses", {"rounds": rounds, "share": share, "shares": shares, "ratio": ratio, "run": RUN})


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
