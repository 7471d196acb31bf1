"""What a claim measures of a run: functions of its record alone.

A run that diverged counts. Where it has no number of its own it gets that of guessing: the error
and the loss of a network that gives all classes the same score, a loss that was not reached. Where
not even that says anything (the responses of a network that is gone) a measure is None."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from statistics import correlation, fmean, geometric_mean
from typing import TypeVar

from rectifiers.results.paper import table_1_slopes
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.schema import JsonObject

F = TypeVar("F", bound=Callable[..., float | None])
MEASURES: dict[str, Callable[..., float | None]] = {}
WORDS: dict[str, str] = {}  # by measure
RELATIVE = ("epochs_to_reach",)  # measures of a run beside another, the reference
UNITS = {
    "error": "%",
    "error_beyond": "points",
    "fisher/natural_angle": "degrees",
}
SETTINGS: dict[object, str] = {  # of a measure, in words
    "center": "centre crop",
    "ten_view": "ten views",
    "multi_view": "multi-view testing",
    "ten_view_192": "ten views at 192 px",
    "dense": "dense testing",
    "dense_192": "dense testing at 192 px",
    "dense_multi_scale": "dense testing at several scales",
    "dense_and_multi_view": "dense and multi-view testing",
    ("shared", True): "per layer",
    ("shared", False): "per channel",
    ("every", True): "all layers",
    ("every", False): "conv layers",
}
KEYS = {  # of an epoch's numbers, in words
    "train_loss": "training loss",
    "active_share": "share of positive responses of {}",
    "equivariance/intensity": "share of predictions that change with the intensity",
    "equivariance/translation": "share of predictions that change with the position",
    "fisher/cross": "mean normalised Fisher entry between the layers",
    "fisher/first": "mean normalised Fisher entry within the first layer",
    "fisher/largest_over_mean": "largest eigenvalue of the Fisher matrix over the mean eigenvalue",
    "fisher/natural_angle": "angle between gradient and natural gradient",
    "fisher/off_over_diagonal": "norm of the Fisher matrix off the diagonal over that on it",
    "fisher/output_units": "mean normalised Fisher entry of two output weights of one class",
    "fisher/shortcut": "mean normalised Fisher entry of a shortcut and another weight",
    "rank": "rank of the weights of {}",
    "response_std": "std of the responses of {}",
    "signs": "abs(mean of the gradients' signs) of a unit of {}",
    "straight": "straightness of the path of the weights of {}",
}


def measure(words: str) -> Callable[[F], F]:
    """Register a measure: a function of a record, and of the settings that a claim gives. `words`
    are for readers, with the settings in braces."""

    def register(function: F) -> F:
        MEASURES[function.__name__] = function
        WORDS[function.__name__] = words
        return function

    return register


def in_words(name: str, settings: Mapping[str, object]) -> str:
    """Return a measure with its settings in words, as in `training loss falls below 0.5`."""
    bound = inspect.signature(MEASURES[name]).bind({}, **settings)
    bound.apply_defaults()
    return WORDS[name].format(**{key: _setting(key, x) for key, x in bound.arguments.items()})


def _setting(name: str, value: object) -> str:
    if name == "key":
        key, _, layer = str(value).partition("_damped_")[0].partition("/")
        return KEYS.get(f"{key}/{layer}") or KEYS.get(key, str(value)).format(layer)
    return SETTINGS.get((name, value) if isinstance(value, bool) else str(value), str(value))


def unit_of(name: str, settings: Mapping[str, object]) -> str:
    """Return the unit of a measure; empty where it has none."""
    return UNITS.get(str(settings.get("key", name)).partition("_damped_")[0], "")


def has_diverged(record: TrainingRecord) -> bool:
    """Return whether the run ended with a loss that was not finite."""
    return record.status == "diverged"


def _guess(record: TrainingRecord, key: str) -> float | None:
    """What guessing gives: a top-1 error in percent, or a loss in nats; else None."""
    classes = record.network.classes
    if key.endswith("top1_error_pct"):
        return 100 * (1 - 1 / classes)
    return math.log(classes) if key.endswith("loss") else None


@measure("top-1 error, {protocol}")
def error(record: TrainingRecord, protocol: str = "center") -> float | None:
    """Return the top-1 error in percent."""
    if has_diverged(record):
        return _guess(record, "top1_error_pct")
    if protocol not in record.protocols:
        raise InputError(
            f"run {record.run} was not tested by {protocol}; test it by "
            f"{record.command or 'train.py'}, and call scripts/report.py collect"
        )
    return float(record.protocols[protocol].top1_error_pct)


@measure("top-1 error, {protocol} minus {other}")
def error_beyond(record: TrainingRecord, other: str, protocol: str) -> float | None:
    """Return by how many points a network's top-1 error by `protocol` exceeds that by `other`."""
    first, second = error(record, protocol), error(record, other)
    return None if first is None or second is None else first - second


