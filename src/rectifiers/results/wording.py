"""What the documents say of a claim: its scale, and what its tests found."""

import math
from collections.abc import Sequence
from statistics import fmean

from rectifiers.results.claims import Answer, Tested
from rectifiers.results.comparisons import Comparison, Description
from rectifiers.results.eligibility import SAME_IMAGES
from rectifiers.results.verdicts import MOST_SEEDS, Finding, Verdict

NOT_JUDGED = "described, not judged"


def scale(answer: Answer) -> str:
    """Return data, network and length of a claim's runs."""
    found = answer.records
    if not found:
        return "-"
    sizes = ((r.choices.get("model"), r.network) for r in found)
    networks = sorted({f"{m} of {n.depth} layers, {n.parameters:,} parameters" for m, n in sizes})
    epochs = sorted({record.science["optim"]["epochs"] for record in found})
    images = sorted({f"{record.images.train:,}" for record in found})
    data = sorted({str(record.choices.get("data")) for record in found})
    network = ", ".join(networks) if len(networks) < 3 else f"{len(networks)} networks"
    length = (
        f"{' or '.join(map(str, epochs))} epoch{'s' * (epochs != [1])} of "
        f"{', '.join(images)} images"
    )
    papers = [SAME_IMAGES] if any(record.images.test is None for record in found) else []
    return ", ".join([*data, network, length, *papers])


def short_scale(answer: Answer) -> str:
    """Return data, network and epochs of a claim's runs, in few words."""
    found = answer.records
    if not found:
        return "-"
    data = sorted({str(record.choices.get("data")) for record in found})
    networks = sorted({f"{r.choices.get('model')} of {r.network.depth} layers" for r in found})
    epochs = sorted({record.science["optim"]["epochs"] for record in found})
    return (
        f"{', '.join([*data, *networks])}, {' or '.join(map(str, epochs))} "
        f"epoch{'s' * (epochs != [1])}"
    )


def compared(tested: Tested) -> str:
    """Return what is compared, with the means of the arms whose difference is meant: how good
    either is."""
    return with_means(tested.test, tested.measured if tested.test.statistic == "mean" else [])


def with_means(comparison: Comparison, measured: Sequence[tuple[float, ...]]) -> str:
    """Return what is compared, with the means of two arms whose difference is meant."""
    if not (comparison.minus and measured):
        return comparison.compared()
    own, other = map(fmean, zip(*measured, strict=True))
    return f"{comparison.compared()} ({own:.3g} and {other:.3g})"


def counts(tested: Tested) -> str:
    """Return the seeds of a test, how many runs of each arm diverged, and what is left out."""
    left_out = f"; pairs left out: {tested.left_out}" if tested.left_out else ""
    return f"{tested.finding.n}" + (f" ({tested.diverged}{left_out})" if tested.diverged else "")


def mean(found: Description) -> str:
    """Return the mean of a description with its interval, as far as it has them."""
    if found.mean is None:
        return "-"
    low, high = found.mean.low, found.mean.high
    return f"{found.mean.mean:.3g}" + (
        "" if low is None or high is None else f" ({low:.3g} to {high:.3g})"
    )


def described(found: Description) -> str:
    """Return a description in words."""
    what = f"{found.comparison.says}, {with_means(found.comparison, found.measured)}"
    return f"{what}: {mean(found)}, n = {found.n()}: {NOT_JUDGED}"


def effect_of(found: Finding) -> str:
    """Return an effect with its interval, as far as it has them."""
    effect = "-" if math.isnan(found.effect) else f"{found.effect:.3g}"
    if math.isfinite(found.low):
        effect += f" ({found.low:.3g} to {found.high:.3g})"
    return effect


def verdict_of(found: Finding) -> str:
    """Return a verdict; beside an inconclusive one how many seeds would decide."""
    if found.verdict is not Verdict.INCONCLUSIVE:
        return str(found.verdict)
    if found.would_be is Verdict.INCONCLUSIVE:
        return f"{found.verdict} (seeds to decide: -)"
    needed = f"{found.needed:,}" if found.needed else f"more than {MOST_SEEDS:,}"
    return f"{found.verdict} (seeds to decide: {needed}, {found.would_be})"
