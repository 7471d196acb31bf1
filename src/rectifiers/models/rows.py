"""A network as rows, like a column of the paper's Table 1 or 3; shapes, parameters and
multiply-adds follow from them.

A row of `conf/model/*.yaml` has a `name` and one of these keys:

    conv: filters       with kernel, stride (1), padding (0; a list is cycled over the repeats)
    max_pool: size      with stride (its size) and padding (0)
    pyramid: levels     spatial pyramid pooling, e.g. [6, 3, 2, 1] -> 50 bins per channel
    linear: units       or `classes`, as many as the data have; dropout (0) after its activation

On a signal, a map of 1 x n, kernels, strides and paddings work along it alone.

`repeat: r` means r such rows, named name_1 ... name_r. An activation follows every conv and linear
row but the last. A width factor multiplies filters and units.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, StringConstraints

from rectifiers.runtime.errors import InputError
from rectifiers.runtime.ranges import Count, Range
from rectifiers.runtime.schema import JsonObject, Section, checked

Padding = Annotated[int, Range(ge=0)]
Name = Annotated[str, StringConstraints(pattern="^[A-Za-z][A-Za-z0-9_]*$")]


class _Named(Section):
    name: Name


class _Conv(_Named):
    conv: Count
    kernel: Count
    stride: Count = 1
    padding: Padding | Annotated[tuple[Padding, ...], Field(min_length=1)] = 0
    repeat: Count = 1


class _MaxPool(_Named):
    max_pool: Count
    stride: Count | None = None
    padding: Padding = 0


class _Pyramid(_Named):
    pyramid: Annotated[tuple[Count, ...], Field(min_length=1)]


class _Linear(_Named):
    linear: Count | Literal["classes"]
    dropout: Annotated[float, Range(ge=0, lt=1)] = 0.0
    repeat: Count = 1


KINDS: Mapping[str, type[_Named]] = {
    "conv": _Conv,
    "max_pool": _MaxPool,
    "pyramid": _Pyramid,
    "linear": _Linear,
}
BESIDE = ("act", "norm", "drop")  # modules after a row with weights, named <row>_act and so on
SHARE_TOLERANCE = 1e-6  # of the share of units that leaves equal parameters
LARGEST_SIDE = 2048  # px, far above the inputs of the paper's networks


@dataclass(frozen=True)
class Row:
    """One layer. `size` is filters, pool size or units by kind; `levels` only for a pyramid."""

    name: str
    kind: str
    size: int = 0
    kernel: int = 1
    stride: int = 1
    padding: int = 0
    levels: tuple[int, ...] = ()
    dropout: float = 0.0

    @property
    def weighted(self) -> bool:
        return self.kind in ("conv", "linear")


@dataclass(frozen=True)
class Shape:
    """A row's output and cost: channels, map side (0 once flat; a signal's length), parameters,
    multiply-adds for one image."""

    row: Row
    channels: int
    side: int
    parameters: int
    multiply_adds: int


def expand(rows: Sequence[JsonObject], *, width: float, classes: int) -> tuple[Row, ...]:
    """Return the layers that `rows` describe, with `width` times the channels (at least 1) and the
    number of classes."""
    layers: list[Row] = []
    for entry in rows:
        layers += _repeats(entry, width, classes)
    if not layers or layers[-1].kind != "linear" or layers[-1].size != classes:
        raise InputError(
            "model.rows must end with a row `linear: classes`, which gives one score per class"
        )

    names = [layer.name for layer in layers]
    taken = {"flatten"}  # names of modules that are no rows
    for layer in layers:
        if layer.weighted:
            taken |= {f"{layer.name}_{part}" for part in BESIDE}
    for name in names:
        if names.count(name) > 1 or name in taken:
            raise InputError(f"model.rows: {name} names two modules; give the row another name")
    return tuple(layers)


def _repeats(entry: JsonObject, width: float, classes: int) -> list[Row]:
    """Return the layers of one row of a configuration, of which there are `repeat`."""
    kinds = [kind for kind in KINDS if kind in entry]
    if len(kinds) != 1 or "name" not in entry:
        raise InputError(
            f"model.rows has {entry}; a row needs a name and one of: {', '.join(KINDS)}"
        )
    kind, at = kinds[0], f"model.rows.{entry['name']}."
    row = checked(KINDS[kind], entry, at)
    if isinstance(row, _Pyramid):
        return [Row(row.name, kind, levels=row.pyramid)]
    if isinstance(row, _MaxPool):
        size = row.max_pool
        if row.padding > size // 2:
            raise InputError(
                f"{at}padding={row.padding} is more than half the pool; give {size // 2} or less"
            )
        return [Row(row.name, kind, size, size, row.stride or size, row.padding)]

    assert isinstance(row, _Conv | _Linear)
    names = [row.name] if row.repeat == 1 else [f"{row.name}_{i + 1}" for i in range(row.repeat)]
    if isinstance(row, _Linear):
        size = classes if row.linear == "classes" else max(1, round(row.linear * width))
        return [Row(name, kind, size, dropout=row.dropout) for name in names]
    size = max(1, round(row.conv * width))
    paddings = row.padding if isinstance(row.padding, tuple) else (row.padding,)
    return [
        Row(name, kind, size, row.kernel, row.stride, paddings[i % len(paddings)])
        for i, name in enumerate(names)
    ]


class _Input(NamedTuple):
    """What the first layer reads. side: of the image or signal; 0 of a vector of `channels`."""

    channels: int
    side: int
    dims: int = 2


def trace(
    layers: Sequence[Row],
    *,
    channels: int,
    input_px: int,
    signal: bool = False,
    pieces: int = 1,
    outputs: int = 1,
    has_equal_parameters: bool = False,
    flat_input: int | None = None,
) -> tuple[Shape, ...]:
    """Follow one image through `layers` and return a Shape for each.

    channels, input_px: the image, or with `signal` a signal and its length. flat_input: the length
    of the input where it is a vector.
    pieces, outputs: channels that the activation reads and gives per unit; a layer before one emits
    `pieces` per unit.
    has_equal_parameters: whether to shrink the hidden fully connected layers to the largest share
    of their units with which all of them have no more parameters than with one piece. Between
    equally wide layers that is 1 / sqrt(pieces) of them; of one hidden layer between an input and
    an output of one width, as in a Transformer, it is 2 / 3 for a gate.

    Multiply-adds count padded positions and leave out biases and pooling, the convention that
    reproduces the paper's Table 3. A map without a position left is refused, with the smallest
    input that works.
    """
    if flat_input is None:
        given = _Input(channels, input_px, dims=1 if signal else 2)
    else:
        given = _Input(flat_input, side=0)
    shapes = _try_trace(layers, given, pieces, outputs)
    if isinstance(shapes, str):
        if flat_input is not None:
            raise InputError(
                f"{shapes} needs an image, and preprocess gives a vector; choose model=mlp or "
                "an image form"
            )
        smallest = smallest_input_px(layers)
        if signal:  # which has the length that the data have
            raise InputError(
                f"a signal of 1 x {input_px} leaves no position at {shapes}; the smallest that "
                f"this network takes is 1 x {smallest}: choose a smaller network"
            )
        raise InputError(
            f"an input of {input_px} x {input_px} px leaves no position at {shapes}; the smallest "
            f"input of this network is {smallest} px: raise data.crop_px"
        )
    if has_equal_parameters:
        layers = _with_equal_parameters(layers, given, pieces, outputs)
        shapes = _try_trace(layers, given, pieces, outputs)
        assert not isinstance(shapes, str)
    return shapes


def _with_equal_parameters(
    layers: Sequence[Row], given: _Input, pieces: int, outputs: int
) -> list[Row]:
    """Return `layers` with the largest share of the units of fully connected ones that `trace`
    allows."""

    def parameters(rows: Sequence[Row], pieces: int, outputs: int) -> int:
        shapes = _try_trace(rows, given, pieces, outputs)
        assert not isinstance(shapes, str)
        return sum(shape.parameters for shape in shapes if shape.row.kind == "linear")

    most = parameters(layers, 1, 1)
    low, high = 0.0, 1.0
    while high - low > SHARE_TOLERANCE:
        share = (low + high) / 2
        if parameters(_with_share(layers, share), pieces, outputs) <= most:
            low = share
        else:
            high = share
    return _with_share(layers, low)


def _with_share(layers: Sequence[Row], share: float) -> list[Row]:
    """Return `layers` with a share of the units of each fully connected one but the last."""
    hidden = [
        replace(row, size=max(1, round(share * row.size))) if row.kind == "linear" else row
        for row in layers[:-1]
    ]
    return [*hidden, layers[-1]]


def size(layers: Sequence[Row], *, channels: int, input_px: int) -> dict[str, int]:
    """Return the `depth`, the `multiply_adds` of one image, and the `parameters` without slopes."""
    shapes = trace(layers, channels=channels, input_px=input_px)
    return {
        "depth": depth(layers),
        "multiply_adds": sum(shape.multiply_adds for shape in shapes),
        "parameters": sum(shape.parameters for shape in shapes),
    }


def smallest_input_px(layers: Sequence[Row]) -> int:
    """Return the smallest square input that leaves at least one position in every map."""
    for side in range(1, LARGEST_SIDE):
        if not isinstance(_try_trace(layers, _Input(1, side), 1, 1), str):
            return side
    stuck = _try_trace(layers, _Input(1, LARGEST_SIDE), 1, 1)
    raise InputError(
        f"model.rows: {stuck} gets no map whatever the input; conv, max_pool and pyramid rows "
        "stand before the first linear or pyramid row, and leave at least one position"
    )


def _try_trace(
    layers: Sequence[Row], given: _Input, pieces: int, outputs: int
) -> tuple[Shape, ...] | str:
    """Return the shapes, or the name of the first layer that would have no position."""
    shapes = []
    channels, side, dims = given
    for i, row in enumerate(layers):
        is_last = i + 1 == len(layers)  # no activation follows
        emitted = row.size * (1 if is_last else pieces)  # by the layer
        after = row.size * (1 if is_last else outputs)  # by its activation
        parameters = multiply_adds = 0

        if row.kind in ("conv", "max_pool"):
            if side == 0 or side + 2 * row.padding < row.kernel:
                return row.name
            side = _side_after(row, side)
            if row.kind == "conv":
                weights = row.kernel**dims * channels * emitted
                parameters, multiply_adds = weights + emitted, weights * side**dims
                channels = after
        elif row.kind == "pyramid":
            if side == 0:
                return row.name
            channels, side = channels * sum(level**2 for level in row.levels), 0
        else:
            weights = channels * max(side, 1) ** dims * emitted
            parameters, multiply_adds = weights + emitted, weights
            channels, side = after, 0

        shapes.append(Shape(row, channels, side, parameters, multiply_adds))
    return tuple(shapes)


def _side_after(row: Row, side: int) -> int:
    """Return the side of the map that a convolution or a pooling makes of one."""
    return (side + 2 * row.padding - row.kernel) // row.stride + 1


def map_sizes(shapes: Sequence[Shape], height: int, width: int) -> tuple[int, int]:
    """Return the size of the last map for an image of this size."""
    for shape in shapes:
        if shape.row.kind in ("conv", "max_pool"):
            height, width = _side_after(shape.row, height), _side_after(shape.row, width)
    return height, width


def multiply_adds(shapes: Sequence[Shape], height: int, width: int) -> tuple[int, int]:
    """Return the multiply-adds (of the conv layers on an image of this size, of the linear layers
    on one window)."""
    trunk = 0
    for i, shape in enumerate(shapes):
        if shape.row.kind == "conv":
            rows, columns = map_sizes(shapes[: i + 1], height, width)
            trunk += shape.multiply_adds // shape.side**2 * rows * columns
    head = sum(shape.multiply_adds for shape in shapes if shape.row.kind == "linear")
    return trunk, head


def depth(layers: Sequence[Row]) -> int:
    """Return the number of layers with weights, the paper's count ("14-layer")."""
    return sum(row.weighted for row in layers)
