"""The report of `initialize`, and tables of layers as text and as Markdown."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from rectifiers.runtime.errors import InputError
from rectifiers.runtime.ranges import Range

Row = Sequence[str]
LARGEST = 1e150  # of a record's numbers: its square can still be represented
Positive = Annotated[int, Range(gt=0, lt=2**63)]
Number = Annotated[float, Range(ge=-LARGEST, le=LARGEST)]
Rate = Annotated[float, Range(gt=0, le=LARGEST)]
NonNegative = Annotated[float, Range(ge=0, le=LARGEST)]
# Mean squares of a signal or a gradient, in units of where it starts, beyond which a chain does not
# train; the explorer has the same. With Xavier and ReLU the paper's 22 layers (5e-7) converge,
# slowly, and its 30 layers (2e-9) do not. With twice He's std chains of ReLU learn where the signal
# is 2e6 times as large, and not where it is 3e7 times (200 steps of Adam).
VANISHED, EXPLODED = 1e-7, 1e7
GROWTH_LIMIT = 10.0  # of an error of the mean square, from the network's input on
LARGEST_BIAS = 0.3  # part of E[y^2] that biases may have: more of them drowns what a layer reads
LARGEST_RATIO = 4.0  # of measured and predicted, beside three standard deviations of its logarithm
ALIKE_IN_DATA = 1e-6  # 1 - c of two inputs that are alike already in the data


class Report:
    """A table with a row per layer. It prints as aligned text; a notebook shows its Markdown."""

    def cells(self) -> list[Row]:
        """Return the names of the columns, and a row per layer."""
        raise NotImplementedError

    def title(self) -> str:
        """Return what stands above the table."""
        return ""

    def notes(self) -> list[str]:
        """Return what stands below the table."""
        return []

    def to_markdown(self) -> str:
        """Return the table in Markdown, with the notes as a list below it."""
        head, *rows = self.cells()
        lines = [head, ["---"] * len(head), *rows]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        notes = "\n".join(f"- {note}" for note in self.notes())
        return "\n\n".join(filter(None, (self.title(), table, notes))).replace("<", "&lt;")

    def __str__(self) -> str:
        columns = map(_aligned, zip(*self.cells(), strict=True))
        lines = ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]
        return "\n".join([*filter(None, [self.title()]), *lines, *self.notes()])

    def _repr_markdown_(self) -> str:
        return self.to_markdown()


def _aligned(column: Row) -> list[str]:
    """Return a column below its name, numbers to the right and words to the left."""
    width = max(map(len, column))
    starts = (cell.replace("-", "").replace(".", "")[:1] for cell in column[1:] if cell)
    is_numeric = all(map(str.isdigit, starts))
    return [text.rjust(width) if is_numeric else text.ljust(width) for text in column]


@dataclass(frozen=True)
class Lost:
    """What does not arrive, in words without a remedy, and at which layer."""

    kind: Literal["not finite", "signal", "gradient", "inputs"]
    sentence: str
    layer: str
    is_later: bool = False  # at its last use, not at its first


@dataclass(frozen=True)
class LayerInit:
    """A layer that `initialize` filled.

    layer: the name of its weight.
    shape: the shape of its weight.
    fan_in: the number of inputs of one response.
    fan_out: the number of responses that one input reaches.
    reads: what the layer reads, in words.
    second_in: E[x^2], the mean square of what it reads.
    feeds: what reads its responses.
    share: the target of E[y^2]: 1, or less at the end of a residual branch.
    std: the standard deviation that the rule returned.
    std_drawn: the standard deviation of the drawn weights.
    mean_drawn: the mean of the drawn weights.
    predicted: E[y^2] of its responses at its first use, computed from the weights; None within
        attention.
    measured: the same, measured on the example.
    bias_part: the part of E[y^2] that has to come from biases so that an error does not grow.
    growth: the factor, by theory, on an error of the mean square of the network's input when it
        arrives at this layer.
    spread: the variance of ln E[y^2] over draws of the weights, which finite width causes.
    gradient: the sum over its responses of their squared derivatives, in units of that of the
        outputs, measured by a run backward; None where none was measured.
    correlation: of its responses to two examples, measured, the mean over all pairs; None where
        none was measured.
    """

    layer: str
    shape: tuple[int, ...]
    fan_in: int
    fan_out: int
    reads: str
    second_in: float
    feeds: str
    share: float
    std: float
    std_drawn: float
    mean_drawn: float
    predicted: float | None
    measured: float | None
    bias_part: float = 0.0
    growth: float = 1.0
    spread: float = 0.0
    gradient: float | None = None
    correlation: float | None = None


@dataclass(frozen=True)
class LayerReport:
    """What an initialiser aimed at in a layer of a run's network, and what it drew."""

    layer: str
    shape: Annotated[list[Positive], Range(min_length=1)]
    fan_in: Positive
    """n, the inputs of one response."""
    fan_out: Positive
    """n-hat, the responses that one input reaches."""
    activation_before: str | None
    """Class of the activation before the layer."""
    activation_after: str | None
    """Class of the activation after the layer."""
    forward_gain: Rate | None
    """1 / sqrt(E[f^2]); null where it does not exist."""
    backward_gain: Rate | None
    """1 / sqrt(E[f'^2]); null where it does not exist."""
    rule: str
    std_asked: NonNegative
    """Standard deviation of the rule."""
    std_drawn: NonNegative
    """Standard deviation of the drawn weights."""
    mean_drawn: Number
    """Mean of the drawn weights."""
    bias: Number | str
    """Constant, or the name of the rule that drew the biases."""


