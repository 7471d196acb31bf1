"""A network built from rows, with an activation after every layer with weights but the last."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rectifiers.activations import ByLayer
from rectifiers.activations.modules import has_equal_parameters, outputs, pieces
from rectifiers.models.chains import Site
from rectifiers.models.linear import Linear
from rectifiers.models.rows import Row, depth, trace
from rectifiers.runtime.errors import InputError

ActivationFactory = Callable[[int], nn.Module]


class ImageNetwork(nn.Module):
    """What the benchmark asks of a network: [N, channels, px, px] in, scores before the softmax [N,
    classes] out.

    depth: layers with weights on the longest way. multiply_adds: of one image of `input_px`,
    convolutions and linear layers alone. left: what `initialize` did not fill, and start_warnings:
    what it says against the start, a sentence each."""

    depth: int
    multiply_adds: int
    left: Sequence[str] = ()
    start_warnings: Sequence[str] = ()
    is_compiled = False

    def compile(self, *arguments: object, **options: object) -> None:
        """Compile the forward pass in place, as `nn.Module.compile` does; hooks on its parts are
        not called then."""
        super().compile(*arguments, **options)
        self.is_compiled = True

    def own_module(self) -> nn.Module:
        """Return the module whose names a `state_dict` of the user's has."""
        return self

    def activations(self) -> dict[str, tuple[nn.Module, int]]:
        """Return each activation with the number of its output channels, by the name of its
        layer."""
        raise NotImplementedError

    def slopes(self) -> dict[str, Tensor]:
        """Return the learned slopes, [channels] or [1] each, by layer; empty without PReLU."""
        return {
            name: module.weight.detach()
            for name, (module, _) in self.activations().items()
            if isinstance(module, nn.PReLU)
        }

    def learned_parameters(self) -> dict[str, Tensor]:
        """Return what activations other than PReLU learn, as `<layer>/<parameter>`."""
        return {
            f"{layer}/{name}": parameter.detach()
            for layer, (module, _) in self.activations().items()
            if not isinstance(module, nn.PReLU)
            for name, parameter in module.named_parameters()
            if parameter.is_floating_point() and parameter.numel()
        }


class Network(ImageNetwork):
    """A plain chain of rows: `trunk` works on maps, `head` on vectors.

    Module names are the rows' own: trunk.conv1, trunk.conv1_norm, trunk.conv1_act, ..., head.fc3.
    Input [N, channels, input_px, input_px] (any larger side too where a pyramid ends the trunk),
    with `signal` [N, channels, 1, input_px], or [N, flat_input]; output [N, classes], scores before
    the softmax. Weights are torch's defaults until `initialize_chain` fills them."""

    def __init__(
        self,
        layers: Sequence[Row],
        activation: ActivationFactory,
        *,
        channels: int,
        input_px: int,
        signal: bool = False,
        norm: str = "none",
        flat_input: int | None = None,
    ) -> None:
        super().__init__()
        example = activation(1)
        self.pieces, self.outputs = pieces(example), outputs(example)
        self.shapes = trace(
            layers,
            channels=channels,
            input_px=input_px,
            signal=signal,
            flat_input=flat_input,
            pieces=self.pieces,
            outputs=self.outputs,
            has_equal_parameters=has_equal_parameters(example),
        )
        self.depth = depth(layers)
        self.multiply_adds = sum(shape.multiply_adds for shape in self.shapes)

        self.trunk, self.head = nn.Sequential(), nn.Sequential()
        inputs, side = (channels, input_px) if flat_input is None else (flat_input, 0)
        for shape in self.shapes:
            row, is_last = shape.row, shape is self.shapes[-1]
            _check_name(row.name)
            part = self.trunk if row.kind in ("conv", "max_pool") else self.head
            if row.kind == "linear" and len(self.head) == 0:
                self.head.add_module("flatten", nn.Flatten())
            units = row.size * (1 if is_last else self.pieces)  # scores have no activation
            part.add_module(row.name, _layer(row, inputs, side, signal, units))
            if row.weighted and not is_last:
                self._add_beside(part, row, activation, norm)
            inputs, side = shape.channels, shape.side

    def _add_beside(
        self, part: nn.Sequential, row: Row, activation: ActivationFactory, norm: str
    ) -> None:
        """Add what follows a layer with weights: normalisation, the activation and dropout."""
        if norm == "batch":
            batch_norm = nn.BatchNorm2d if row.kind == "conv" else nn.BatchNorm1d
            part.add_module(f"{row.name}_norm", batch_norm(row.size * self.pieces))
        part.add_module(f"{row.name}_act", self._activation(activation, row))
        if row.dropout:
            part.add_module(f"{row.name}_drop", nn.Dropout(row.dropout))

    def _activation(self, activation: ActivationFactory, row: Row) -> nn.Module:
        if isinstance(activation, ByLayer):
            module = activation.build(row.size, row.name)
        else:
            module = activation(row.size)
        if (pieces(module), outputs(module)) != (self.pieces, self.outputs):
            raise InputError(
                f"the activation of {row.name} reads {pieces(module)} and gives {outputs(module)} "
                f"channels per unit, and activation.default {self.pieces} and {self.outputs}; give "
                "activations that agree"
            )
        return module

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.trunk(x))

    def _named(self) -> dict[str, nn.Module]:
        """Return all modules by their rows' names, such as conv1 and conv1_act."""
        return {**dict(self.trunk.named_children()), **dict(self.head.named_children())}

    def sites(self) -> list[Site]:
        """Return the layers with weights, in order, each with the activations around it."""
        named = self._named()
        sites: list[Site] = []
        before, levels = None, 1
        for row in (shape.row for shape in self.shapes):
            if row.kind == "pyramid":
                levels = len(row.levels)
            if not row.weighted:
                continue
            after = named.get(f"{row.name}_act")
            sites.append(Site(row.name, named[row.name], before, after, levels))  # type: ignore[arg-type]
            before, levels = after, 1
        return sites

    def activations(self) -> dict[str, tuple[nn.Module, int]]:
        """Return each layer's activation with the number of its output channels, by the layer's
        name."""
        named = self._named()
        return {
            shape.row.name: (module, shape.channels)
            for shape in self.shapes
            if (module := named.get(f"{shape.row.name}_act")) is not None
        }


