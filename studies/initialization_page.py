"""Write results/INITIALIZATION.md from the numbers that studies/initialization.py measured."""

from statistics import mean, stdev
from typing import Any

from measured_page import page_main

from rectifiers.results.documents import markdown

SEEDS, IMAGES = 8, 8
BLOCKS = {  # each network with its last block and the side of its images, px
    "resnet18": ("layer4.1", 64),
    "vgg16_bn": ("features.40", 64),
    "mobilenet_v3_small": ("features.11", 64),
    "convnext_tiny": ("features.7.2", 64),
    "densenet121": ("features.denseblock4", 64),
    "vit_b_16": ("encoder.layers.encoder_layer_11", 224),
    "googlenet": ("inception5b", 64),
    "shufflenet_v2_x1_0": ("stage4.3", 64),
    "regnet_y_400mf": ("trunk_output.block4.block4-5", 64),
    "swin_t": ("features.7.1", 64),
    "timm/gmlp_s16_224": ("blocks.29", 224),
    "u_net": ("decoder.2", 64),
    "shared_transformer": ("block", 64),
}
CHAINS = "chains"  # the key of the chains among the networks
DEPTH, WIDTH, EXAMPLES = 50, 256, 64  # of a chain: layers, units, inputs
PAGE = f"""# What initialisation does to the signal

Made by `python studies/initialization.py`.

## {DEPTH} layers

The table shows E[y²] of the last of {DEPTH} linear layers of {WIDTH} units without normalisation, from the
smallest to the largest of {SEEDS} seeds: on the {EXAMPLES} standard normal inputs of the example, on as many fresh
inputs, and on the example times 1.1. "varies" is the share of E[y²] that differs between inputs, and
"warning" what the report says. The mode "forward" is the closed form.

{{chains}}
## Networks

The table shows mean squares on {IMAGES} standard normal images: mean ± standard deviation over {SEEDS} seeds, in
training mode (normalisation uses the batch) without dropout.

{{networks}}"""  # noqa: E501 lines of the committed page


def chain_rows(results: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return the rows of the table of chains, each number the range over the seeds."""
    rows = []
    for row in results:
        columns = zip(*(seed["second"] for seed in row["seeds"]), strict=True)
        ranges = [f"{min(column):.3g} to {max(column):.3g}" for column in columns]
        varies = [seed["varies"] for seed in row["seeds"]]
        warned = "not stable" if row["seeds"][0]["unstable"] else ""
        rows.append((row["activation"], row["mode"], *ranges, f"{mean(varies):.2g}", warned))
    return rows


def network_rows(results: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the rows of the table of networks: mean and standard deviation over the seeds."""
    lines = []
    for name in (name for name in BLOCKS if name in results):
        for row in results[name]:
            columns = zip(*row["values"], strict=True)
            cells = [f"{mean(column):.3g} ± {stdev(column):.1g}" for column in columns]
            lines.append((name, row["activation"], row["init"], *cells))
    return lines


def page(results: dict[str, Any]) -> str:
    chains = ("activation", "mode", "example", "fresh", "10 % larger", "varies", "warning")
    signals = ("into the last block", "out of it", "scores")
    networks = ("network", "activation", "initialisation", *signals)
    return PAGE.format(
        chains=markdown(chains, chain_rows(results.get(CHAINS, []))),
        networks=markdown(networks, network_rows(results)),
    )


if __name__ == "__main__":
    page_main(__doc__, page, "initialization")
