"""Draw the README's picture from the committed records: 30 layers from He and from Xavier
initialisation.

python scripts/picture.py           # write docs/images/thirty-layers-light.svg and -dark.svg
python scripts/picture.py --check   # exit with 1 where they do not show the records
"""

import sys
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from rectifiers.claims.claims import claims, runs_of
from rectifiers.claims.records import load
from rectifiers.results.figures import write_svg
from rectifiers.results.generated import refuse_stale
from rectifiers.runtime.console import cli_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
CLAIM, ERROR = "figure3", "val/top1_error_pct"
LABELS = {"xavier": "Xavier: Var[w] = 1/n", "he": "He: Var[w] = 2/n"}
INKS = {  # of the text, the grid and the two arms, on pages of either kind
    "light": {"text": "#1f2328", "grid": "#d1d9e0", "he": "#0550ae", "xavier": "#bc4c00"},
    "dark": {"text": "#e6edf3", "grid": "#3d444d", "he": "#79c0ff", "xavier": "#ffa657"},
}


def curves() -> dict[str, list[list[float]]]:
    """Return the error in percent after every epoch, of every seed of each arm."""
    (claim,) = (claim for claim in claims() if claim.name == CLAIM)
    found = runs_of(claim, load(ROOT / "results" / "claims"))
    return {
        arm: [record.curve(ERROR) for _, record in sorted(found[arm].items())] for arm in LABELS
    }


def description(drawn: dict[str, list[list[float]]]) -> str:
    """Return the numbers of the picture as text: of each arm every seed's last error."""
    arms = "; ".join(
        f"{LABELS[arm]}: {', '.join(f'{seed[-1]:.2f}' for seed in seeds)}"
        for arm, seeds in drawn.items()
    )
    epochs = len(drawn["he"][0])
    return (
        f"Error in percent of a 30-layer rectifier network after {epochs} epochs, of each "
        f"seed. {arms}"
    )


def picture(drawn: dict[str, list[list[float]]], inks: dict[str, str]) -> "Figure":
    """Draw the mean over seeds, every seed, and the range of the seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 3.0), layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.subplots()
    axes.patch.set_alpha(0)
    for arm, seeds in drawn.items():
        epochs = range(1, len(seeds[0]) + 1)
        by_epoch = list(zip(*seeds, strict=True))
        axes.fill_between(
            epochs, [*map(min, by_epoch)], [*map(max, by_epoch)], color=inks[arm], alpha=0.25, lw=0
        )
        for seed in seeds:
            axes.plot(epochs, seed, color=inks[arm], alpha=0.45, lw=0.7)
        means = [*map(fmean, by_epoch)]
        axes.plot(epochs, means, color=inks[arm], lw=2.4)
        above = arm == "xavier"
        axes.annotate(
            LABELS[arm],
            (epochs[-1], means[-1]),
            (0, -9 if above else 16),
            textcoords="offset points",
            ha="right",
            va="top" if above else "bottom",
            color=inks[arm],
            fontsize=11,
            fontweight="bold",
        )
    count = len(drawn["he"])
    axes.set_title(
        f"30 layers of rectifiers on small digits: mean and range of {count} seeds",
        loc="left",
        color=inks["text"],
        fontsize=11,
    )
    axes.set(
        xlim=(1, len(drawn["he"][0])),
        ylim=(0, 100),
        xticks=[1, 5, 10, 15, 20],
        yticks=[0, 25, 50, 75, 100],
    )
    axes.set_xlabel("epoch", color=inks["text"])
    axes.set_ylabel("error, %", color=inks["text"])
    axes.tick_params(colors=inks["text"], length=0)
    axes.grid(color=inks["grid"], lw=0.6)
    for side in axes.spines.values():
        side.set_visible(False)
    return figure


def main() -> None:
    drawn = curves()
    text = description(drawn)
    paths = {IMAGES / f"thirty-layers-{page}.svg": inks for page, inks in INKS.items()}
    if sys.argv[1:] == ["--check"]:
        stale = [
            path
            for path in paths
            if not path.is_file() or f">{escape(text)}<" not in path.read_text()
        ]
        refuse_stale(stale, "python scripts/picture.py")
        return
    for path, inks in paths.items():
        write_svg(picture(drawn, inks), path, path.stem, text)
        print(path)


if __name__ == "__main__":
    with cli_errors():
        main()
