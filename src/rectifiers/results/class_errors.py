"""A run's errors by class: with intervals, beside those of other runs, the largest confusions, and
the failures that it was most sure of. They follow from the scores that its test kept."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rectifiers.results.listing import USUAL_PROTOCOL, Run, text_table
from rectifiers.results.statistics import error_interval_pct, holm, mean_of, zero_mean_p
from rectifiers.runs.folder import scores_path
from rectifiers.runs.identity import SEEDS, run_id, without
from rectifiers.runs.record import EnsembleRecord, Record, TrainingRecord
from rectifiers.runtime.console import printable
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.schema import JsonObject

ROWS, CONFUSIONS, FAILURES, GUESSES = 20, 10, 12, 5  # shown at most
Pair = tuple[TrainingRecord, TrainingRecord]
Cell = Callable[[JsonObject], str]  # of a row


@dataclass(frozen=True)
class ScoredTest:
    """What a run answered on the images of a test: by class its name, by image its label and the
    logarithms of the mean softmax, float64 [images, classes], and which answers are correct."""

    record: TrainingRecord
    protocol: str
    names: Sequence[str]
    labels: np.ndarray
    scores: np.ndarray
    is_correct: np.ndarray
    data: str

    @property
    def failures(self) -> np.ndarray:
        """The images with a wrong answer that can be read: their scores are finite."""
        return np.flatnonzero(~self.is_correct & np.isfinite(self.scores).all(1))


def training(run: Run) -> TrainingRecord:
    """Return a run's record; an InputError where it is an ensemble's."""
    if isinstance(run.record, EnsembleRecord):
        members = ", ".join(member.run for member in run.record.members)
        raise InputError(f"{run.record.run} is an ensemble; give one of its runs: {members}")
    return run.record


def load_test(run: Run, protocol: str | None) -> ScoredTest:
    """Read a run's kept scores by a protocol; None: the usual one, or else one that was kept.

    Raises:
        InputError: where no scores were kept, or they are not of the test in the record.
    """
    from rectifiers.data.imagenette import NAMES  # here: these load torch
    from rectifiers.evaluation.evaluate import load_scores

    record = training(run)
    kept = [name for name, result in record.protocols.items() if result.scores]
    name = protocol or max(kept or [USUAL_PROTOCOL], key=lambda name: name == USUAL_PROTOCOL)
    path = scores_path(run.path.parent, name)

    # a name that is no word could lead out of the folder
    if name not in kept or not name.isidentifier() or run.origin != "own":
        raise InputError(
            f"run {record.run} kept no scores of {printable(name)}; call python "
            f"scripts/evaluate.py run={record.run} evaluation={printable(name)} "
            "evaluation.keep_scores=true"
        )
    scores, result = load_scores(path), record.protocols[name]
    if scores.digest() != result.scores or len(scores.labels) != result.num_images:
        raise InputError(f"{path} is not of the test in the run's record; remove it and test again")

    classes = scores.scores.shape[1]
    names = record.class_names or [str(label) for label in range(classes)]
    if len(names) != classes or not set(scores.labels.tolist()) <= set(range(classes)):
        raise InputError(f"{path} is of other classes than the run's record; test the run again")
    is_correct = np.array(result.is_correct())
    words = [NAMES.get(name, name) for name in names]
    return ScoredTest(record, name, words, scores.labels, scores.scores, is_correct, scores.data)


def errors_by_class(test: ScoredTest) -> list[JsonObject]:
    """Return each class that has images with its errors in percent and the 95 % interval (Wilson),
    the worst class first; the top-5 error is None for five classes or fewer."""
    import torch

    from rectifiers.evaluation.metrics import is_correct

    in_five = None
    if len(test.names) > GUESSES:
        scores, labels = torch.from_numpy(test.scores), torch.from_numpy(test.labels)
        in_five = is_correct(scores, labels, top_k=GUESSES).numpy()

    rows = []
    for label, images in _images_by_class(test.labels).items():
        errors = int((~test.is_correct[images]).sum())
        low, high = error_interval_pct(errors, len(images))
        rows.append(
            {
                "class": test.names[label],
                "num_images": len(images),
                "top1_errors": errors,
                "top1_error_pct": 100 * errors / len(images),
                "low_pct": low,
                "high_pct": high,
                "top5_error_pct": None if in_five is None else 100 * (~in_five[images]).mean(),
            }
        )
    return sorted(rows, key=lambda row: -row["top1_error_pct"])


def _images_by_class(labels: np.ndarray) -> dict[int, np.ndarray]:
    return {int(label): np.flatnonzero(labels == label) for label in np.unique(labels)}


def arms_to_compare(test: ScoredTest, known: Iterable[Record]) -> Pair | None:
    """Return a run with PReLU, or with the run's own activation, and one with ReLU that has all
    other settings of the run's, whatever the seeds; None without such runs."""
    alike = _but_seeds(test.record, "activation")
    by_activation = {test.record.choices.get("activation"): test.record}
    for record in known:
        if isinstance(record, TrainingRecord) and _but_seeds(record, "activation") == alike:
            by_activation.setdefault(record.choices.get("activation"), record)

    own = test.record.choices.get("activation")
    first = by_activation.get("prelu" if own == "relu" else own)
    second = by_activation.get("relu")
    return (first, second) if first and second else None


