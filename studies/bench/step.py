"""Measure a training step with the settings that a run may have: precision, layout of maps,
compiled or not, fused optimiser or not.

`python studies/bench/step.py [rounds] [batch]` prints a table and writes
results/bench/<machine>.json. On a CPU it measures the 14-layer network with batches of 8, on one
thread, in CPU time. If there is a GPU, it measures model A with batches of 128, in wall-clock time
and memory; there compiling takes minutes, before the first round ends. Ratios are relative to the
paper's step, float32 and NCHW. Each step is also given as a share of the rate of matrix products,
measured in the same rounds and precision."""

from typing import Any

import harness
import torch
from harness import CLOCK, DEVICE, DTYPES, SIDE, Way, ratios

from rectifiers.models.rows import trace

MODEL, BATCH = ("model_a", 128) if DEVICE == "cuda" else ("small14", 8)
WORDS = ("channels last", "fused SGD", "compiled", "CUDA graphs")
PAPER = "float32, NCHW"
STEPS = [  # precision and layout, then what of WORDS holds
    PAPER,
    "float32, channels last",
    "float32, NCHW, fused SGD",
    "float32, channels last, fused SGD",  # of trainer=cpu
    "float32, NCHW, fused SGD, compiled",
    "float32, channels last, fused SGD, compiled",
    "bfloat16, NCHW, fused SGD",
    "bfloat16, channels last, fused SGD",
]
if DEVICE == "cuda":  # the last: fast but for cuDNN's measuring
    STEPS.append("bfloat16, channels last, fused SGD, compiled")
    STEPS.append("bfloat16, channels last, fused SGD, compiled, CUDA graphs")


def step(name: str, batch: int) -> Way:
    """Return the step of that name on `batch` images of noise."""
    channels_last, fused, compiled, in_graphs = (word in name for word in WORDS)
    memory = torch.channels_last if channels_last else torch.contiguous_format
    network = harness.paper_network(MODEL).to(DEVICE).to(memory_format=memory)
    if compiled:
        network.compile(options={"fallback_random": True, "triton.cudagraphs": in_graphs})
    return harness.training_step(network, batch, fused=fused, bf16=name.startswith("bfloat16"))


def peak_bytes(way: Way) -> int:
    """Return the most bytes of a GPU that a step holds beyond those before it: weights, momentum
    and gradients."""
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    way()
    return torch.cuda.max_memory_allocated() - before


def main(rounds: int, batch: int) -> dict[str, Any]:
    products = {name: harness.square_product(dtype) for name, dtype in DTYPES.items()}
    steps = {name: step(name, batch) for name in STEPS}
    seconds = harness.interleave({**steps, **products}, rounds, CLOCK)

    middle = harness.medians(seconds)
    rates = {name: 2 * SIDE**3 / middle[name] for name in products}
    shapes = trace(harness.paper_rows(MODEL), channels=3, input_px=224)
    operations = 6 * batch * sum(shape.multiply_adds for shape in shapes)

    peaks = {name: peak_bytes(way) for name, way in steps.items()} if DEVICE == "cuda" else {}
    return {
        "model": MODEL,
        "times_as_fast": {name: ratios(seconds, PAPER, name) for name in steps},
        "ms_an_image": {name: 1e3 * middle[name] / batch for name in steps},
        "peak_bytes": peaks,
        "share_of_products": {
            name: operations / middle[name] / rates[name.partition(",")[0]] for name in steps
        },
        "tflops_of_products": {name: rate / 1e12 for name, rate in rates.items()},
    }


if __name__ == "__main__":
    harness.measure(main, __doc__, DEVICE, rounds=7, batch=BATCH)
