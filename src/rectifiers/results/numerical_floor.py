"""How far a result moves by rounding, which run ids leave out.

`scripts/numerical_floor.py` measures it: one configuration per data set and several seeds, run with
other `optim.fused`, `channels_last` and `threads` and with the instruction sets of other
processors. Rounding differs, training amplifies it, and the errors of one seed are as many
draws of one number. The measurement is described and decides nothing: the interval of an effect
over seeds contains what rounding does."""

import csv
from collections import Counter
from pathlib import Path

from rectifiers.results.layout import markdown
from rectifiers.results.statistics import spread_of

FILE = "numerical_floor.csv"  # below results/
SUFFIX = "_error_pct"
DIVERGED = "diverged"  # in place of the training loss; such a run has no errors
NETWORKS = {  # that the runs of each data set have
    "digits8": "`mini`, 14 layers, no normalisation",
    "digits": "`small14`, 14 layers, no normalisation",
    "cifar10": "`small14_32`, 14 layers, no normalisation",
}


def rounding_table(results: Path) -> str:
    """Return the standard deviation of errors within a seed as a Markdown table, one row per
    network and protocol."""
    with (results / FILE).open(newline="") as file:
        rows = list(csv.DictReader(file))
    diverged = Counter(row["data"] for row in rows if row["train_loss"] == DIVERGED)
    errors: dict[tuple[str, str], dict[str, list[float]]] = {}  # data, protocol -> by seed
    for row in rows:
        for key, value in row.items():
            if key.endswith(SUFFIX) and value:
                by_seed = errors.setdefault((row["data"], key.removesuffix(SUFFIX)), {})
                by_seed.setdefault(row["seed"], []).append(float(value))
    lines = []
    for (data, protocol), by_seed in errors.items():
        spread = spread_of(list(by_seed.values()))
        counts = (str(spread.n), str(spread.groups), f"{spread.sd:.2f}", str(diverged[data]))
        lines.append([f"{NETWORKS[data]} on {data}, `{protocol}`", *counts])
    head = ("network, data, protocol", "runs", "seeds", "sd within a seed, points", "diverged")
    return markdown(head, lines)
