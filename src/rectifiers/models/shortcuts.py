"""Perceptrons with shortcut connections and transformed units, of zero mean and zero slope (Raiko
et al. 2012).

A block computes y = A t(B x + b) + C x + c. The units t(s) = gamma (f(s) + alpha s + beta) are
transformed so that their mean and mean slope over the data are zero, and what is linear in x is
left to the shortcut C. Vatanen et al. (2013) add the scale gamma. Both bring the Fisher information
nearer to diagonal."""

from typing import Literal

import torch
from torch import Tensor, nn

from rectifiers.models.network import ActivationFactory
from rectifiers.quadrature import describe, normal_rule, value_and_slope
from rectifiers.runtime.distributed import all_reduce
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.ranges import Count, Positive

Transformation = Literal["none", "zero_mean_slope", "unit_variance"]
FOLLOWED = 0.1  # the share of every batch in the running alpha, beta and gamma
SMALLEST = 1e-8  # of E[t^2] E[t'^2], which bounds gamma by 100


class TransformedUnits(nn.Module):
    """gamma (f(s) + alpha s + beta) of responses s [N, units], for an elementwise activation f.

    alpha = -E[f'] and beta = -E[f + alpha s] make the mean slope and the mean zero. gamma is 1, or,
    with has_unit_variance, (E[t^2] E[t'^2])^(-1/4): the scale at which outputs and slopes are
    equally far from 1. They start as what holds for s ~ N(0, 1), and follow the data by `follow`.
    Of a linear f nothing remains.
    """

    alpha: Tensor
    beta: Tensor
    gamma: Tensor

    def __init__(self, activation: nn.Module, units: int, *, has_unit_variance: bool) -> None:
        super().__init__()
        self.activation, self.has_unit_variance = activation, has_unit_variance
        for name, value in (("alpha", 0.0), ("beta", 0.0), ("gamma", 1.0)):
            self.register_buffer(name, torch.full((units,), value))

        # what holds for s ~ N(0, 1), by quadrature
        nodes, weights = normal_rule()
        s = nodes.float()[:, None].repeat(1, units)
        activation.eval()  # noisy activations are taken without their noise
        self.follow(s, weights.float()[:, None], share=1.0)
        activation.train()

        y = self.forward(s).detach()
        power = float((weights[:, None] * y**2).sum())
        if not power > 1e-6:
            raise InputError(
                f"activation {describe(activation)} is linear, and model.transformation takes what "
                "is linear from a unit; give another activation, or model.transformation=none"
            )

    def forward(self, s: Tensor) -> Tensor:
        return self.gamma * (self.activation(s) + self.alpha * s + self.beta)

    def follow(self, s: Tensor, weights: Tensor | None = None, share: float = FOLLOWED) -> None:
        """Move alpha, beta and gamma by `share` to their values over responses s [N, units] of all
        processes.

        weights: [N, 1], of the mean over responses; by default all weigh the same.
        """
        z = s.detach()
        # `forward` itself, so that no hook runs, which measures the network's own pass
        f, slope = value_and_slope(self.activation.forward, z)
        alpha = -_mean(slope, weights)
        beta = -_mean(f + alpha * z, weights)
        self.alpha.lerp_(alpha.to(self.alpha), share)
        self.beta.lerp_(beta.to(self.beta), share)
        if self.has_unit_variance:
            second = _mean((f + self.alpha * z + self.beta) ** 2, weights)
            gamma = (second * _mean((slope + self.alpha) ** 2, weights) + SMALLEST) ** -0.25
            self.gamma.lerp_(gamma.to(self.gamma), share)


def _mean(x: Tensor, weights: Tensor | None) -> Tensor:
    """Return the mean of [N, units] over N and all processes, each of which has as many."""
    if weights is not None:
        return (weights * x).sum(0)
    count = torch.tensor(float(len(x)), device=x.device)
    return all_reduce(x.sum(0), "sum") / all_reduce(count, "sum")


class ShortcutBlock(nn.Module):
    """A t(B x + b) + C x + c, from [N, inputs] to [N, outputs] through `hidden` units.

    In every training step the units follow the batch, and A, C and c are changed such that the
    block computes what it did, to rounding. The optimiser's momentum stays as it is."""

    def __init__(
        self,
        activation: ActivationFactory,
        inputs: int,
        hidden: int,
        outputs: int,
        transformation: Transformation,
    ) -> None:
        super().__init__()
        self.hidden = nn.Linear(inputs, hidden)
        self.act = activation(hidden)
        if transformation != "none":
            self.act = TransformedUnits(
                self.act, hidden, has_unit_variance=transformation == "unit_variance"
            )
        self.shortcut = nn.Linear(inputs, outputs, bias=False)
        self.out = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        s = self.hidden(x)
        if isinstance(self.act, TransformedUnits) and self.training and torch.is_grad_enabled():
            self._follow(self.act, s.detach())
        return self.out(self.act(s)) + self.shortcut(x)

    @torch.no_grad()
    def _follow(self, units: TransformedUnits, s: Tensor) -> None:
        """Let the units follow responses s [N, hidden], and keep the function of the block.

        With s = B x + b, the units change by gamma (da s + db) at a fixed gamma: the part that is
        linear in x is taken from the shortcut, and the constant from the bias."""
        alpha, beta, gamma = units.alpha.clone(), units.beta.clone(), units.gamma.clone()
        units.follow(s)
        alpha_change = units.alpha - alpha

        scaled = self.out.weight * gamma  # A gamma, which multiplies f(s) + alpha s + beta
        self.shortcut.weight.sub_((scaled * alpha_change) @ self.hidden.weight)
        self.out.bias.sub_(scaled @ (alpha_change * self.hidden.bias + units.beta - beta))
        self.out.weight.copy_(scaled / units.gamma)


def mlp_shortcuts(
    activation: ActivationFactory,
    classes: int,
    channels: int,
    input_px: int,
    depth: Count = 1,
    hidden: Count = 256,
    transformation: Transformation = "unit_variance",
    width: Positive = 1.0,
) -> nn.Module:
    """A perceptron of `depth` blocks A t(B x) + C x with `hidden` units each, times `width`, on the
    flattened image.

    transformation: none; zero_mean_slope (Raiko, Valpola and LeCun 2012); unit_variance, which
    scales the units as well (Vatanen et al. 2013). Their papers speak of one block, and of
    transformations over many samples; here several blocks follow each other, alpha, beta and gamma
    are running means over batches, and the initialiser fills shortcuts as it does any layer."""
    units, inputs = max(1, round(hidden * width)), channels * input_px**2
    sizes = [units] * (depth - 1) + [classes]
    network = nn.Sequential()
    network.add_module("flatten", nn.Flatten())
    for i, outputs in enumerate(sizes, start=1):
        network.add_module(
            f"block{i}", ShortcutBlock(activation, inputs, units, outputs, transformation)
        )
        inputs = outputs
    return network
