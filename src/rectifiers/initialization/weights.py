"""What rule the numbers of a tensor look like, judged by their std, shape and spectrum."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rectifiers.gains import STD_TRUNCATED

SAMPLE = 2**16  # numbers that the shape of a distribution is read from
CLIP = 6.0  # in std: one number far out is no heavy tail
FEW = 100  # numbers, of which no rule can be told
ROUND = [digit * 10.0**-power for power in range(7) for digit in (1, 2, 5)]
STEPS = 8  # of the power iteration
OUTLIER = 1.25  # largest singular value from which on, in units of the edge of independent numbers


@dataclass(frozen=True)
class Fit:
    """A rule of random numbers whose std a tensor has, within its sampling error.

    mistake: why the fan that the rule took is not the layer's, in words; "" where it is. factor:
    the std, in units of the same rule's with the right fan. distance: |ln| of the std in units of
    the rule's."""

    rule: str
    mistake: str
    factor: float
    distance: float


@dataclass(frozen=True)
class Looks:
    """What a tensor looks like.

    family: of its distribution. largest: its largest deviation, in standard deviations. error: the
    relative sampling error of `std`, for independent numbers. fits: the rules with this std, the
    nearest first. other: what it is, where no rule of random numbers is asked for.
    is_structured: whether the numbers are far from independent, as after training."""

    std: float
    family: str = ""
    largest: float = 0.0
    error: float = 0.0
    fits: tuple[Fit, ...] = ()
    other: str = ""
    is_structured: bool = False

    @property
    def rule(self) -> str:
        """What the tensor looks like, in words."""
        if self.other:
            return self.other
        name = self.fits[0].rule if self.fits else f"std {self.std:.3g}"
        return f"{name}, {self.family}"

    @property
    def is_drawn(self) -> bool:
        """Whether a rule of random numbers explains it."""
        return bool(self.fits) or self.other.startswith(("orthogonal", "sparse"))


@dataclass(frozen=True)
class Fans:
    """The true fan_in and fan_out of a layer, and `read_in`, `read_out`, those that torch.nn.init
    reads from the weight's shape. cause: why both differ, in words."""

    true_in: int
    true_out: int
    read_in: int
    read_out: int
    cause: str = ""


