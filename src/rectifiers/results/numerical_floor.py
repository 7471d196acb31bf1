"""How far a result moves by rounding, which run ids leave out.

`scripts/numerical_floor.py` measures it: one configuration per data set and several seeds, trained
with other `optim.fused`, `channels_last`, `threads` and instruction sets. The errors of one seed
are as many draws of one number. The measurement is described and decides nothing: the interval of
an effect over seeds contains what rounding does."""

from math import sqrt
from pathlib import Path

from rectifiers.results.layout import markdown

FILE = "numerical_floor.csv"  # below results/
SUFFIX = "_error_pct"
DIVERGED = "diverged"  # in place of the training loss; such a run has no errors
NETWORKS = {  # that the runs of each data set have
    "digits8": "`mini`, 14 layers, no normalisation",
    "digits": "`small14`, 14 layers, no normalisation",
    "cifar10": "`small14_32`, 14 layers, no normalisation",
}


def rounding_table(results: Path) -> str:
    """Return the pooled standard deviation of errors within a seed as a Markdown table, one row per
    network and protocol."""
    import pandas as pd  # here and not above: it takes a second

    runs = pd.read_csv(results / FILE)
    columns = [name for name in runs if name.endswith(SUFFIX)]
    errors = runs.melt(["data", "seed"], columns, "protocol", "error").dropna()
    lines = []
    for (data, protocol), group in errors.groupby(["data", "protocol"], sort=False):
        seeds = group.groupby("seed").error
        squares = ((group.error - seeds.transform("mean")) ** 2).sum()
        sd = sqrt(squares / (len(group) - seeds.ngroups))
        name = f"{NETWORKS[data]} on {data}, `{protocol.removesuffix(SUFFIX)}`"
        diverged = (runs[runs.data == data].train_loss == DIVERGED).sum()
        lines.append([name, str(len(group)), str(seeds.ngroups), f"{sd:.2f}", str(diverged)])
    head = ("network, data, protocol", "runs", "seeds", "sd within a seed, points", "diverged")
    return markdown(head, lines)
