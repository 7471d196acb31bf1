"""What stands around a training step: Lightning, callbacks, metrics, logging, checkpoints.

`python scripts/bench/overhead.py [runs]` prints a table and writes results/bench/<machine>.json. The real run of
`train.py` with the 14-layer network at full width on photos of 224 px, one thread, two epochs of eight batches of 8.
CPU time of `trainer.fit` that is spent in forward, backward, optimiser, reading, validation and writing checkpoints,
and the rest, which is the answer.
"""

import importlib
import os
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.nn.functional as F
from pairs import keep, show
from pytorch_lightning.loops.evaluation_loop import _EvaluationLoop
from stopwatch import Stopwatch
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from photos import write_photos
from rectifiers.composition import composed
from rectifiers.data.preprocess import Preprocess
from rectifiers.models.network import Network
from rectifiers.training import run
from rectifiers.training.checkpoints import AtomicCheckpointIO

RUN = (
    "activation=prelu", "init=he", "data=folder", "model.width=1", "data.resize_px=256", "data.crop_px=224",
    "optim.global_batch=8", "optim.epochs=2", "optim.lr=0.0001", "evaluation=center", "logger=csv", "compute.threads=1",
)  # fmt: skip
PARTS = {
    "forward": [(Network, "forward"), (Preprocess, "forward"), (F, "cross_entropy")],
    "backward": [(torch.Tensor, "backward")],
    "optimiser": [(importlib.import_module("torch.optim.sgd"), "sgd")],
    "reading images": [(_SingleProcessDataLoaderIter, "_next_data")],
    "validation": [(_EvaluationLoop, "run")],
    "checkpoints": [(AtomicCheckpointIO, "save_checkpoint")],
}
STEP = ("forward", "backward", "optimiser")
REST = "Lightning, callbacks, metrics, logging"
STEPS = 16


def once(place: Path) -> dict[str, float]:
    """Return the milliseconds a training step of each part of a run's `fit`, and of the rest."""
    given = [*RUN, f"data.root={place}/plain", f"runs_dir={place}/runs", f"cache_dir={place}/cache", "rerun=true"]
    parts, whole = Stopwatch(), Stopwatch()
    with ExitStack() as patched:
        for part, functions in PARTS.items():
            for where, name in functions:
                patched.enter_context(parts.timed(part, where, name))
        patched.enter_context(whole.timed("fit", run._Run, "_fit"))
        run.train(composed(given), {})
    parts.seconds[REST] = whole.seconds["fit"] - sum(parts.seconds.values())
    return {part: 1e3 * seconds / STEPS for part, seconds in parts.seconds.items()}


def main(runs: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        write_photos(Path(place), 64)
        found = [once(Path(place)) for _ in range(runs + 1)][1:]  # the first warms up
    shares = [ms[REST] / sum(ms[part] for part in STEP) for ms in found]
    middle = {part: statistics.median(ms[part] for ms in found) for part in (*PARTS, REST)}
    show(f"a step of small14, batch 8, {runs} runs", [(part, f"{ms:.1f}") for part, ms in middle.items()], ("", "ms"))
    print(f"{REST}: {100 * statistics.median(shares):.2f} % of a step's forward, backward and optimiser")
    keep("overhead", {"rounds": runs, "run": RUN, "ms_a_step": middle, "shares": shares})


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
