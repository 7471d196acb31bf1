"""Figures from records, by matplotlib; the same record gives the same bytes."""

from pathlib import Path
from typing import Any

from rectifiers.config import InputError
from rectifiers.reporting.statistics import error_interval_pct
from rectifiers.runs.record import atomic_file


def write_error_against_cost(record: dict[str, Any], path: Path) -> None:
    """Draw what each protocol costs an image, in multiply-adds, and the top-1 error that it buys, as an SVG.

    The bars are the intervals over test images (Wilson, 95 %) of this one run.

    Raises:
        InputError: where the run has fewer than two protocols.
    """
    if len(record["protocols"]) < 2:
        raise InputError(
            f"run={record['run']} was tested by {len(record['protocols'])} protocol, and a figure needs two; "
            "test it by evaluation=calibration, which is all of them"
        )
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    with mpl.rc_context({"svg.hashsalt": record["run"], "svg.fonttype": "none"}):
        figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
        for name, result in sorted(record["protocols"].items()):
            error, seen = result["top1_error_pct"], result["seen"]
            low, high = error_interval_pct(seen - result["top1_correct"], seen)
            axes.errorbar(
                result["multiply_adds"], error, [[error - low], [high - error]], fmt="o", capsize=3, label=name
            )
        axes.set(xscale="log", xlabel="multiply-adds an image", ylabel="top-1 error, %", title=f"run {record['run']}")
        axes.legend(title="protocol")
        with atomic_file(path) as file:
            figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
        plt.close(figure)
