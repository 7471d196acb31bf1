"""Write results/LANGUAGE_MODEL.md from the runs that studies/language_model.py measured."""

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rectifiers.results.documents import listed, markdown, write_or_check
from rectifiers.results.statistics import Mean, mean_of, t_interval
from rectifiers.runtime.console import cli_errors
from rectifiers.runtime.errors import InputError, reading

NONE, LEARNED = "none", "learned"
SLOPES = ("0", "0.25", "0.5", "0.75", "1")
ARMS = (NONE, *SLOPES, LEARNED)
NAMES = {NONE: "no activation", "0": "0, ReLU^2", LEARNED: "learned"}

SEARCHED, JUDGED = (1000, 1001), tuple(range(8))  # seeds
SHORT, MIDDLE, LONG = 1_000, 4_000, 16_000  # steps
SEEDS = {SHORT: JUDGED, MIDDLE: JUDGED, LONG: JUDGED[:4]}
FIRST_RATE = 4e-3
STRIDES = {SHORT: 2, MIDDLE: 1}  # of half octaves: a step of the grid of rates
BLOCKS, WIDTH, HEADS, CONTEXT, TEXTS = 6, 48, 4, 64, 8
WARMUP, DECAY, BETAS = 100, 0.1, (0.9, 0.95)
INITIAL = 0.25  # of the learned slopes
MATTERS = 0.01  # nats per byte

RESULTS = Path(__file__).parents[1] / "results"
RUNS = RESULTS / "language_model.jsonl"
NOTES = RESULTS / "text" / "language_model.md"

HEAD = f"""# One question to a language model: should the slope of a squared rectifier be learned?

Made by `python studies/language_model.py`.

ReLU^2 is max(0, y)^2 (So et al. 2021). Some language models of 2026 replace it by
leaky_relu(y, a)^2: y^2 for y > 0 and a^2 y^2 otherwise (parameter-golf#549). Is a learned slope
better than the best fixed one, and do learned slopes fall with depth, as in Table 1 of the paper
(He et al. 2015)?

These criteria are older than the runs. (Eleven runs of no activation at {SHORT:,} steps came before
the finer grid at {MIDDLE:,} steps, the order of the verdicts and the words on diverged seeds. They
were made again.)

- **Network**: {BLOCKS} decoder blocks of width {WIDTH}, with {HEADS} heads and {4 * WIDTH} hidden
  units (198,000 parameters), that read {CONTEXT} bytes of text; weights by `initialize`. The
  functions: slopes {listed(SLOPES)}; a learned slope per hidden unit (PReLU, squared), which starts
  at {INITIAL}; and no activation. Only a^2 counts, and a slope a > 1 is the slope 1 / a of -y,
  times a^2: from 0 to 1 is every slope there is, up to sign and scale. (parameter-golf#1035 learns
  the factor a^2, which may become negative.)
- **Training**: AdamW (betas {listed(BETAS)}; weight decay {DECAY} on the weights of layers, none on
  slopes, which it would pull towards ReLU^2), {WARMUP} steps of warm-up, then a cosine to a tenth;
  {TEXTS} pieces of {CONTEXT} bytes a step, so that 2,000 steps read about as many bytes as the
  training text has. Slopes have the rate of the weights.
- **Text**: "tinyshakespeare" (1,115,394 bytes, from karpathy/char-rnn; its sha256 begins with
  86c4e6aa9db7). The first 90 % are for training, 5 % for validation, and the last 5 % are the test
  text, which judged runs read once, at their end. Losses are nats per byte (1 nat is 1.44 bits).
- **Rates** are searched for each function at {SHORT:,} and, around the rate found there, at
  {MIDDLE:,} steps: the lowest validation loss, the mean of seeds {listed(SEARCHED)}, on a grid that
  grows until the best rate has a worse or diverging neighbour on both sides. A step of the grid is
  a factor of 2 at {SHORT:,} steps, and of the square root of 2 at {MIDDLE:,}. {LONG:,} steps take
  the rate of {MIDDLE:,}. (Runs of 300 steps on seed 1000 came first; they set where the grid
  begins, and that the embeddings keep torch's numbers.) The *best slope* is that of the lowest
  validation loss in the search at {MIDDLE:,}.
- **Judged seeds** are others: {len(JUDGED)} at {SHORT:,} and {MIDDLE:,} steps, and
  {len(SEEDS[LONG])} at {LONG:,} for ReLU^2, the best slope and the learned one.
- **No difference that matters**: the 90 % interval of the difference of test losses, paired by
  seed, is within {MATTERS}. Else **better** means: the difference is below 0 by its whole 95 %
  interval, and larger than what one step of the rate changes for either function. That is the
  change of the validation loss to the better of the two neighbouring rates; at {LONG:,} steps, the
  change at {MIDDLE:,}. All else is *not clear*, and so is a difference of which a seed diverged.
- **Learning wins** if the learned slope is better than each fixed one at {MIDDLE:,} steps. *A fixed
  slope does as well* if the best slope is better than it, or does not differ in what matters.
- **Slopes fall with depth** if the line through the blocks' mean |a| falls, by the 95 % interval
  over seeds, at {MIDDLE:,} and at {LONG:,} steps. Slopes above 1 are shown, too, as 1 / a.
- **No answer** is given where ReLU^2, the best slope or the learned one is not better than no
  activation at {SHORT:,} and at {MIDDLE:,} steps; where {MIDDLE:,} and {LONG:,} steps order two of
  the three differently, at least one of the two differences with an interval without 0; or where a
  judged seed of these functions diverged.
"""