@measure("{key}, last epoch")
def final(record: TrainingRecord, key: str = "train_loss") -> float | None:
    """Return the last epoch's number: the mean training loss over that epoch, say."""
    value = None if has_diverged(record) else record.history[-1][key]
    return _guess(record, key) if value is None else float(value)


@measure("training loss, mean over {epochs} epochs")
def mean_over(record: TrainingRecord, epochs: int) -> float:
    """Return the mean training loss over the first epochs; lost epochs count as guessing."""
    losses = record.curve("train_loss")[:epochs]
    losses += [math.nan] * (epochs - len(losses))
    guess = math.log(record.network.classes)
    return fmean(guess if math.isnan(loss) else loss for loss in losses)


@measure("training loss falls below {below}")
def reached(record: TrainingRecord, below: float) -> float:
    """Return 1 where an epoch's training loss was below, before a divergence too, else 0."""
    return float(any(loss < below for loss in record.curve("train_loss")))


@measure("epochs for the reference's training loss, over the reference's epochs")
def epochs_to_reach(
    record: TrainingRecord, at: Sequence[int], reference: TrainingRecord | None = None
) -> float | None:
    """Return how many times the reference's epochs a run needs for the same training loss: the
    geometric mean over the reference's epochs `at`, of the reference itself 1.

    Losses are those before the first drop of the learning rate, smoothed by a centred mean of three
    epochs, and are interpolated linearly after the last epoch above the level. A level that is not
    reached counts as reached in the last epoch, so the result is a lower bound (`is_bound`). A
    reference that diverged has no levels, and the result is None."""
    if reference is None or has_diverged(reference):
        return None
    if record is reference:
        return 1.0
    last = len(_before_first_drop(reference if has_diverged(record) else record)) - 1
    factors = [min(x, last) / e for x, e in zip(_times(record, at, reference), at, strict=True)]
    return geometric_mean(factors)


def is_bound(record: TrainingRecord, at: Sequence[int], reference: TrainingRecord) -> bool:
    """Return whether the run reaches one of the levels of `epochs_to_reach` in no epoch."""
    if record is reference or has_diverged(reference):
        return False
    return math.inf in _times(record, at, reference)


def _times(record: TrainingRecord, at: Sequence[int], reference: TrainingRecord) -> list[float]:
    """After how many epochs the run is below the reference's loss of each epoch `at`; infinity
    where it is in none."""
    losses, levels = _smoothed(record), _smoothed(reference)
    if not levels.keys() >= set(at):
        raise InputError(
            f"run {reference.run} has no smoothed training loss at every epoch of {list(at)} "
            "before its first drop of the learning rate; give earlier epochs"
        )
    return [_time_below(losses, levels[epoch]) for epoch in at]


def _time_below(losses: Mapping[int, float], level: float) -> float:
    """After how many epochs the losses stay at the level or below it."""
    above = max((epoch for epoch, loss in losses.items() if not loss <= level), default=None)
    if above is None:
        return float(min(losses, default=math.inf))
    if above + 1 not in losses:
        return math.inf
    before, after = losses[above], losses[above + 1]
    return above + (before - level) / (before - after)


def _smoothed(record: TrainingRecord) -> dict[int, float]:
    """By epoch the mean training loss of it and its neighbours, before the rate drops."""
    losses = _before_first_drop(record)
    return {i + 1: fmean(losses[i - 1 : i + 2]) for i in range(1, len(losses) - 1)}


def _before_first_drop(record: TrainingRecord) -> list[float]:
    drops = record.drop_epochs
    return list(record.curve("train_loss"))[: drops[0] if drops else None]


@measure("the run diverges")
def diverged(record: TrainingRecord) -> float:
    """Return 1 where the loss stopped being finite, else 0."""
    return float(has_diverged(record))


def _units(record: TrainingRecord) -> dict[str, int]:
    """The channels of every layer that an activation follows."""
    return {entry.layer: entry.shape[0] for entry in record.init_report if entry.activation_after}