def _but_seeds(record: TrainingRecord, *but: str) -> str:
    """A hash of a run's settings without its seeds and the keys `but`; runs that start from other
    weights, which nothing tells apart here, are others."""
    return run_id(without(record.science, (*SEEDS, *but)))


def pairs_by_seed(test: ScoredTest, known: Iterable[Record], arms: Pair) -> dict[int, Pair]:
    """Return by seed the two runs that have the settings of the two of `arms`, where both were
    tested by the protocol of `test` on its images, with equal settings of the protocol."""
    first, second = (_tested_like(arm, arms[0], test, (*known, *arms)) for arm in arms)
    return {seed: (first[seed], second[seed]) for seed in sorted(first.keys() & second.keys())}


def _tested_like(
    arm: TrainingRecord, model: TrainingRecord, test: ScoredTest, known: Iterable[Record]
) -> dict[int, TrainingRecord]:
    """The runs of an arm by seed that have the test of `model`, on the images of `test`."""
    asked, own = model.protocols.get(test.protocol), test.record.protocols[test.protocol]
    wanted = _but_seeds(arm)
    runs: dict[int, TrainingRecord] = {}
    for record in known:
        result = record.protocols.get(test.protocol)
        if not isinstance(record, TrainingRecord) or asked is None or result is None:
            continue
        has_images = (result.split, result.num_images) == (own.split, own.num_images)
        has_images = has_images and record.provenance.data == test.data
        if has_images and result.settings == asked.settings and _but_seeds(record) == wanted:
            runs.setdefault(record.seed, record)
    return runs


def changes_by_class(test: ScoredTest, pairs: Mapping[int, Pair]) -> list[JsonObject]:
    """Return how the error of each class differs between two arms: the first's minus the second's,
    in points, as the mean over seeds; the class that profits most first.

    Of several seeds each has the 95 % interval and p (Student's t), and p corrected for the number
    of classes (Holm)."""
    wrong = []
    for pair in pairs.values():
        masks = [np.array(record.protocols[test.protocol].is_correct()) for record in pair]
        wrong.append((~masks[0]).astype(float) - ~masks[1])

    rows, p_values = [], []
    has_interval = len(pairs) > 1
    for label, images in _images_by_class(test.labels).items():
        changes = [100 * float(change[images].mean()) for change in wrong]
        mean = mean_of(changes)
        interval = {"low": mean.low, "high": mean.high} if has_interval else {}
        rows.append({"class": test.names[label], "points": mean.mean, **interval})
        p_values.append(zero_mean_p(changes))
    if has_interval:
        for row, p, corrected in zip(rows, p_values, holm(p_values), strict=True):
            row |= {"p": p, "p_corrected": corrected}
    return sorted(rows, key=lambda row: row["points"])


def largest_confusions(test: ScoredTest) -> list[JsonObject]:
    """Return for which class another is most often taken, with the number of images and their
    share of the class, in percent."""
    answers = _wrong_answers(test)
    counts = Counter(zip(test.labels[test.failures].tolist(), answers.tolist(), strict=True))
    images = Counter(test.labels.tolist())
    return [
        {
            "class": test.names[label],
            "taken_for": test.names[answer],
            "num_images": count,
            "share_pct": 100 * count / images[label],
        }
        for (label, answer), count in counts.most_common(CONFUSIONS)
    ]


def _wrong_answers(test: ScoredTest) -> np.ndarray:
    """The highest class but the label of each failure: a tie with the label is an error, too."""
    scores = test.scores[test.failures].copy()
    scores[np.arange(len(scores)), test.labels[test.failures]] = -np.inf
    return scores.argmax(1)


def most_confident_failures(test: ScoredTest) -> list[JsonObject]:
    """Return the wrong answers of the highest probability, the surest first: the image's place in
    the split, its class, and the five likeliest classes with their probabilities."""
    highest = test.scores[test.failures].max(1)
    surest = test.failures[np.argsort(-highest, kind="stable")[:FAILURES]]
    found = []
    for image in surest.tolist():
        scores = test.scores[image]
        guesses = np.argsort(-scores, kind="stable")[:GUESSES].tolist()
        found.append(
            {
                "image": image,
                "class": test.names[test.labels[image]],
                "guesses": [[test.names[g], math.exp(min(0.0, scores[g]))] for g in guesses],
            }
        )
    return found