STATEMENTS = (
    ("a slope of 0.5 is better than ReLU^2 (parameter-golf#1035, modded-nanogpt#249)", "0.5", "0"),
    ("a slope of 0.75 is better than 0.5 (parameter-golf#977)", "0.75", "0.5"),
    ("a learned slope is better than 0.5 (parameter-golf#1035)", LEARNED, "0.5"),
)
MEASURES = {"slopes": "abs(a)", "folded": "min(abs(a), 1 / abs(a))", "steep": "abs(a) > 1"}
VERDICTS = {
    "better": "better",
    "worse": "worse",
    "same": "no difference that matters",
    "unclear": "not clear",
}
WORDS = {
    "better": "seen here",
    "worse": "opposite seen here",
    "same": "no difference that matters here",
    "unclear": "not clear here",
}

Run = dict[str, Any]  # a line of the file: see `train` in studies/language_model.py


def key(run: Run) -> tuple[str, int, float, int]:
    return run["arm"], run["steps"], run["rate"], run["seed"]


def read_runs() -> list[Run]:
    """Return what was measured so far; of two runs of the same, the first."""
    with reading(RUNS, "restore it from git"):
        lines = RUNS.read_text().splitlines() if RUNS.exists() else []
        runs = [json.loads(line) for line in lines]
        return list({key(run): run for run in reversed(runs)}.values())[::-1]


# --- rates ---------------------------------------------------------------------------------------


def searched(runs: Sequence[Run], arm: str, steps: int) -> dict[float, float]:
    """Return the mean validation loss by rate; infinity where a run diverged."""
    losses: dict[float, list[float]] = {}
    for run in runs:
        if (run["arm"], run["steps"]) == (arm, steps) and run["seed"] in SEARCHED:
            losses.setdefault(run["rate"], []).append(
                math.inf if run["val"] is None else run["val"]
            )
    return {
        r: fmean(values) for r, values in sorted(losses.items()) if len(values) == len(SEARCHED)
    }


def rate_at(place: int) -> float:
    """Return a rate of the grid, in half octaves from the first."""
    return float(f"{FIRST_RATE * 2 ** (place / 2):.4g}")


def neighbours(rate: float, steps: int) -> tuple[float, float]:
    """Return the rates one step of the grid below and above."""
    place, stride = round(2 * math.log2(rate / FIRST_RATE)), STRIDES[min(steps, MIDDLE)]
    return rate_at(place - stride), rate_at(place + stride)


def missing_rates(means: dict[float, float], steps: int) -> list[float]:
    """Return the rates that the search still needs: none once the best has neighbours."""
    best = min(means, key=means.__getitem__)
    return [rate for rate in neighbours(best, steps) if rate not in means]


def best_rate(runs: Sequence[Run], arm: str, steps: int) -> float | None:
    """Return the rate for so many steps, or None as long as its search is not done."""
    means = searched(runs, arm, min(steps, MIDDLE))
    return None if not means or missing_rates(means, steps) else min(means, key=means.__getitem__)


def rate_matters(runs: Sequence[Run], arm: str, steps: int) -> float:
    """Return by how much the better of the best rate's neighbours is worse."""
    means = searched(runs, arm, min(steps, MIDDLE))
    best = min(means, key=means.__getitem__)
    return min(means[rate] for rate in neighbours(best, steps)) - means[best]


def best_slope(runs: Sequence[Run]) -> str | None:
    """Return the slope of the lowest validation loss at MIDDLE steps, or None as long as not all
    of them were searched."""
    if any(best_rate(runs, slope, MIDDLE) is None for slope in SLOPES):
        return None
    return min(SLOPES, key=lambda slope: min(searched(runs, slope, MIDDLE).values()))


def arms_of(runs: Sequence[Run], steps: int) -> tuple[str, ...]:
    """Return what runs so many steps."""
    if steps < LONG:
        return ARMS
    return tuple(dict.fromkeys(("0", best_slope(runs) or "0", LEARNED)))


