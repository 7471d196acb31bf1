"""What is counted of a network's outputs: exact errors, calibration, and the responses of its
activations."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn
from torchmetrics import Metric

NUMBERS_AT_A_TIME = 2**16  # of float64: what the processor's caches hold
BINS = 15  # of equal width, as in Guo et al. (2017)
# The weight of the mean logarithm beside the logarithm of the mean: it moves a score by some units
# in the last place of float64, which decides between equal means alone.
TIE_BREAK = 1e-15


@dataclass(frozen=True)
class Errors:
    """Counts over `num_images` images; `top5_correct` is None for five classes or fewer, where it
    would be trivial."""

    num_images: int
    top1_correct: int
    top5_correct: int | None

    @property
    def top1_error_pct(self) -> float:
        return 100 * (self.num_images - self.top1_correct) / self.num_images

    @property
    def top5_error_pct(self) -> float | None:
        if self.top5_correct is None:
            return None
        return 100 * (self.num_images - self.top5_correct) / self.num_images

    def as_dict(self) -> dict[str, float | None]:
        """Return the counts and the errors in percent, by their names in a record."""
        percent = {"top1_error_pct": self.top1_error_pct, "top5_error_pct": self.top5_error_pct}
        return asdict(self) | percent


def log_probabilities(scores: Tensor) -> Tensor:
    """Return the log-softmax of scores [..., classes], float64.

    The softmax itself does not rank all classes: in float32 it is 0 for each score that is about
    104 below the highest, and 1 for one that is 17 above all others."""
    return scores.double().log_softmax(dim=-1)


def mean_log_scores(
    log_scores: Tensor, dim: int = 0, weights: Sequence[float] | None = None
) -> Tensor:
    """Return the logarithm of the mean softmax over `dim`, float64.

    weights: of the mean, which add up to 1; None: all are equal.

    Views that are sure of different classes give these one mean, to the last digit. The mean of
    the logarithms decides between such classes."""
    if weights is None:
        weights = [1 / log_scores.shape[dim]] * log_scores.shape[dim]
    share = torch.tensor(weights, dtype=torch.float64, device=log_scores.device)
    dims_after = log_scores.dim() - 1 - dim
    share = share.view(-1, *[1] * dims_after)
    mean = (log_scores + share.log()).logsumexp(dim)
    return mean + TIE_BREAK * (share * log_scores).sum(dim)


def mean_over_views(scores: Tensor) -> Tensor:
    """Return the logarithm of the mean softmax over views of scores [N, V, classes], float64
    [N, classes]."""
    images = max(1, NUMBERS_AT_A_TIME // scores[0].numel())
    parts = scores.split(images)
    return torch.cat([mean_log_scores(log_probabilities(part), dim=1) for part in parts])


def is_correct(scores: Tensor, labels: Tensor, top_k: int = 1) -> Tensor:
    """Return whether each image's label is among its `top_k` highest scores, ties lost, bool [N].

    scores: [N, classes]; labels: [N]. The rank is strict: an answer is correct when fewer than
    `top_k` other classes score at least as high as the label's. A tie with a wrong class is an
    error, so that a network that gives all classes the same score is wrong everywhere instead of
    right by the order of the classes. An image with a score that is not finite is an error."""
    rivals = (scores >= scores.gather(1, labels[:, None])).sum(1) - 1
    return (rivals < top_k) & torch.isfinite(scores).all(1)


class ErrorCounter(Metric):
    """Counts top-1 and top-5 answers by `is_correct`; update(scores [N, classes], labels [N])."""

    full_state_update = False
    num_images: Tensor
    top1_correct: Tensor
    top5_correct: Tensor

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes
        for state in ("num_images", "top1_correct", "top5_correct"):
            self.add_state(state, torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, scores: Tensor, labels: Tensor) -> None:
        self.num_images += len(labels)
        self.top1_correct += is_correct(scores, labels).sum()
        self.top5_correct += is_correct(scores, labels, top_k=5).sum()

    def compute(self) -> Tensor:
        """Return (images, top-1, top-5), int64 [3]; torchmetrics sums them over processes."""
        return torch.stack([self.num_images, self.top1_correct, self.top5_correct])

    def errors(self) -> Errors:
        """Return the counts so far, over all processes."""
        num_images, top1, top5 = self.compute().tolist()
        return Errors(num_images, top1, top5 if self.num_classes > 5 else None)


def calibration(log_scores: Tensor, labels: Tensor) -> dict[str, float | None]:
    """Return `nll`, `brier` and `ece` of log-probabilities [N, classes] against labels [N].

    nll: the mean negative log-likelihood in nats. brier: the mean of sum_c (p_c - y_c)^2, from 0 to
    2. ece: the expected calibration error of the top-1 answer, from 0 to 1, over `BINS` bins of
    its confidence that include their lower ends, and the last one 1. All are None if a
    log-probability is not finite (the network diverged)."""
    log_scores = log_scores.double()
    if not torch.isfinite(log_scores).all():
        return {"nll": None, "brier": None, "ece": None}

    label_log_score = log_scores.gather(1, labels[:, None])[:, 0]
    label_score = label_log_score.exp()
    sum_of_squares = (2 * log_scores).exp().sum(1)

    top_log_score, answer = log_scores.max(dim=1)
    confidence = top_log_score.exp().clamp(max=1)  # a mean may be rounded up
    bins = (BINS * confidence).long().clamp(max=BINS - 1)
    # a bin's share of the images times its |accuracy - mean confidence|
    gaps = torch.bincount(bins, weights=(answer == labels).double() - confidence)
    return {
        "nll": -float(label_log_score.mean()),
        "brier": float((sum_of_squares - 2 * label_score + 1).mean()),
        "ece": float(gaps.abs().sum()) / len(labels),
    }


# Statistics of a layer's responses: mean and std over images, channels and positions; the share
# that is positive, a rectifier's measure of sparsity; and how many channels were never positive
# anywhere. Without a slope on the negative side such a dead unit gets no gradient.
RESPONSES = ("response_mean", "response_std", "active_share", "dead_units")


class ResponseMeter(Metric):
    """Measures the outputs of activations while it is `listening`; its state is sums, so batches
    and processes add up.

    activations: by layer the module, which returns [N, channels, ...] or tokens [N, T, channels],
    and its number of channels. An activation does not know which of the two it returns: where there
    are as many tokens as channels, `dead_units` counts tokens.
    """

    full_state_update = False
    total: Tensor
    squares: Tensor
    count: Tensor
    positive: Tensor

    def __init__(self, activations: Mapping[str, tuple[nn.Module, int]]) -> None:
        super().__init__()
        self._names = list(activations)
        self._units = [units for _, units in activations.values()]
        self._ends = list(accumulate(self._units))
        # A tuple hides the modules from torch: as children they would bring their weights along.
        self._activations = tuple(module for module, _ in activations.values())

        layers, units = len(activations), sum(self._units)
        self.add_state("total", torch.zeros(layers, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("squares", torch.zeros(layers, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros(layers, dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("positive", torch.zeros(units, dtype=torch.int64), dist_reduce_fx="sum")

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Measure every forward pass in the body."""

        def hook_of(layer: int) -> Callable[[nn.Module, object, Tensor], None]:
            def measure(module: nn.Module, inputs: object, output: Tensor) -> None:
                self.update(layer, output.detach())

            return measure

        with ExitStack() as hooks:
            for layer, module in enumerate(self._activations):
                hooks.enter_context(module.register_forward_hook(hook_of(layer)))
            yield

    def update(self, layer: int, responses: Tensor) -> None:
        """Add responses [N, channels, ...] of the layer with this position among `activations`."""
        units, end = self._units[layer], self._ends[layer]
        if responses.dtype.itemsize < 4:  # half precision is too coarse for sums
            responses = responses.float()

        # A batch is summed in its own precision, which is many times faster; batches in double.
        self.total[layer] += responses.sum().double()
        self.squares[layer] += torch.linalg.vector_norm(responses).double() ** 2
        self.count[layer] += responses.numel()

        # over images first: the fastest way to a count per unit
        positive = (responses > 0).float().sum(0).long()
        are_tokens = len(positive) != units and positive.shape[-1] == units  # [T, channels]
        if are_tokens:
            positive = positive.movedim(-1, 0)
        self.positive[end - units : end] += positive.reshape(units, -1).sum(1)

    def compute(self) -> Tensor:
        """Return `RESPONSES` of every layer, over all processes: [4, layers]."""
        mean = self.total / self.count
        std = (self.squares / self.count - mean**2).clamp(min=0).sqrt()
        by_layer = self.positive.split(self._units)
        active = torch.stack([positive.sum() for positive in by_layer]).double() / self.count
        dead = torch.stack([(positive == 0).sum() for positive in by_layer]).double()
        return torch.stack([mean, std, active, dead])

    def row(self) -> dict[str, float]:
        """Return the statistics so far as `<statistic>/<layer>`, over all processes."""
        if not self._names:
            return {}
        row = {}
        for statistic, values in zip(RESPONSES, self.compute().tolist(), strict=True):
            for name, value in zip(self._names, values, strict=True):
                row[f"{statistic}/{name}"] = int(value) if statistic == "dead_units" else value
        return row