@dataclass(frozen=True)
class InitReport(Report):
    """The report of `initialize`. It prints as a table, and shows as one in a notebook.

    rule: the name of the rule.
    layers: the layers that were filled, in the order of their use.
    left: the parameters that were left as they were, by name, each with the reason.
    unfilled: those names in `left` that are weights of layers.
    mode: the `mode` of `initialize`.
    others: parameters that are no layer's weight alone, by name, each with what was done: tables of
        embeddings, and scales that were set to 0.
    lost: what does not arrive on its way through the network.
    """

    rule: str
    layers: tuple[LayerInit, ...]
    left: dict[str, str]
    unfilled: tuple[str, ...] = ()
    mode: str = "forward"
    others: dict[str, str] = field(default_factory=dict)
    lost: Lost | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """The reasons why the network may not train, each a sentence with a remedy."""
        sentences = [*self.start_warnings]
        if self.unfilled:
            names = ", ".join(self.unfilled[:3]) + (", ..." if len(self.unfilled) > 3 else "")
            remedy = "report.left says why; fill them yourself"
            sentences.append(f"weights left as they were: {names}; {remedy}")
        return tuple(sentences)

    @property
    def start_warnings(self) -> tuple[str, ...]:
        """Those of `warnings` that concern signal, gradient and correlation."""
        end_to_end = f"{self.lost.sentence}; use {self._remedies(self.lost)}" if self.lost else ""
        return tuple(filter(None, [end_to_end, self._unstable(), self._surprising()]))

    def check(self) -> "InitReport":
        """Return the report if it has no warnings.

        Raises:
            InputError: if there are warnings; its message contains all of them.
        """
        if self.warnings:
            raise InputError("; ".join(self.warnings))
        return self

    @property
    def _is_curable(self) -> bool:
        is_stable = all(row.growth <= GROWTH_LIMIT for row in self.layers)
        return is_stable or all(row.bias_part < LARGEST_BIAS for row in self.layers)

    def _unstable(self) -> str:
        """Warn of a network in which errors of the mean square grow."""
        worst = max(self.layers, key=lambda row: row.growth, default=None)
        if worst is None or worst.growth <= GROWTH_LIMIT:
            return ""
        cure = 'mode="empirical" (it measures, and draws biases), ' if self._is_curable else ""
        lacks = any(row.bias_part == math.inf for row in self.layers)
        reason = "without biases no start cures it" if lacks else "no start cures it"
        return (
            f"not stable in depth: by theory an error of the mean square grows {worst.growth:.3g} "
            f"times up to {worst.layer}, which reads {worst.reads}"
            f"{'' if self._is_curable else f', and {reason}'}; use {cure}normalisation, residual "
            "connections or another activation such as relu"
        )

    def _surprising(self) -> str:
        """Warn of the first responses that are neither what the layer aims at nor what its weights
        predict, by more than width explains."""
        for row in self.layers:
            if row.measured is None or not row.predicted or not 0 < row.measured < math.inf:
                continue
            aims = [size for size in (row.predicted, row.share) if size]
            error = min(abs(math.log(row.measured / size)) for size in aims)
            if error > math.log(LARGEST_RATIO) + 3 * math.sqrt(row.spread):
                # which aims at what it measures, so that nothing is left to surprise
                better = "" if self.mode == "empirical" else 'mode="empirical", which measures, or '
                return (
                    f"the responses of {row.layer} have E[y²] = {row.measured:.3g} where "
                    f"{row.predicted:.3g} is predicted, which width does not explain; use "
                    f"{better}maps and batches that are larger"
                )
        return ""

    def _remedies(self, lost: Lost) -> str:
        """Return what helps where signal, gradient or the differences between inputs are lost."""
        is_for_signal = self.mode == "empirical" or all(map(_is_filled_for_signal, self.layers))
        # at later uses of a layer its scale is that of the first one
        start = "" if is_for_signal or lost.is_later else 'init="he", '
        if lost.kind == "not finite":
            return f"{start}another activation, normalisation or residual connections"
        if lost.kind == "signal":
            can_measure = self.mode != "empirical" and self._is_curable and not lost.is_later
            better = 'mode="empirical", ' if can_measure else ""
            return f"{start}{better}normalisation or residual connections"
        if any("_norm (measured)" in row.reads for row in self.layers):
            # each multiplies the gradient: in batches by pi / (pi - 1) behind ReLU
            return f"{start}residual connections or fewer layers"
        return (
            f"{start}residual connections, normalisation or another activation: relu, tanh, or one "
            "that is shaped for the depth (activations.dks, activations.tat_leaky_relu)"
        )

    def title(self) -> str:
        measured = ", each layer corrected by what was measured" if self.mode == "empirical" else ""
        return (
            f"Initialised by {self.rule}{measured}. Measured on the example: E[y²], gradient, and "
            "correlation of two inputs."
        )

    def cells(self) -> list[Row]:
        what = ("layer", "shape", "reads", "E[x²]", "feeds", "share", "std")
        rows: list[Row] = [(*what, "predicted", "E[y²]", "gradient", "correlation")]
        for row in self.layers:
            shape = "x".join(map(str, row.shape))
            named = (row.layer, shape, row.reads, f"{row.second_in:.3g}", row.feeds)
            aims = (f"{row.share:.4g}", f"{row.std:.4g}", _number(row.predicted))
            # what differs between inputs is 1 - c, of which three digits would often show nothing
            correlation = "" if row.correlation is None else f"{row.correlation:.4f}"
            measured = (_number(row.measured), _number(row.gradient), correlation)
            rows.append((*named, *aims, *measured))
        return rows

    def notes(self) -> list[str]:
        left = [f"{name}: left as it was; {reason}" for name, reason in self.left.items()]
        others = [f"{name}: {what}" for name, what in self.others.items()]
        return [*left, *others, *(f"warning: {sentence}" for sentence in self.warnings)]

    __repr__ = Report.__str__


def _is_filled_for_signal(row: LayerInit) -> bool:
    """Return whether a layer has about the std that keeps its signal."""
    second = row.fan_in * row.std**2 * row.second_in
    return not row.share or 0.8 < second / row.share < 1.25


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