# --- differences ---------------------------------------------------------------------------------


def judged(runs: Sequence[Run], arm: str, steps: int) -> dict[int, Run]:
    """Return the judged runs by seed, at the rate that the search found."""
    rate = best_rate(runs, arm, steps)
    of_arm = [run for run in runs if (run["arm"], run["steps"], run["rate"]) == (arm, steps, rate)]
    return {run["seed"]: run for run in of_arm if run["seed"] in SEEDS[steps]}


@dataclass(frozen=True)
class Gap:
    """The test loss of one function minus that of another, and what it means. narrow: its 90 %
    interval. rate: the smallest difference that counts."""

    mean: Mean
    narrow: tuple[float, float]
    rate: float
    verdict: str

    def __str__(self) -> str:
        return interval(self.mean)


def gap(runs: Sequence[Run], one: str, other: str, steps: int) -> Gap | None:
    """Return the difference over the seeds that both ran; None where a run diverged, or where there
    are not two."""
    ours, theirs = judged(runs, one, steps), judged(runs, other, steps)
    pairs = [(ours[seed]["test"], theirs[seed]["test"]) for seed in ours if seed in theirs]
    if len(pairs) < 2 or any(None in pair for pair in pairs):
        return None
    values = [a - b for a, b in pairs]
    mean = mean_of(values)
    low, high = t_interval(values, 0.90)
    rate = max(rate_matters(runs, arm, steps) for arm in (one, other))
    if low > -MATTERS and high < MATTERS:
        verdict = "same"
    elif mean.excludes_zero and abs(mean.mean) > rate:
        verdict = "better" if mean.mean < 0 else "worse"
    else:
        verdict = "unclear"
    return Gap(mean, (low, high), rate, verdict)


def verdict(runs: Sequence[Run], one: str, other: str, steps: int) -> str:
    difference = gap(runs, one, other, steps)
    return difference.verdict if difference else "unclear"


def interval(mean: Mean) -> str:
    return f"{mean.mean:+.4f} ({mean.low:+.4f} to {mean.high:+.4f})"


def trend(runs: Sequence[Run], steps: int, key: str = "slopes") -> Mean | None:
    """Return the change of the blocks' mean |a| from block to block, by least squares."""
    centred = [place - (BLOCKS - 1) / 2 for place in range(BLOCKS)]
    square = sum(place**2 for place in centred)
    slopes = [run[key] for run in judged(runs, LEARNED, steps).values() if run[key]]
    changes = [sum(p * a for p, a in zip(centred, s, strict=True)) / square for s in slopes]
    return mean_of(changes) if len(changes) > 1 else None


# --- the page ------------------------------------------------------------------------------------


def name(arm: str) -> str:
    return NAMES.get(arm, arm)


def losses_table(runs: Sequence[Run], steps: int) -> str:
    head = ["slope", "rate", "one step of it", "seeds", "diverged", "test loss", "std over seeds"]
    rows = []
    for arm in arms_of(runs, steps):
        if not (done := judged(runs, arm, steps)):
            continue
        losses = [run["test"] for run in done.values() if run["test"] is not None]
        rows.append(
            [
                *(name(arm), f"{best_rate(runs, arm, steps):g}"),
                *(f"{rate_matters(runs, arm, steps):.4f}", str(len(done))),
                *(str(len(done) - len(losses)), f"{fmean(losses):.4f}" if losses else ""),
                f"{stdev(losses):.4f}" if len(losses) > 1 else "",
            ]
        )
    return markdown(head, rows) if rows else "Not run yet.\n"


def slopes_table(runs: Sequence[Run]) -> str:
    blocks = [f"block {i + 1}" for i in range(BLOCKS)]
    head = ["steps", "mean of", *blocks, "change from block to block"]
    rows = []
    for steps, (key, words) in product(SEEDS, MEASURES.items()):
        slopes = [run[key] for run in judged(runs, LEARNED, steps).values() if run[key]]
        change = trend(runs, steps, key)
        if slopes and change:
            means = [f"{fmean(values):.3f}" for values in zip(*slopes, strict=True)]
            rows.append([f"{steps:,}", words, *means, interval(change)])
    return markdown(head, rows) if rows else "Not run yet.\n"


def search_lines(runs: Sequence[Run], steps: int) -> str:
    lines = []
    for arm in ARMS:
        means = searched(runs, arm, steps)
        cells = [f"{loss:.4f} at {rate:g}" for rate, loss in means.items()]
        lines.append(f"- {name(arm)}: {', '.join(cells) or 'not run yet'}")
    return "\n".join(lines) + "\n"


