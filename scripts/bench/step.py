"""A training step as a run may have it: precision, layout of maps, compiled or not, optimiser
in one pass or not.

`python scripts/bench/step.py [rounds] [batch]` prints a table and writes
results/bench/<machine>.json. On a CPU the 14-layer network with batches of 8, one thread, CPU time;
where there is a GPU, model A with batches of 128 on it by the clock. Ratios are over the paper's
step, float32 and NCHW. Each step is also shown as a share of the rate of matrix products, measured
beside it in the same precision. On a GPU its memory is counted too."""

from typing import Any, NamedTuple

import harness
import torch
from harness import CLOCK, DEVICE, DTYPES, SIDE, Way, paper_network, ratios

from rectifiers.models.rows import trace

MODEL, BATCH = ("model_a", 128) if DEVICE == "cuda" else ("small14", 8)


class Step(NamedTuple):
    """How a step is computed."""

    bf16: bool = False
    channels_last: bool = False
    fused: bool = False
    compiled: bool = False
    checkpointed: bool = False
    in_graphs: bool = False

    def __str__(self) -> str:
        parts = [
            "bfloat16" if self.bf16 else "float32",
            "channels last" if self.channels_last else "NCHW",
            *["fused SGD"] * self.fused,
            *["compiled"] * self.compiled,
            *["CUDA graphs"] * self.in_graphs,
            *["maps computed again"] * self.checkpointed,
        ]
        return ", ".join(parts)

    def on(self, batch: int) -> Way:
        """Return the step on `batch` images of noise."""
        memory = torch.channels_last if self.channels_last else torch.contiguous_format
        network = paper_network(MODEL).to(DEVICE, memory_format=memory)
        network.activation_checkpointing = self.checkpointed
        if self.compiled:
            network.compile(options={"fallback_random": True, "triton.cudagraphs": self.in_graphs})
        return harness.training_step(
            network, harness.sgd(network, self.fused), batch, DEVICE, self.bf16
        )


PAPER = Step()
DEFAULT = Step(channels_last=True, fused=True)  # of trainer=cpu
STEPS = [
    PAPER,
    Step(channels_last=True),
    Step(fused=True),
    DEFAULT,
    Step(fused=True, compiled=True),
    Step(channels_last=True, fused=True, compiled=True),
    Step(fused=True, checkpointed=True),
    Step(bf16=True, fused=True),
    Step(bf16=True, channels_last=True, fused=True),
]
if DEVICE == "cuda":
    compiled = Step(bf16=True, channels_last=True, fused=True, compiled=True)
    STEPS += [
        compiled,
        Step(*compiled[:-1], in_graphs=True),
    ]  # the last: fast but for cuDNN's measuring


def peak_bytes(way: Way) -> int:
    """Return the most bytes of a GPU that a step holds beyond those before it: weights, momentum
    and gradients."""
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    way()
    return torch.cuda.max_memory_allocated() - before


def main(rounds: int, batch: int) -> dict[str, Any]:
    products = {name: harness.square_product(dtype, SIDE) for name, dtype in DTYPES.items()}
    steps = {str(step): step.on(batch) for step in STEPS}
    seconds = harness.interleave({**steps, **products}, rounds, CLOCK)
    middle = harness.medians(seconds)
    rates = {name: 2 * SIDE**3 / middle[name] for name in products}
    multiply_adds = sum(
        shape.multiply_adds for shape in trace(harness.paper_rows(MODEL), channels=3, input_px=224)
    )
    larger, peaks = None, {}
    if DEVICE == "cuda":
        peaks = {name: peak_bytes(way) for name, way in steps.items()}
    if DEVICE == "cpu":  # the optimiser's part of a step falls with the batch
        pair = {str(step): step.on(8 * batch) for step in (PAPER, DEFAULT)}
        taken = harness.interleave(pair, max(3, rounds // 2), CLOCK)
        larger = {"batch": 8 * batch, "times_as_fast": ratios(taken, str(PAPER), str(DEFAULT))}
    return {
        "model": MODEL,
        "times_as_fast": {name: ratios(seconds, str(PAPER), name) for name in steps},
        "ms_an_image": {name: 1e3 * middle[name] / batch for name in steps},
        "larger": larger,
        "peak_bytes": peaks,
        "share_of_products": {
            name: 6 * batch * multiply_adds / middle[name] / rates[name.partition(",")[0]]
            for name in steps
        },
        "tflops_of_products": {name: rate / 1e12 for name, rate in rates.items()},
    }


if __name__ == "__main__":
    harness.measure(main, __doc__, DEVICE, rounds=7, batch=BATCH)