def of_rows(network: ImageNetwork) -> Network:
    """Return `network`, which must be a chain of rows."""
    if not isinstance(network, Network):
        raise InputError(
            "this needs a network of rows, and model._target_ names another; choose a model with "
            "rows, and evaluation=[center,ten_view]"
        )
    return network


def _check_name(name: str) -> None:
    """Refuse a row's name that `nn.Sequential` has for something else."""
    if hasattr(nn.Sequential, name) or name in vars(nn.Sequential()):
        raise InputError(f"model.rows: {name} is a name of torch's modules; give the row another")


def _layer(row: Row, inputs: int, side: int, signal: bool, units: int) -> nn.Module:
    """Return a row's layer. inputs, side: the channels and the side of the map that it reads.
    units: what it returns, of a layer with weights."""
    kernel, stride, padding = ((size, size) for size in (row.kernel, row.stride, row.padding))
    if signal:
        kernel, stride, padding = (1, row.kernel), (1, row.stride), (0, row.padding)
    if row.kind == "conv":
        return nn.Conv2d(inputs, units, kernel, stride, padding)
    if row.kind == "max_pool":
        return nn.MaxPool2d(kernel, stride, padding)
    if row.kind == "pyramid":
        return SpatialPyramid(row.levels)
    positions = max(side, 1) ** (1 if signal else 2)
    return Linear(inputs * positions, units)


def bin_edges(side: int, n: int) -> list[tuple[int, int]]:
    """Return [start, stop) of each of `n` bins over `side` positions, the i-th from
    floor(i side / n) to ceil((i + 1) side / n)."""
    return [(i * side // n, -(-(i + 1) * side // n)) for i in range(n)]


class SpatialPyramid(nn.Module):
    """Max pooling into n x n bins per level n, [N, C, H, W] -> [N, C * sum(n^2)].

    Bin i of n spans floor(i H / n) to ceil((i + 1) H / n), the rule of the authors' released
    pooling code; it is what `adaptive_max_pool2d` computes, for any map size, even one smaller than
    n.
    DEVIATION: SPP-net trains with windows of ceil(H / n) and strides of floor(H / n); one rule in
    training and testing makes both the same function (the two agree on the paper's 18 x 18 maps).
    """

    def __init__(self, levels: Sequence[int]) -> None:
        super().__init__()
        self.levels = tuple(levels)

    def forward(self, x: Tensor) -> Tensor:
        pool = _Level.apply if x.device.type == "cuda" else F.adaptive_max_pool2d
        return torch.cat([pool(x, n).flatten(1) for n in self.levels], dim=1)

    def extra_repr(self) -> str:
        return f"levels={self.levels}"


class _Level(torch.autograd.Function):
    """`adaptive_max_pool2d` with a deterministic gradient on CUDA.

    Bins overlap where n does not divide the side, and torch's CUDA kernel adds their gradients in
    the order in which its threads arrive. Here one bin is added after the other, as torch's kernel
    for CPUs does."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, n: int) -> Tensor:
        pooled, positions = F.adaptive_max_pool2d(x, n, return_indices=True)
        ctx.save_for_backward(positions)
        ctx.sides = x.shape[-2:]
        return pooled

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (positions,), (gradient,) = ctx.saved_tensors, gradients
        flat = gradient.new_zeros(*gradient.shape[:2], ctx.sides.numel())
        positions_by_bin = positions.flatten(2).split(1, dim=2)
        gradient_by_bin = gradient.flatten(2).split(1, dim=2)
        for bin_positions, bin_gradient in zip(positions_by_bin, gradient_by_bin, strict=True):
            # one address per channel: the order is fixed
            flat.scatter_add_(2, bin_positions, bin_gradient)
        return flat.unflatten(2, ctx.sides), None