@measure("share of hidden units that are positive on no validation image")
def dead_share(record: TrainingRecord) -> float | None:
    """Return the share of hidden units that are positive on no validation image, at the end."""
    if has_diverged(record):
        return None
    units = _units(record)
    return sum(record.curve(f"dead_units/{layer}")[-1] for layer in units) / sum(units.values())


def _responses(record: TrainingRecord, row: JsonObject) -> list[tuple[float, float]] | None:
    """(mean, std) of every hidden layer, from the first; None where a number is missing or a layer
    is silent."""
    layers = _units(record)
    pairs = [(row[f"response_mean/{layer}"], row[f"response_std/{layer}"]) for layer in layers]
    return None if any(mean is None or not std for mean, std in pairs) else pairs


@measure("abs(mean) / std of the responses, mean over layers")
def mean_response(record: TrainingRecord) -> float | None:
    """Return |mean| / std of the responses on validation images, mean over hidden layers, at the
    end."""
    pairs = None if has_diverged(record) else _responses(record, record.history[-1])
    return None if pairs is None else fmean(abs(mean) / std for mean, std in pairs)


@measure("factor per layer on the RMS of the responses")
def signal_kept(record: TrainingRecord) -> float | None:
    """Return by what a layer multiplies the root mean square of the responses after the first
    epoch: the geometric mean from the first hidden layer to the last."""
    pairs = None if has_diverged(record) else _responses(record, record.history[0])
    if pairs is None:
        return None
    (m1, s1), *_, (m2, s2) = pairs
    return float(((m2**2 + s2**2) / (m1**2 + s1**2)) ** (0.5 / (len(pairs) - 1)))


@measure("learned slope, mean over layers")
def mean_slope(record: TrainingRecord) -> float | None:
    """Return the learned slope, the mean over layers of the mean over channels."""
    return fmean(slope.mean for slope in record.slopes.values()) if record.slopes else None


@measure("rank correlation of slope and depth, {every}")
def slope_trend(record: TrainingRecord, every: bool = False) -> float | None:
    """Return Spearman's correlation of slopes with their depth, over conv layers or every layer."""
    from scipy.stats import spearmanr  # here and not above: it takes a second

    slopes = list(_slopes(record, every).values())
    return float(spearmanr(range(len(slopes)), slopes).statistic) if slopes else None


def _slopes(record: TrainingRecord, every: bool = False) -> dict[str, float]:
    """The learned slopes of the conv layers, or of every layer, by depth; means over channels."""
    layers = [entry.layer for entry in record.init_report if entry.layer in record.slopes]
    layers = [layer for layer in layers if every or layer.startswith("conv")]
    return {layer: record.slopes[layer].mean for layer in layers}


@measure("slope of conv1 minus the mean of the other conv layers")
def slope_of_first(record: TrainingRecord) -> float | None:
    """Return by how much the first conv layer's slope exceeds the mean of the others."""
    slopes = list(_slopes(record).values())
    return slopes[0] - fmean(slopes[1:]) if len(slopes) > 1 else None


@measure("slope before a pooling minus the mean of its stage's others")
def slope_before_pooling(record: TrainingRecord) -> float | None:
    """Return by how much the slope of a stage's last layer (of conv2_1 to conv2_4, say, after which
    the maps are pooled) exceeds the mean of the stage's others; mean over stages."""
    stages: dict[str, list[float]] = {}
    for layer, slope in _slopes(record).items():
        stages.setdefault(layer.partition("_")[0], []).append(slope)
    excess = [slopes[-1] - fmean(slopes[:-1]) for slopes in stages.values() if len(slopes) > 1]
    return fmean(excess) if excess else None


@measure("correlation with the paper's slopes {shared}, {every}")
def paper_correlation(record: TrainingRecord, shared: bool, every: bool = False) -> float | None:
    """Return Pearson's correlation of the slopes with Table 1's, shared or channel-wise."""
    ours, papers = _slopes(record, every), table_1_slopes(shared)
    layers = [layer for layer in ours if layer in papers]
    if len({ours[layer] for layer in layers}) < 2:  # constant
        return None
    return correlation([ours[layer] for layer in layers], [papers[layer] for layer in layers])


@measure("training images per second")
def images_per_second(record: TrainingRecord) -> float | None:
    """Return the training images a second of wall clock, on the machine that it ran on."""
    return record.images_per_second
