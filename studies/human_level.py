"""Write docs/results/human-level.md and its picture: the paper's title, judged by published counts.

Nothing is trained. The numbers are those of the paper and of the study that measured people:
Russakovsky et al., "ImageNet Large Scale Visual Recognition Challenge" (IJCV 115, 2015; arXiv
1409.0575), section 6.4."""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING

from rectifiers.claims.figures import INKS
from rectifiers.results.documents import Drawing, markdown, render, write_or_check
from rectifiers.results.paper import published
from rectifiers.results.statistics import (
    RateDifference,
    binomial_error,
    error_interval_pct,
    rate_difference,
)
from rectifiers.runtime.console import cli_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "results" / "human-level.md"
PICTURES = ROOT / "docs" / "images"
TEST_IMAGES = 100_000
LEVEL, POWER = 0.05, 0.8  # of the tests that a sample is planned for
SECONDS_A_LABEL = 60  # an annotator's pace, which section 6.4.1 gives as about an image a minute


@dataclass(frozen=True)
class Counted:
    """Top-5 errors of somebody or something on test images of ILSVRC."""

    name: str
    setting: str
    errors: int
    images: int

    @property
    def rate(self) -> float:
        return self.errors / self.images

    def minus(self, other: "Counted") -> RateDifference:
        return rate_difference(self.errors, self.images, other.errors, other.images)


def of_percent(name: str, setting: str, percent: float, images: int) -> Counted:
    """Return the count that a printed percentage stands for."""
    return Counted(name, setting, round(percent * images / 100), images)


PAPER_PCT: float = published()["table_7"]["msra_prelu_nets"]["top5"]
PRINTED_PCT = 5.1  # of the annotator, whom the paper compares with
NETWORKS = of_percent("the paper's networks", "six together", PAPER_PCT, TEST_IMAGES)
# Of 1,500 images, 76 and 77 are both printed as 5.1 %. The annotator lists his 76 errors by kind,
# and only 76 gives the p of .022 that section 6.4.1 prints for him against GoogLeNet.
ANNOTATOR = Counted("annotator 1", "after 500 images of practice", 76, 1500)
SECOND = of_percent("annotator 2", "after 100 images of practice", 12.0, 258)
GOOGLENET = of_percent("GoogLeNet", "on the images of annotator 1", 6.8, 1500)
SHOWN = (NETWORKS, ANNOTATOR, SECOND, GOOGLENET)
COMPARED = (
    (NETWORKS, ANNOTATOR),
    (NETWORKS, SECOND),
    (ANNOTATOR, SECOND),
    (ANNOTATOR, GOOGLENET),
)


def disagreement_if_independent(rate: float, other: float) -> float:
    """Return the share of images on which exactly one of two errs, if their errors are
    independent."""
    return rate * (1 - other) + other * (1 - rate)


def paired_images(difference: float, disagreement: float) -> int:
    """Return how many images both must label, so that McNemar's test finds a difference of rates
    with the power POWER. disagreement: the share of images on which exactly one of them errs."""
    alpha, beta = NormalDist().inv_cdf(1 - LEVEL / 2), NormalDist().inv_cdf(POWER)
    spread = alpha * math.sqrt(disagreement) + beta * math.sqrt(disagreement - difference**2)
    return math.ceil((spread / difference) ** 2)


def largest_disagreement(difference: float, images: int) -> float:
    """Return the share of images on which exactly one may err, so that so many images suffice."""
    low, high = difference, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if paired_images(difference, middle) <= images:
            low = middle
        else:
            high = middle
    return low


def detectable_points(rate: float, images: int) -> float:
    """Return the difference, in points, that a sample shows with the power POWER if the other rate
    is known exactly."""
    quantiles = NormalDist().inv_cdf(1 - LEVEL / 2) + NormalDist().inv_cdf(POWER)
    return 100 * quantiles * binomial_error(rate, images)


