"""The theory of one activation in a deep chain: its fixed point, its drift and its gradients."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rectifiers.activations import as_module
from rectifiers.activations.modules import outputs, pieces
from rectifiers.gains import Activation, moments
from rectifiers.initialization.report import EXPLODED, GROWTH_LIMIT, VANISHED, Report, Row
from rectifiers.quadrature import describe
from rectifiers.runtime.errors import InputError
from rectifiers.theory.mean_field import correlations
from rectifiers.theory.moments import NEUTRAL, fluctuation

DEPTHS = (10, 30, 100)  # of the table
OF_ERRORS = {
    "attracts": "fades: the fixed point attracts",
    "neutral": "stays",
    "repels": "grows: the fixed point repels",
}
OF_GRADIENTS = {"attracts": "vanishes", "neutral": "keeps its size", "repels": "explodes"}
OF_INPUTS = {
    "attracts": "they become alike",
    "neutral": "they become alike, slowly",
    "repels": "they stay apart",
}
APART = 0.01  # a correlation below it counts as none
OTHER_LAYERS = "residual connections, normalisation"
LIMITED = {  # by what limits the depth: what holds up to there, and what helps further on
    "growth": (
        f"an error of E[y²] grows less than {GROWTH_LIMIT:g} times",
        f'{OTHER_LAYERS}, initialize(..., mode="empirical"), or another activation such as relu',
    ),
    "explosion": (
        f"the gradient's square grows less than {EXPLODED:.0e} times",
        f'init="he_backward", which keeps the gradient instead, {OTHER_LAYERS}, or another '
        "activation such as relu",
    ),
    "vanishing": (
        f"more than {VANISHED:.0e} of the gradient's square arrives",
        f"{OTHER_LAYERS}, or another activation: relu, tanh, or one that is shaped for the depth "
        "(activations.dks, activations.tat_leaky_relu)",
    ),
}


@dataclass(frozen=True)
class WidthEffect:
    """What finite width adds to ln E[y^2]: the mean and the standard deviation over draws of the
    weights."""

    drift: float
    spread: float


def width_effect(steps: Sequence[tuple[float | None, int, float]]) -> WidthEffect | None:
    """Return the effect of finite width over `steps`, each (fluctuation v, units n, slope of the
    variance map).

    To first order in 1/n. An error of one layer is multiplied by the slopes of all later ones: it
    stays for rectifiers (1), fades for tanh (0.46) and grows for GELU (1.14). None where one of
    them is unknown, or where the error has grown beyond the validity of the first order, a factor
    of ten."""
    drift = variance = 0.0
    repelled = any(slope > 1 + 1e-9 for _, _, slope in steps)
    for v, units, slope in steps:
        if v is None or not math.isfinite(slope):
            return None
        drift, variance = slope * drift - v / (2 * units), slope**2 * variance + v / units
    if repelled and variance > math.log(10) ** 2:
        return None
    return WidthEffect(drift, math.sqrt(variance))


@dataclass(frozen=True)
class Stability(Report):
    """The result of `stability`, which prints itself as a table. A number that is None is infinite
    or unknown.

    activation: the activation with its settings.
    depth: the number of layers.
    units: the number of units of each layer.
    gain: the forward gain of the activation.
    map_slope: the factor of one layer on a relative error of the variance.
    fixed_point: what this means for the variance that the gain keeps: it "attracts" (below 1),
        "repels" (above 1) or is "neutral".
    error_growth: the factor of all layers on a relative error of the variance.
    chi: the factor of one layer on the mean square of the gradients.
    gradient_growth: the factor of all layers on the mean square of the gradients.
    fluctuation: Var[f(z)^2] / E[f(z)^2]^2 for z ~ N(0, 1).
    width: the effect of finite width on ln E[y^2]: its mean (`drift`) and standard deviation
        (`spread`) over draws of the weights.
    correlations: of the responses to two inputs, 0 at the first layer, at every layer of the table;
        empty where they are unknown.
    """

    activation: str
    depth: int
    units: int
    gain: float | None
    map_slope: float | None
    fixed_point: str | None
    error_growth: float | None
    chi: float | None
    gradient_growth: float | None
    fluctuation: float | None
    width: WidthEffect | None
    correlations: tuple[float, ...]

    @property
    def limits(self) -> dict[str, int]:
        """By what ends it, as a key of LIMITED, the largest number of layers that train by theory;
        the smallest first, and nothing where any depth does.

        Inputs that become alike have no limit of their own: 1 - c shrinks as the gradient does."""
        found = {}
        if self.map_slope and _word(self.map_slope) == "repels":
            found["growth"] = _layers(GROWTH_LIMIT, self.map_slope)
        if self.chi and _word(self.chi) == "repels":
            found["explosion"] = _layers(EXPLODED, self.chi)
        if self.chi and _word(self.chi) == "attracts":
            found["vanishing"] = _layers(VANISHED, self.chi)
        return dict(sorted(found.items(), key=lambda item: item[1]))

    def title(self) -> str:
        if self.gain is None:
            return f"{self.activation} has no gain, so no weights keep its signal."
        return f"{self.activation} in chains with its gain, {self.gain:.4g}:"

    def cells(self) -> list[Row]:
        depths = sorted({*DEPTHS, self.depth})
        rows: list[Row] = [("", "per layer", *(f"{depth} layers" for depth in depths), "in words")]
        if self.map_slope is not None:
            grown = [_power(self.map_slope, depth - 1) for depth in depths]
            name, word = "factor on an error of E[y²]", OF_ERRORS[_word(self.map_slope)]
            rows.append((name, *map(_number, (self.map_slope, *grown)), word))
        if self.chi is not None:
            grown = [_power(self.chi, depth - 1) for depth in depths]
            name, word = "factor on the gradient's square", OF_GRADIENTS[_word(self.chi)]
            rows.append((name, *map(_number, (self.chi, *grown)), word))
        if self.chi is not None and self.correlations:
            at = [self.correlations[depth - 1] for depth in depths]
            word = OF_INPUTS["repels" if at[-1] < APART else _word(self.chi)]
            rows.append(("correlation of two inputs", "", *(f"{c:.4f}" for c in at), word))
        if self.map_slope is not None and self.fluctuation is not None:
            step = (self.fluctuation, self.units, self.map_slope)
            widths = [width_effect([step] * (depth - 1)) for depth in (2, *depths)]
            spreads = (_number(None if width is None else width.spread) for width in widths)
            rows.append((f"std of ln E[y²], {self.units} units", *spreads, "over draws of weights"))
        return rows

    def notes(self) -> list[str]:
        if self.gain is None:
            return ["Use another activation, or an initialiser that needs no gain."]
        if not self.limits:
            return ["By theory any depth trains."]
        sentences = [f"By theory about {min(self.limits.values())} layers train."]
        for cause, layers in self.limits.items():
            holds, remedy = LIMITED[cause]
            sentences.append(f"Up to {layers} layers {holds}; for more use {remedy}.")
        return sentences

    __repr__ = Report.__str__


def stability(activation: Activation, depth: int = 30, *, units: int = 256) -> Stability:
    """Return how a chain of layers with `activation` changes signal and gradients, by theory.

    The weights have the forward gain of the activation (section 2.2 of the paper, for any
    activation), and the responses of the first layer have E[y^2] = 1. The result prints itself as a
    table, in numbers and words.

    activation: as for `moments`.
    depth: the number of layers; the table shows 10, 30 and 100 beside it.
    units: the number of units of each layer, for the effect of finite width.

    Raises:
        InputError: if the moments of the activation cannot be computed, or if `depth` or `units`
            is not a whole number of at least 1.

    Examples:
        >>> stability("relu").fixed_point
        'neutral'
        >>> f"{stability('gelu', 30).error_growth:.0f}"
        '50'
        >>> stability("sigmoid").limits
        {'vanishing': 9}
    """
    for name, value in (("depth", depth), ("units", units)):
        if not isinstance(value, int) or value < 1:
            raise InputError(f"{name}={value} is not usable; give a whole number at least 1")
    activation = as_module(activation)
    unit = moments(activation)
    usable = all(0 < moment < math.inf for moment in (unit.second, unit.derivative_second))
    slope = unit.map_slope if math.isfinite(unit.map_slope) else None

    chi = v = None
    path: list[float] = []
    if usable:
        chi = pieces(activation) * unit.derivative_second / (outputs(activation) * unit.second)
        v = fluctuation(activation)
        if not callable(getattr(activation, "moments", None)):
            layers = max(*DEPTHS, depth) - 1
            variance = 1 / unit.second
            path = [
                0.0,
                *correlations(activation, 0.0, 1.0, layers=layers, weight_variance=variance),
            ]

    return Stability(
        activation=describe(activation),
        depth=depth,
        units=units,
        gain=unit.second**-0.5 if usable else None,
        map_slope=slope,
        fixed_point=None if slope is None else _word(slope),
        error_growth=slope and _power(slope, depth - 1),
        chi=chi,
        gradient_growth=chi and _power(chi, depth - 1, 1 / pieces(activation)),
        fluctuation=v,
        width=width_effect([(v, units, unit.map_slope)] * (depth - 1)),
        correlations=tuple(path),
    )


def _word(slope: float) -> str:
    if abs(slope - 1) < NEUTRAL:
        return "neutral"
    return "attracts" if slope < 1 else "repels"


def _layers(limit: float, factor: float) -> int:
    """Return how many layers multiply a number by at most `limit`, one by `factor`."""
    return 1 + math.floor(math.log(limit) / math.log(factor))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _power(base: float, exponent: int, factor: float = 1.0) -> float | None:
    """factor base^exponent, or None where that is more than a float holds."""
    try:
        power = factor * base**exponent
    except OverflowError:
        return None
    return power if math.isfinite(power) else None
