"""What the benches share: their command line and file of results, interleaved rounds and ratios, a
step on noise and a product of matrices."""

import argparse
import json
import os
import random
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "scripts")]

import torch
import torch.nn.functional as F
from performance import RESULTS, section
from rich.markdown import Markdown
from torch import Tensor, nn
from torch.optim import Optimizer

from rectifiers.cli.composition import composed
from rectifiers.models.network import Network
from rectifiers.models.rows import Row, expand
from rectifiers.parameters import parameter_groups
from rectifiers.prelu import PReLU
from rectifiers.runs.provenance import provenance
from rectifiers.runtime.console import progress_bar, wide_stdout
from rectifiers.runtime.files import write_text
from rectifiers.runtime.machine import generation, keep_freed_memory
from rectifiers.training.optim import build_optimizer

# of the benches that use a GPU where there is one
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CLOCK = time.perf_counter if DEVICE == "cuda" else time.process_time
SIDE = 8192 if DEVICE == "cuda" else 2048  # of products of matrices
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
PHOTO = (3, 224, 224)
Way = Callable[[], object]
Seconds = dict[str, list[float]]  # of every way, a number per round


def measure(
    main: Callable[..., dict[str, Any]], about: str | None, device: str = "cpu", **defaults: int
) -> None:
    """Publish what `main` measures, called with the command line's numbers, which come in the order
    of `defaults`.

    torch has one thread and a seed. The program's name is the bench's, and the numbers are what its
    section of studies/performance.py reads."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in defaults.items():
        parser.add_argument(name, nargs="?", type=int, default=default, help=f"default: {default}")
    settings = vars(parser.parse_args())
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False  # as in a run
    torch.manual_seed(0)
    keep_freed_memory()
    if numbers := main(**settings):  # of several processes one has them
        publish(Path(sys.argv[0]).stem, {**settings, **numbers}, device)


def interleave(
    ways: dict[str, Way], rounds: int, clock: Callable[[], float] = time.process_time
) -> Seconds:
    """Return the seconds that each way takes, in random order within a round; a first round is
    dropped as warm-up."""
    if rounds < 2:
        sys.exit(f"error: rounds={rounds} gives no spread; give 2 or more")
    order = random.Random(0)
    seconds: Seconds = {name: [] for name in ways}
    with progress_bar("timing", rounds + 1, "rounds") as advance:
        for n in range(rounds + 1):
            for name in order.sample(list(ways), len(ways)):
                started = clock()
                ways[name]()
                if n > 0:
                    seconds[name].append(clock() - started)
            advance(1)
    return seconds


def ratios(seconds: Seconds, name: str, other: str) -> dict[str, float]:
    """Return how many times as long `name` takes as `other`: the median of the rounds' ratios, and
    their quartiles."""
    rounds = zip(seconds[name], seconds[other], strict=True)
    low, middle, high = statistics.quantiles([a / b for a, b in rounds], n=4)
    return {"median": middle, "q25": low, "q75": high}


def medians(seconds: Seconds, scale: float = 1.0) -> dict[str, float]:
    """Return each way's median, times `scale`."""
    return {name: scale * statistics.median(taken) for name, taken in seconds.items()}


def waiting(way: Way) -> Way:
    """Return `way` with the wait for the work that it gave to a GPU."""

    def waited() -> None:
        way()
        if DEVICE == "cuda":
            torch.cuda.synchronize()

    return waited


def square_product(dtype: torch.dtype) -> Way:
    """Return a product of two random matrices [SIDE, SIDE]."""
    a, b = (torch.randn(SIDE, SIDE, device=DEVICE, dtype=dtype) for _ in range(2))
    return waiting(lambda: torch.mm(a, b))


def kept_bytes(run: Callable[[], Tensor], other: Iterable[Tensor] = ()) -> int:
    """Return the bytes that a forward pass keeps for the backward pass beside its output, which the
    next layer keeps, and beside tensors that are there anyway."""
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        y = run()
    for tensor in (y, *other):
        kept.pop(tensor.untyped_storage().data_ptr(), None)
    return sum(kept.values())


def paper_rows(model: str) -> tuple[Row, ...]:
    """Return the layers of one of the paper's networks at full width, for ImageNet's classes."""
    rows = composed([f"model={model}"]).model.rows
    assert rows is not None
    return expand(rows, width=1.0, classes=1000)


def paper_network(model: str) -> Network:
    """Return one of the paper's networks at full width, for photos of 224 px."""
    return Network(paper_rows(model), PReLU, channels=3, input_px=PHOTO[1])


def sgd(network: nn.Module, fused: bool = False) -> Optimizer:
    """Return the optimiser of a run."""
    groups = parameter_groups(network, lr=1e-4, weight_decay=5e-4)
    return build_optimizer(partial(torch.optim.SGD, momentum=0.9), groups, lr=1e-4, fused=fused)


def training_step(network: nn.Module, batch: int, *, fused: bool, bf16: bool) -> Way:
    """Return a function that makes a step on noise, where the network is: forward, loss, backward
    and SGD."""
    optimizer = sgd(network.train(), fused)
    device = next(network.parameters()).device
    x = torch.randn(batch, *PHOTO, device=device)
    labels = torch.randint(1000, (batch,), device=device)

    def step() -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
            loss = F.cross_entropy(network(x), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()  # here, so that a way that waits for its turn holds no gradients

    return waiting(step)


def publish(question: str, numbers: dict[str, Any], device: str) -> None:
    """Put `numbers` into results/bench/<machine>.json, with code and versions, and print their
    section."""
    device = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    origin = provenance("", None, device, 1)
    facts = {"system", "cpu", "cores", "device", "instructions"}
    machine = {**origin.machine.model_dump(include=facts), "generation": generation()}
    parts = [machine[fact] for fact in ("cpu", "generation", "instructions")]
    name = device if device != "cpu" else "-".join(parts)
    stem = re.sub(r"\W+", "-", name.replace("(R)", "")).strip("-").lower()
    path = RESULTS / f"{stem}.json"

    results: dict[str, Any] = {"machine": machine, "questions": {}}
    if path.is_file():
        results = json.loads(path.read_text())
    about = {"code": origin.code, "versions": origin.versions, "load_average": os.getloadavg()[0]}
    questions = {**results["questions"], question: {**numbers, **about}}
    results["questions"] = dict(sorted(questions.items()))

    write_text(path, json.dumps(results, indent=1) + "\n")
    wide_stdout().print(Markdown(section(question, questions[question])))
    print(path)
