"""Write results/LIBRARIES.md from the numbers that studies/libraries.py measured."""

from collections.abc import Iterable
from statistics import fmean, median, stdev
from typing import Any

from measured_page import page_main

from rectifiers.results.documents import markdown

SEEDS, RATE, STEPS, BATCH = 3, 1e-3, 200, 32
HEAD = f"""# Initialisation beside other libraries

Made by `python studies/libraries.py`.

Networks of different kinds are initialised in several ways and trained on handwritten digits of
8 px: {STEPS} steps of Adam with a batch size of {BATCH}, a learning rate of {RATE:g} and
{SEEDS} seeds. AnyInit is version 0.4.0; the user's own activation is registered with it. LSUV, DKS
and TAT are those of this library. DKS and TAT replace the activation.

- E[y²]: mean square of the scores on 128 images, from the smallest to the largest seed
- gradients: gradient norm of the first weight, divided by that of the last
- CPU s: time of the initialisation; layers: number of initialised layers
- loss: mean of the last 20 steps; test error: mean ± standard deviation over the seeds
"""


CALLS = {  # what a user writes, by the name of the start
    "torch's default": "",
    "timm": "efficientnet_init_weights(model)` or `model.init_weights()",
    "AnyInit, analytic": 'anyinit.initialize(model, "analytic", tuple(x.shape))',
    "AnyInit, empirical": 'anyinit.initialize(model, "empirical", x)',
    "LSUV": 'initialize(model, x, init="lsuv")',
    "DKS or TAT": (
        "initialize(model, x)` with another activation in the model: `dks(64, depth=49)"
    ),
    "rectifiers": "initialize(model, x)",
    "rectifiers, empirical": 'initialize(model, x, mode="empirical")',
}


def spread(numbers: Iterable[float]) -> str:
    values = sorted(numbers)
    return f"{values[0]:.2g} to {values[-1]:.2g}"


def rows(results: dict[str, Any]) -> list[tuple[str, ...]]:
    lines: list[tuple[str, ...]] = []
    for start, seeds in results.items():
        errors = [seed["test_error_pct"] for seed in seeds]
        lines.append(
            (
                start,
                spread(seed["second"] for seed in seeds),
                spread(seed["gradient_ratio"] for seed in seeds),
                f"{median(seed['cpu_s'] for seed in seeds):.2f}",
                f"{seeds[0]['filled']} of {seeds[0]['layers']}",
                f"{fmean(seed['loss'] for seed in seeds):.2g}",
                f"{fmean(errors):.1f} ± {stdev(errors):.1f}",
            )
        )
    return lines


def errors(name: str, results: dict[str, Any]) -> tuple[str, ...]:
    """Return the start of the lowest test error of a network, and the errors of it and of ours."""
    means = {
        start: fmean(seed["test_error_pct"] for seed in seeds) for start, seeds in results.items()
    }
    lowest = min(means, key=lambda start: means[start])
    ours = ("rectifiers", "rectifiers, empirical")
    return (name, lowest, *(f"{means[start]:.1f}" for start in (lowest, *ours)))


def page(results: dict[str, Any]) -> str:
    head = ("start", "E[y²]", "gradients", "CPU s", "layers", "loss", "test error, %")
    calls = [(start, f"`{call}`" if call else "") for start, call in CALLS.items()]
    lowest = markdown(
        ("test error, %", "lowest from", "which has", "rectifiers", "rectifiers, empirical"),
        [errors(name, starts) for name, starts in results.items()],
    )
    parts = [f"{HEAD}\n{markdown(('start', 'what a user writes'), calls)}", lowest]
    for name, starts in results.items():
        parts.append(f"## {name}\n\n{markdown(head, rows(starts))}")
    return "\n".join(parts)


if __name__ == "__main__":
    page_main(__doc__, page, "libraries")