def look(weight: Tensor, fans: Fans | None) -> Looks:
    """Return what a tensor looks like. fans: None where it is no layer's weight."""
    x = weight.detach()
    x = torch.view_as_real(x) if x.is_complex() else x
    x = (x if x.dtype.itemsize >= 4 else x.float()).flatten(1) if x.dim() > 1 else x.flatten()
    count = x.numel()
    std, mean = (float(value) for value in torch.std_mean(x, correction=0)) if count else (0.0, 0.0)
    if not math.isfinite(std):
        return Looks(std, other="not finite")
    if std <= 1e-6 * abs(mean):
        return Looks(0.0, "constant", other=_constant(mean))
    sample = x.flatten()[:: max(1, count // SAMPLE) | 1].double()
    kurtosis = float(((sample - mean) / std).clamp(-CLIP, CLIP).pow(4).mean())
    zeros = float((sample == 0).double().mean())
    largest = float((x - mean).abs().amax()) / std
    family = _family(kurtosis, largest, count)
    error = math.sqrt(max(kurtosis - 1, 0.1) / (4 * count))
    looks = Looks(std, family, largest, error)
    if x.dim() == 2 and _is_orthogonal(x):
        return replace(looks, other="orthogonal")
    if zeros >= 0.1:
        return replace(looks, other=f"sparse, {100 * zeros:.0f} % zeros")
    if x.dim() == 2 and _is_structured(x, std, kurtosis):
        return replace(looks, is_structured=True)
    return looks if count < FEW else replace(looks, fits=_fits(looks, fans))


def usual(all_looks: Sequence[Looks]) -> list[Looks]:
    """Let each tensor have the rule that fits most of them, where several fit it."""
    votes = Counter(name for looks in all_looks for name in {fit.rule for fit in looks.fits})
    return [
        replace(looks, fits=tuple(sorted(looks.fits, key=lambda fit: -votes[fit.rule])))
        for looks in all_looks
    ]


def _constant(value: float) -> str:
    return "zeros" if value == 0 else "ones" if value == 1 else f"constant {value:.3g}"


def _family(kurtosis: float, largest: float, count: int) -> str:
    """Return the name of the distribution with this kurtosis: 1.8 of a uniform one, 2.37 of a
    normal one that is truncated at 2 std, 3 of a normal one."""
    noise = 4 / math.sqrt(count)  # of the mean, which the largest deviation is taken from
    if kurtosis < 2.08 and largest < 1.75 + noise:
        return "uniform"
    if kurtosis < 2.7 and largest < 2.4 and count >= 500:
        return "truncated normal"
    return "heavy-tailed" if kurtosis > 4 + 5 * noise else "normal"


def is_untruncated(looks: Looks, count: int) -> bool:
    """Return whether so many normal numbers reach as far as without truncation at 3 std or less."""
    expected = 0.75 * math.sqrt(2 * math.log(max(count, 2)))
    return looks.family == "normal" and looks.largest > max(expected, 3.3)


def _is_orthogonal(x: Tensor) -> bool:
    """Return whether rows, or columns where there are fewer, are orthogonal and of one length."""
    rows = (x if x.shape[0] <= x.shape[1] else x.T)[:32].double()
    gram = rows @ rows.T
    scale = float(gram.diagonal().mean())
    apart = gram - scale * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    return len(rows) > 1 and scale > 0 and float(apart.abs().amax()) < 1e-3 * scale


def _is_structured(x: Tensor, std: float, kurtosis: float) -> bool:
    """Return whether a matrix has a far larger singular value than independent numbers have, whose
    spectrum ends at std (sqrt(rows) + sqrt(columns)) (Marchenko and Pastur), or heavy tails."""
    if min(x.shape) < 16:
        return False
    x = x.clamp(-CLIP * std, CLIP * std)
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(x.shape[1], generator=generator, dtype=torch.float32, device="cpu").to(x)
    length = 0.0
    for _ in range(STEPS):
        v = x.T @ (x @ (v / v.norm()))
        length = math.sqrt(float(v.norm()))
    edge = std * (math.sqrt(x.shape[0]) + math.sqrt(x.shape[1]))
    return length > OUTLIER * edge or kurtosis > 6


def _fits(looks: Looks, fans: Fans | None) -> tuple[Fit, ...]:
    """Return the rules whose std is within four sampling errors, the nearest first."""
    found: dict[str, Fit] = {}
    for rule, std, mistake, factor in _rules(looks.family, fans):
        distance = abs(math.log(looks.std / std))
        if distance < max(4 * looks.error, 0.004):
            found.setdefault(rule, Fit(rule, mistake, factor, distance))
    return tuple(sorted(found.values(), key=lambda fit: round(fit.distance, 6)))


def _rules(family: str, fans: Fans | None) -> Iterator[tuple[str, float, str, float]]:
    """Yield the rules of random numbers: (name, std, mistaken fan, std by the right one's)."""
    if fans is not None:
        right = _of_fans(fans.true_in, fans.true_out, family)
        for name, std in right.items():
            yield name, std, "", 1.0
        # as nn.init reads the fans
        for name, std in _of_fans(fans.read_in, fans.read_out, family).items():
            factor = std / right[name]
            mistake = fans.cause if abs(math.log(factor)) > math.log(1.3) else ""
            yield name, std, mistake, factor if mistake else 1.0
        if family == "truncated normal":  # whose std was not corrected for what is cut off
            for name, std in right.items():
                yield f"{name} x {STD_TRUNCATED:.2f}", STD_TRUNCATED * std, "", 1.0
    for std in ROUND:
        yield f"std {std:g}", std, "", 1.0
        if family == "truncated normal":
            yield f"std {std:g} x {STD_TRUNCATED:.2f}", STD_TRUNCATED * std, "", 1.0


def _of_fans(fan_in: int, fan_out: int, family: str) -> dict[str, float]:
    """Return the std of each rule that follows from the fans."""
    stds = {
        "he": math.sqrt(2 / fan_in),
        "xavier": math.sqrt(2 / (fan_in + fan_out)),
        "he (fan_out)": math.sqrt(2 / fan_out),
        "lecun": math.sqrt(1 / fan_in),
    }
    if family == "uniform":
        stds["torch default"] = math.sqrt(1 / (3 * fan_in))
    return stds
