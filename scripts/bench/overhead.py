"""What stands around a training step: Lightning, callbacks, metrics, logging, checkpoints.

`python scripts/bench/overhead.py [runs]` prints a table and writes results/bench/<machine>.json. The real run of
`train.py` with the 14-layer network at full width on photos of 224 px, one thread, two epochs of eight batches of 8.
CPU time of a step that is spent in forward, backward, optimiser and reading, and the rest, which is the answer; and of
an epoch's end.
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
from pytorch_lightning.loops.training_epoch_loop import _TrainingEpochLoop
from stopwatch import Stopwatch
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from photos import write_photos
from rectifiers.cli.composition import composed
from rectifiers.data.preprocess import Preprocess
from rectifiers.nn.networks.network import Network
from rectifiers.training import run
from rectifiers.training.checkpoints import AtomicCheckpointIO

RUN = (
    "activation=prelu", "init=he", "data=folder", "model.width=1", "data.resize_px=256", "data.crop_px=224",
    "optim.global_batch=8", "optim.epochs=2", "optim.lr=0.0001", "evaluation=center", "logger=csv", "compute.threads=1",
)  # fmt: skip
PARTS = {
    "forward": [(Network, "forward"), (Preprocess, "forward"), (F, "cross_entropy")],
    "backward": [(torch.Tensor, "backward")],
    "optimiser": [(importlib.import_module("torch.optim.sgd"), "sgd"), (torch.optim.Optimizer, "zero_grad")],
    "reading images": [(_SingleProcessDataLoaderIter, "_next_data")],
}
AT_THE_END = {
    "validation": [(_EvaluationLoop, "run")],
    "checkpoint": [(AtomicCheckpointIO, "save_checkpoint")],
}
STEP = ("forward", "backward", "optimiser")
REST = "Lightning, callbacks, metrics, logging"
STEPS, EPOCHS = 16, 2


def once(place: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Return milliseconds of the parts (a training step, what comes once an epoch), each with its rest."""
    given = [*RUN, f"data.root={place}/plain", f"runs_dir={place}/runs", f"cache_dir={place}/cache", "rerun=true"]
    parts, steps, ends, whole = (Stopwatch() for _ in range(4))
    with ExitStack() as patched:
        for watch, of_parts in ((parts, PARTS), (ends, AT_THE_END)):
            for part, functions in of_parts.items():
                for where, name in functions:
                    patched.enter_context(watch.timed(part, where, name))
        patched.enter_context(parts.timed("validation", _EvaluationLoop, "run"))  # its forward passes are its own
        patched.enter_context(steps.timed("steps", _TrainingEpochLoop, "run"))
        patched.enter_context(whole.timed("fit", run._Run, "_fit"))
        run.train(composed(given), {})
    a_step = {part: 1e3 * parts.seconds[part] / STEPS for part in PARTS}
    a_step[REST] = 1e3 * (steps.seconds["steps"] - parts.seconds["validation"]) / STEPS - sum(a_step.values())
    an_epoch = {part: 1e3 * seconds / EPOCHS for part, seconds in ends.seconds.items()}
    an_epoch["the rest"] = 1e3 * (whole.seconds["fit"] - steps.seconds["steps"]) / EPOCHS - an_epoch["checkpoint"]
    return a_step, an_epoch


def main(runs: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        write_photos(Path(place), 64)
        found = [once(Path(place)) for _ in range(runs + 1)][1:]  # the first warms up
    shares = [a_step[REST] / sum(a_step[part] for part in STEP) for a_step, _ in found]
    a_step, an_epoch = ({part: statistics.median(ms[i][part] for ms in found) for part in found[0][i]} for i in (0, 1))
    show(f"a step of small14, batch 8, {runs} runs", [(part, f"{ms:.1f}") for part, ms in a_step.items()], ("", "ms"))
    show("once an epoch", [(part, f"{ms:.0f}") for part, ms in an_epoch.items()], ("", "ms"))
    print(f"{REST}: {100 * statistics.median(shares):.2f} % of a step's forward, backward and optimiser")
    told = {"run": RUN, "ms_a_step": a_step, "ms_an_epoch": an_epoch, "shares": shares}
    keep("overhead", {"rounds": runs, **told})


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