def is_complete(runs: Sequence[Run]) -> bool:
    return best_slope(runs) is not None and all(
        len(judged(runs, arm, steps)) == len(seeds)
        for steps, seeds in SEEDS.items()
        for arm in arms_of(runs, steps)
    )


def obstacles(runs: Sequence[Run]) -> Iterator[str]:
    """Yield why no answer is given."""
    three = arms_of(runs, LONG)
    for steps in (SHORT, MIDDLE):
        for arm in three:
            difference = gap(runs, arm, NONE, steps)
            if difference is None:  # all runs are there
                yield f"At {steps:,} steps, a seed of {name(arm)} or of no activation diverged."
            elif difference.verdict != "better":
                yield f"At {steps:,} steps, {name(arm)} is not better than no activation."
    for one, other in combinations(three, 2):
        gaps = [gap(runs, one, other, steps) for steps in (MIDDLE, LONG)]
        means = [g.mean for g in gaps if g]
        if len(means) < 2:
            yield f"{name(one)} or {name(other)} diverged."
        elif means[0].mean * means[1].mean < 0 and any(mean.excludes_zero for mean in means):
            yield f"{MIDDLE:,} and {LONG:,} steps order {name(one)} and {name(other)} differently."


def pairs_table(runs: Sequence[Run]) -> str:
    """Return the differences between the functions that ran longest, with their verdicts."""
    head = ["difference", "steps", "95 % interval", "90 % interval", "one step of the rate", "here"]
    rows = []
    for (other, one), steps in product(combinations(arms_of(runs, LONG), 2), SEEDS):
        if difference := gap(runs, one, other, steps):
            low, high = difference.narrow
            words = f"{name(one)} minus {name(other)}"
            narrow, rate = f"{low:+.4f} to {high:+.4f}", f"{difference.rate:.4f}"
            here = VERDICTS[difference.verdict]
            rows.append([words, f"{steps:,}", str(difference), narrow, rate, here])
    return markdown(head, rows)


def answer(runs: Sequence[Run]) -> str:
    if not is_complete(runs):
        return "Not all runs are done yet.\n"
    if reasons := list(obstacles(runs)):
        return " ".join(["**No answer.**", *reasons]) + "\n"

    best = best_slope(runs) or "0"
    against = {slope: verdict(runs, LEARNED, slope, MIDDLE) for slope in SLOPES}
    if set(against.values()) == {"better"}:
        learned = "**Learning wins**: the learned slope is better than each fixed one."
    elif against[best] in ("worse", "same"):
        learned = f"**A fixed slope does as well**: {name(best)}, the best in the search."
    else:
        learned = "**Not clear** whether a learned slope is better than the best fixed one."
    changes = [trend(runs, steps) for steps in (MIDDLE, LONG)]
    falls = all(change and change.high < 0 for change in changes)
    rises = all(change and change.low > 0 for change in changes)
    depth = "fall with depth" if falls else "rise with depth" if rises else "have no clear trend"
    statements = []
    for words, one, other in STATEMENTS:
        difference = str(gap(runs, one, other, MIDDLE) or "a run diverged")
        statements.append([words, difference, WORDS[verdict(runs, one, other, MIDDLE)]])
    table = markdown(["public statement", f"difference at {MIDDLE:,} steps", "verdict"], statements)
    first = f"{learned} **Learned slopes {depth}** at {MIDDLE:,} and {LONG:,} steps."
    return f"{first}\n\n{pairs_table(runs)}\n{table}"


def page(runs: Sequence[Run]) -> str:
    texts = sorted({run["text"] for run in runs})
    if len(texts) > 1:
        raise InputError(f"the runs are of several texts: {listed(texts)}; keep those of one")
    hours = sum(run["seconds"] for run in runs) / 3600
    about = f"{len(runs)} runs, {hours:.1f} core-hours; sha256 of the text: {texts[0]}...\n"
    parts = [HEAD, f"## Answer\n\n{answer(runs)}\n{NOTES.read_text()}", "## Losses\n", about]
    parts += [f"### {steps:,} steps\n\n{losses_table(runs, steps)}" for steps in SEEDS]
    parts.append(
        f"## Learned slopes\n\nMeans over the hidden units of each block.\n\n{slopes_table(runs)}"
    )
    for steps in (SHORT, MIDDLE):
        parts.append(f"## The search at {steps:,} steps\n\n{search_lines(runs, steps)}")
    return "\n".join(parts)


def write_page(check: bool) -> None:
    runs = read_runs()
    if not runs:
        raise InputError(
            "results/language_model.jsonl has no runs yet; run python studies/language_model.py"
        )
    command = "python studies/language_model_page.py"
    write_or_check({RESULTS / "LANGUAGE_MODEL.md": page(runs)}, check, command)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 if the page is stale")
    with cli_errors():
        write_page(parser.parse_args().check)