def report(
    test: ScoredTest, known: Sequence[Record], arms: Pair | None = None
) -> tuple[JsonObject, str]:
    """Return all of a run's errors by class, as plain data and as tables.

    arms: the runs whose settings are compared over their seeds; None: see `arms_to_compare`."""
    chosen = arms or arms_to_compare(test, known)
    pairs = pairs_by_seed(test, known, chosen) if chosen else {}
    if arms and not pairs:
        raise InputError(
            f"--compare {arms[0].run} {arms[1].run}: no seed of both was tested by "
            f"{test.protocol} on the images of {test.record.run}; show protocol={test.protocol} "
            "lists those that were"
        )
    compared = None
    if chosen and pairs:
        compared = {
            "runs": [record.run for record in chosen],
            "activations": [record.choices.get("activation") for record in chosen],
            "seeds": list(pairs),
            "classes": changes_by_class(test, pairs),
        }
    numbers = {
        "run": test.record.run,
        "protocol": test.protocol,
        "split": test.record.protocols[test.protocol].split,
        "classes": errors_by_class(test),
        "compared": compared,
        "confusions": largest_confusions(test),
        "failures": most_confident_failures(test),
    }
    return numbers, tables(numbers)


def tables(numbers: JsonObject) -> str:
    """Return the numbers as tables for a terminal."""
    rows = numbers["classes"]
    images, errors = (sum(row[key] for row in rows) for key in ("num_images", "top1_errors"))
    free = sum(row["top1_errors"] == 0 for row in rows)
    parts = [
        f"{numbers['run']}  {numbers['protocol']} on {numbers['split']}: {errors:,} errors in "
        f"{images:,} images; {free} of {len(rows)} classes have none",
        _table(
            rows,
            {
                "class": lambda row: row["class"],
                "images": lambda row: f"{row['num_images']:,}",
                "top-1 error %": lambda row: f"{row['top1_error_pct']:.1f}",
                "95 % interval": lambda row: f"{row['low_pct']:.1f} to {row['high_pct']:.1f}",
                "top-5 error %": _top5,
            },
        ),
        _compared(numbers["compared"]),
        "the largest confusions",
        _table(
            numbers["confusions"],
            {
                "class": lambda row: row["class"],
                "taken for": lambda row: row["taken_for"],
                "images": lambda row: f"{row['num_images']:,}",
                "% of the class": lambda row: f"{row['share_pct']:.1f}",
            },
        ),
        "the failures it was most sure of",
        _table(
            numbers["failures"],
            {
                "image": lambda row: str(row["image"]),
                "class": lambda row: row["class"],
                "answer": lambda row: row["guesses"][0][0],
                "sure to %": lambda row: f"{100 * row['guesses'][0][1]:.1f}",
            },
        ),
    ]
    return "\n\n".join(parts)


def _top5(row: JsonObject) -> str:
    percent = row["top5_error_pct"]
    return "-" if percent is None else f"{percent:.1f}"


def _interval(row: JsonObject) -> str:
    """The interval of a change; none where all seeds have the same, as of a few images."""
    low, high = row["low"], row["high"]
    return f"{low:+.2f} to {high:+.2f}" if low < high else "-"


def _compared(compared: JsonObject | None) -> str:
    if compared is None:
        return (
            "no runs with PReLU and with ReLU that share the other settings, a seed and the test; "
            "name two runs by --compare"
        )
    rows, seeds = compared["classes"], compared["seeds"]
    lower, higher = (sum(sign * row["points"] > 0 for row in rows) for sign in (-1, 1))
    arms = zip(compared["activations"], compared["runs"], strict=True)
    named = " minus ".join(f"{activation} ({run})" for activation, run in arms)
    head = (
        f"{printable(named)}, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}: "
        f"lower in {lower} classes, higher in {higher}, equal in {len(rows) - lower - higher}"
    )
    columns: dict[str, Cell] = {
        "class": lambda row: row["class"],
        "change, points": lambda row: f"{row['points']:+.2f}",
    }
    if len(seeds) > 1:
        columns |= {
            "95 % interval": _interval,
            "p": lambda row: f"{row['p']:.2g}",
            f"p for {len(rows)} classes": lambda row: f"{row['p_corrected']:.2g}",
        }
    return f"{head}\n\n{_table(rows, columns)}"


def _table(rows: Sequence[JsonObject], columns: Mapping[str, Cell]) -> str:
    """The first rows, and how many there are beside them."""
    if not rows:
        return "none"
    shown = [[cell(row) for cell in columns.values()] for row in rows[:ROWS]]
    text = text_table(list(columns), shown)
    more = len(rows) - len(shown)
    return f"{text}\n{more:,} more: --json prints all" if more else text
