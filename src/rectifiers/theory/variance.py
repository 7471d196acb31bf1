"""The paper's propagation of variance (section 2.2), predicted for any activation, on maps with
borders.

There are two predictions. The plain one is Eq. 9 and 13: one number per layer, as if every response
had all of its n inputs. The other keeps one number per position, so that it includes zero padding,
strides and pooling. Both are expectations over weights of mean zero, without the effect of finite
width (`width_effect`)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from rectifiers.models.chains import Site
from rectifiers.models.rows import Row, Shape
from rectifiers.quadrature import Moments
from rectifiers.theory.moments import fluctuation, moments_at
from rectifiers.theory.stability import WidthEffect, width_effect


@dataclass(frozen=True)
class Step:
    """The prediction for one layer with weights: natural logarithms of means over its responses y.

    response: ln E[y^2] by Eq. 9, from the input on; response_on_maps: the same with borders and
    strides. gradient: ln E[dy^2] by Eq. 13, from 0 at the last layer; gradient_on_maps: with
    borders, strides and pooling, where one input in k^2 gets a gradient. width: what finite width
    adds to `response`, where it is known. -inf: the signal is zero."""

    response: float
    response_on_maps: float
    gradient: float
    gradient_on_maps: float
    width: WidthEffect | None


def log(number: float) -> float:
    """Return the natural logarithm, -inf for 0."""
    return math.log(number) if number > 0 else -math.inf


def predict(
    sites: Sequence[Site], shapes: Sequence[Shape], stds: Sequence[float], power: Tensor
) -> list[Step]:
    """Return the predicted Step of each of `sites`.

    shapes: the network's rows with their shapes. stds: the weights' std, one per site. power:
    E[x^2] of the input at every position, float64 [H, W]; [1, 1] for a vector. Biases count with
    their mean squares.

    For activations other than rectifiers, maps are followed to first order in the logarithm.
    """
    plain = _follow(sites, shapes, stds, power.mean().view(1, 1), on_maps=False)
    maps = _follow(sites, shapes, stds, power, on_maps=True)

    widths: list[WidthEffect | None] = []
    errors: list[tuple[float | None, int, float]] = []
    for site, (_, _, after) in zip(sites, plain, strict=True):
        widths.append(width_effect(errors))
        if site.after is not None and after is not None:
            errors.append((fluctuation(site.after, site.channels), site.channels, after.map_slope))

    predicted = []
    for at, on_map, width in zip(plain, maps, widths, strict=True):
        moments = (at[0], on_map[0], at[1], on_map[1])
        response, response_on_maps, gradient, gradient_on_maps = (
            log(float(moment.mean())) for moment in moments
        )
        predicted.append(Step(response, response_on_maps, gradient, gradient_on_maps, width))
    return predicted


def _follow(
    sites: Sequence[Site],
    shapes: Sequence[Shape],
    stds: Sequence[float],
    power: Tensor,
    *,
    on_maps: bool,
) -> list[tuple[Tensor, Tensor, Moments | None]]:
    """Return (E[y^2], E[dy^2], the moments of the activation after it) of every site, the first two
    as maps of the responses' size, or [1, 1] without `on_maps`, which is Eq. 9 and 13."""
    responses, sizes, activation_moments = _forward(sites, shapes, stds, power, on_maps)

    gradient = torch.ones(1, 1, dtype=torch.float64)
    gradients: list[Tensor] = []
    for shape, size in reversed(list(zip(shapes, sizes, strict=True))):
        if shape.row.weighted:
            i = len(sites) - 1 - len(gradients)
            after = activation_moments[i]
            gradient = gradient if after is None else gradient * after.derivative_second
            gradients.append(gradient)
            gradient = sites[i].fans[1] * stds[i] ** 2 * gradient
        gradient = _to_inputs(shape.row, gradient, size) if on_maps else gradient
    return list(zip(responses, reversed(gradients), activation_moments, strict=True))


def _forward(
    sites: Sequence[Site],
    shapes: Sequence[Shape],
    stds: Sequence[float],
    power: Tensor,
    on_maps: bool,
) -> tuple[list[Tensor], list[tuple[int, int]], list[Moments | None]]:
    """Return E[y^2] of every site, the size of every row's input, and the moments of the activation
    after every site."""
    x, sizes = power, []
    responses: list[Tensor] = []
    activation_moments: list[Moments | None] = []
    for row in (shape.row for shape in shapes):
        sizes.append((x.shape[0], x.shape[1]))
        if not row.weighted:
            x = _pooled(row, x) if on_maps else x
            continue

        site, std = sites[len(responses)], stds[len(responses)]
        bias = 0.0
        if site.module.bias is not None:
            bias = float(site.module.bias.detach().double().square().mean())
        y = site.fans[0] * std**2 * (window_means(row, x) if on_maps else x) + bias
        responses.append(y)

        mean = float(y.mean())
        after = None if site.after is None else moments_at(site.after, mean, site.channels)
        activation_moments.append(after)
        if after is not None:
            relative = y / mean if 0 < mean < math.inf else torch.ones_like(y)
            x = after.second * relative**after.map_slope
    return responses, sizes, activation_moments


def window_means(row: Row, on_map: Tensor) -> Tensor:
    """Return the mean of E[x^2] over the window of each response, padding included."""
    if row.kind == "linear":
        return on_map.mean().view(1, 1)
    window = torch.full((1, 1, row.kernel, row.kernel), 1 / row.kernel**2, dtype=on_map.dtype)
    return F.conv2d(on_map[None, None], window, stride=row.stride, padding=row.padding)[0, 0]


def _pooled(row: Row, on_map: Tensor) -> Tensor:
    """Return the pooled map as if the maximum were a random element of its window."""
    if row.kind == "pyramid":
        bins = [F.adaptive_avg_pool2d(on_map[None, None], n).flatten() for n in row.levels]
        return torch.cat(bins).mean().view(1, 1)
    window = (row.kernel, row.stride, row.padding)
    return F.avg_pool2d(on_map[None, None], *window, count_include_pad=False)[0, 0]


def _to_inputs(row: Row, gradient: Tensor, size: tuple[int, int]) -> Tensor:
    """Return the gradient at a row's inputs, a map of `size`, from the gradient at its outputs.

    For a layer with weights: the mean over the outputs that each input could reach, also beyond the
    border. For pooling: one input of each window gets the gradient, on average each the same share.
    """
    if row.kind == "linear":
        return gradient.expand(size)
    if row.kind == "pyramid":
        bins = sum(n**2 for n in row.levels)
        return gradient.mean() * bins / math.prod(size) * torch.ones(size, dtype=gradient.dtype)
    window = torch.ones(1, 1, row.kernel, row.kernel, dtype=gradient.dtype)
    # rows and columns at the far border that no window reaches
    left = [
        s - ((g - 1) * row.stride + row.kernel - 2 * row.padding)
        for s, g in zip(size, gradient.shape, strict=True)
    ]
    total = F.conv_transpose2d(gradient[None, None], window, None, row.stride, row.padding, left)
    return total[0, 0] / row.kernel**2