def page() -> str:
    """Return the page."""
    title = NETWORKS.minus(ANNOTATOR)
    gap = abs(title.points) / 100
    independent = disagreement_if_independent(NETWORKS.rate, ANNOTATOR.rate)
    needed = paired_images(gap, independent)
    return render(
        "human_level",
        printed=PRINTED_PCT - PAPER_PCT,
        title=title,
        second=NETWORKS.minus(SECOND),
        people=SECOND.minus(ANNOTATOR),
        networks=NETWORKS,
        annotator=ANNOTATOR,
        share=100 * ANNOTATOR.rate,
        interval=error_interval_pct(ANNOTATOR.errors, ANNOTATOR.images),
        own_error=100 * binomial_error(NETWORKS.rate, NETWORKS.images),
        single_pct=published()["table_6"]["C_prelu"]["top5"],
        counts=counts_table(SHOWN),
        comparisons=comparisons_table(),
        detectable=detectable_points(ANNOTATOR.rate, ANNOTATOR.images),
        independent=100 * independent,
        needed=needed,
        hours=needed * SECONDS_A_LABEL / 3600,
        all_images=TEST_IMAGES,
        most=100 * largest_disagreement(gap, TEST_IMAGES),
        power=100 * POWER,
    )


def counts_table(shown: Sequence[Counted]) -> str:
    """Return who made how many errors, with Wilson's intervals."""
    rows = []
    for counted in shown:
        low, high = error_interval_pct(counted.errors, counted.images)
        cells = [f"{counted.errors:,}", f"{counted.images:,}", f"{100 * counted.rate:.2f}"]
        rows.append([f"{counted.name}, {counted.setting}", *cells, f"{low:.2f} to {high:.2f}"])
    head = ("who", "errors", "images", "top-5 error %", "95 % interval")
    return markdown(head, rows)


def comparisons_table() -> str:
    """Return the differences of the pairs."""
    rows = []
    for one, other in COMPARED:
        found = one.minus(other)
        interval = f"{found.low:+.2f} to {found.high:+.2f}"
        numbers = [f"{found.points:+.2f}", f"{found.standard_error:.2f}", interval]
        rows.append([f"{one.name} minus {other.name}", *numbers, p_text(found.p)])
    head = ("compared", "difference, points", "standard error", "95 % interval", "p")
    return markdown(head, rows)


def p_text(p: float) -> str:
    """Return a p-value, a small one as a bound."""
    return "< 0.001" if p < 0.001 else f"{p:.2g}"


def description() -> str:
    """Return the numbers of the picture as text."""
    parts = []
    for counted in SHOWN:
        low, high = error_interval_pct(counted.errors, counted.images)
        parts.append(f"{counted.name}: {100 * counted.rate:.2f} ({low:.2f} to {high:.2f})")
    return f"Top-5 error in percent with 95 % intervals. {'; '.join(parts)}"


def picture(page: str) -> "Figure":
    """Draw the errors with their intervals, for a light or dark page."""
    from matplotlib.figure import Figure

    inks = INKS[page]
    text = inks["text"]
    figure = Figure(figsize=(5.6, 3.0), layout="constrained")  # narrow: legible on a phone
    figure.patch.set_alpha(0)
    axes = figure.subplots()
    axes.patch.set_alpha(0)

    for row, counted in enumerate(SHOWN):
        low, high = error_interval_pct(counted.errors, counted.images)
        percent = 100 * counted.rate
        is_person = counted in (ANNOTATOR, SECOND)
        ink = inks["xavier"] if is_person else inks["he"]
        bars = [[percent - low], [high - percent]]
        axes.errorbar([percent], [row], xerr=bars, fmt="o", color=ink, capsize=4, lw=2)
        label = f"{counted.name}, {counted.setting}: {counted.errors:,} of {counted.images:,}"
        axes.text(2.1, row - 0.3, label, color=ink, fontsize=9)

    axes.axvline(100 * NETWORKS.rate, color=inks["he"], lw=0.8, ls=":")
    axes.set_title("Top-5 error with 95 % intervals", loc="left", fontsize=11, color=text)
    axes.set(xlim=(2, 18), xlabel="top-5 error, %", ylim=(len(SHOWN) - 0.5, -0.7), yticks=[])
    axes.xaxis.label.set_color(text)
    axes.tick_params(colors=text, length=0)
    axes.grid(axis="x", color=inks["grid"], lw=0.6)
    axes.spines[:].set_visible(False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 if a file is stale")
    options = parser.parse_args()
    drawings = {
        PICTURES / f"human-level-{page}.svg": Drawing(description(), partial(picture, page))
        for page in INKS
    }
    with cli_errors():
        command = "python studies/human_level.py"
        write_or_check({OUT: page()}, options.check, command, drawings)


if __name__ == "__main__":
    main()
