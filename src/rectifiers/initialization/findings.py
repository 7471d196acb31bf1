"""What is at fault with the start of a network. Severity follows the measured effect: an error is
what cannot be trained, a warning what leaves the limits, a note what is inferred from a std."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from torch import nn

from rectifiers.initialization.flow import Flow
from rectifiers.initialization.report import EXPLODED, VANISHED
from rectifiers.initialization.weights import Looks, is_untruncated

LARGE_OUTPUT = 100.0  # E[y^2] of scores, from which on a softmax is certain of a wrong answer
PROPORTION = 10.0  # of the stds of embeddings that are added
FARTHEST = 8.0  # in std, that no normal number reaches
ALIKE = 1.25  # largest ratio of the stds of layers that are alike
MOST_DEAD = 0.8  # share of units
FUSED = re.compile(r"qkv|in_proj|c_attn|query_key_value")
Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """A sentence about `tensors`, of a severity."""

    severity: Severity
    sentence: str
    tensors: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.severity}: {self.sentence}"


@dataclass(frozen=True)
class TensorAudit:
    """A tensor of weights.

    tensor: its name.
    shape: its shape.
    looks: what rule it looks like.
    reads: what its layer reads, in words; "" where it is no layer's.
    fan_in: of the layer; 0 where it is no layer's.
    needed: the std with which responses have a mean square of 1, or of the layer's share at the end
        of a residual branch.
    second_in: E[x^2] of what the layer reads.
    second: E[y^2] of its responses.
    correlation: of the responses to two examples.
    gradient: of the responses, as of `LayerFlow`.
    is_end: whether a residual sum reads the responses.
    is_output: whether nothing does.
    """

    tensor: str
    shape: tuple[int, ...]
    looks: Looks
    reads: str = ""
    fan_in: int = 0
    needed: float | None = None
    second_in: float | None = None
    second: float | None = None
    correlation: float | None = None
    gradient: float | None = None
    is_end: bool = False
    is_output: bool = False

    @property
    def kind(self) -> str:
        """The name without the numbers of blocks."""
        return re.sub(r"\d+", "*", self.tensor)

    @property
    def block(self) -> str:
        """The name up to the last number of a block."""
        return self.tensor[: max((m.end() for m in re.finditer(r"\d+\.", self.tensor)), default=0)]


def named(tensors: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(tensors) - 3} more" if len(tensors) > 3 else ""
    return ", ".join(tensors[:3]) + more


def not_finite(model: nn.Module) -> Iterator[Finding]:
    """Find parameters and running statistics with NaN or infinite numbers."""
    statistics = ((n, b) for n, b in model.named_buffers() if n.endswith(("_mean", "_var")))
    broken = [
        name
        for name, x in chain(model.named_parameters(), statistics)
        if not bool(x.detach().isfinite().all())
    ]
    if broken:
        yield Finding(
            "error",
            f"{named(broken)}: not finite; fill them, torch.empty leaves what was in memory",
            tuple(broken),
        )


def errors(flows: Sequence[Flow]) -> Iterator[Finding]:
    """Find what is not finite in the run, and parameters that no gradient reaches.

    flows: the first of the model, the others after a step of SGD each."""
    first, last = flows[0], flows[-1]
    for name, layer in first.layers.items():
        for what, number in (("responses", layer.second), ("gradient", layer.gradient)):
            if not math.isfinite(number):
                yield Finding("error", f"the {what} of {name} are not finite", (name,))
                return
    cut = [name for name, g in last.gradients.items() if g is None and name in last.used]
    if cut:
        yield Finding(
            "error",
            f"{named(cut)}: read, but cut off from all outputs; look for detach, no_grad, argmax "
            "or rounding behind them",
            tuple(cut),
        )
    dead = silent(last)
    if dead:
        steps = f"even after {len(flows) - 1} step{'s' * (len(flows) > 2)} of SGD"
        yield Finding(
            "error",
            f"{named(dead)}: no gradient, {steps}; look for activations that are constant on all "
            "examples (dead units), and for factors of zeros that multiply each other",
            tuple(dead),
        )


def silent(flow: Flow) -> list[str]:
    """Return the parameters that the outputs depend on with a gradient of 0. A bias before a
    normalisation or a softmax has none, and does not count."""
    result = []
    for name, gradient in flow.gradients.items():
        derivative = flow.derivatives[name]
        if gradient != 0 or derivative is None:
            continue
        owner = name.rpartition(".")[0]
        others = (g for n, g in flow.gradients.items() if n != name and _is_in(n, owner))
        if derivative.dim() > 1 or not any(others):
            result.append(name)
    return result


def _is_in(name: str, owner: str) -> bool:
    return name.rpartition(".")[0] == owner


def warnings(
    model: nn.Module, rows: Sequence[TensorAudit], flows: Sequence[Flow]
) -> Iterator[Finding]:
    """Find signals, gradients and correlations outside the limits, and units that stay alike.

    The signal is judged where layers read it: what a normalisation reads, or a residual sum, may
    have any size."""
    layers = [row for row in rows if row.second is not None]
    for row in layers:
        size, what = row.second_in or 0.0, f"what {row.tensor} reads, {row.reads}, has E[x²]"
        if row.is_output and (row.second or 0.0) > EXPLODED:
            size, what = row.second or 0.0, f"the responses of {row.tensor} have E[y²]"
        if size > EXPLODED or 0 < size < VANISHED:
            word = "explodes" if size > 1 else "vanishes"
            yield Finding(
                "warning",
                f"the signal {word}: {what} = {size:.3g}; use rectifiers.initialize, "
                "normalisation or residual connections",
                (row.tensor,),
            )
            break
    yield from _gradient(flows)
    answered = [row for row in layers if row.correlation is not None]
    if answered and (last := answered[-1]).correlation > 1 - VANISHED:  # type: ignore[operator]
        yield Finding(
            "warning",
            f"two inputs look alike: the responses of {last.tensor} to them correlate at "
            f"1 - {max(0.0, 1 - last.correlation):.2g}; "  # type: ignore[operator]
            "use another activation, smaller biases, normalisation or residual connections",
            (last.tensor,),
        )
    yield from _copies(model, flows[0])


def _gradient(flows: Sequence[Flow]) -> Iterator[Finding]:
    """Compare the first layer's gradient with the last one's, each in units of its responses: a
    normalisation behind the layer divides one and multiplies the other.

    A network whose last layer starts at 0 is compared after a step."""
    for flow in flows:
        sizes = [(name, x.gradient * x.second) for name, x in flow.layers.items()]
        if not sizes:
            return
        (first, size), (last, reference) = sizes[0], sizes[-1]
        if not size or not reference:
            continue
        if not VANISHED <= size / reference <= EXPLODED:
            word = "explodes" if size > reference else "vanishes"
            yield Finding(
                "warning",
                f"the gradient {word}: its mean square at {first} is {size / reference:.3g} of "
                f"that at {last}; use another activation, residual connections or normalisation",
                (first,),
            )
        return


def _copies(model: nn.Module, flow: Flow) -> Iterator[Finding]:
    """Find layers whose units are equal and get equal gradients."""
    parameters = dict(model.named_parameters())
    copies = []
    for name in flow.layers:
        weight, derivative = parameters[name].detach(), flow.derivatives.get(name)
        if derivative is None or len(weight) < 2 or bool((weight != weight[:1]).any()):
            continue
        apart = float((derivative - derivative[:1]).abs().amax())
        if apart < 1e-5 * float(derivative.abs().amax()):
            copies.append(name)
    if copies:
        yield Finding(
            "warning",
            f"{named(copies)}: all units are equal and get equal gradients, so they stay copies of "
            "each other; draw the weights at random",
            tuple(copies),
        )


def notes(model: nn.Module, rows: Sequence[TensorAudit], flow: Flow) -> Iterator[Finding]:
    """Find what is unusual of weights that look drawn by a rule."""
    layers, tables = [row for row in rows if row.fan_in], embedding_tables(model)
    yield from _mistaken_fans(layers)
    yield from _scaled_by_depth(layers)
    yield from _different(layers)
    yield from _not_truncated(layers)
    yield from _embeddings(rows, tables)
    yield from _outputs(layers, tables)
    yield from _dead_units(flow)


def _mistaken_fans(layers: Sequence[TensorAudit]) -> Iterator[Finding]:
    """Find layers that only a rule with another fan explains."""
    by_cause: dict[str, list[TensorAudit]] = defaultdict(list)
    for row in layers:
        if row.looks.fits and row.looks.fits[0].mistake:
            by_cause[row.looks.fits[0].mistake].append(row)
    for cause, found in by_cause.items():
        yield _note(
            found,
            f"std as of {found[0].looks.fits[0].rule} with a fan that the layer does not have: "
            f"{cause}; it is {found[0].looks.fits[0].factor:.2g} times that of the right fan",
        )


def _scaled_by_depth(layers: Sequence[TensorAudit]) -> Iterator[Finding]:
    """Find layers with the small std of the ends of residual branches in their block, which are no
    ends themselves, where another layer of the block keeps the larger one."""
    blocks: dict[str, list[TensorAudit]] = defaultdict(list)
    for row in layers:
        if row.looks.std:
            blocks[row.block.split(".")[0] + _number(row.block)].append(row)
    found = []
    for block in blocks.values():
        ends = [row for row in block if row.is_end and _is_of_no_fan(row)]
        inner = [row for row in block if not row.is_end]
        for row in inner:
            like = [end for end in ends if _same(row, end)]
            larger = [o for o in inner if o.looks.std > ALIKE * row.looks.std and _is_of_no_fan(o)]
            if like and larger and _is_of_no_fan(row):
                found.append(row)
    if found:
        yield _note(
            found,
            "std as at the ends of residual branches, where it is scaled by depth, but no residual "
            "sum reads these responses",
        )


def _number(block: str) -> str:
    return "".join(re.findall(r"\d+", block)[:1])


def _is_of_no_fan(row: TensorAudit) -> bool:
    """Whether the std is not that of a rule by fans, which explains equal stds of equal fans."""
    return not row.looks.rule.startswith(("he", "xavier", "lecun", "torch default", "orthogonal"))


def _same(one: TensorAudit, other: TensorAudit) -> bool:
    """Whether two stds are equal within four sampling errors."""
    error = math.hypot(one.looks.error, other.looks.error)
    return abs(math.log(one.looks.std / other.looks.std)) < 4 * error + 0.002


def _different(layers: Sequence[TensorAudit]) -> Iterator[Finding]:
    """Find layers of one shape that read alike and start from different stds. Those that become
    smaller, or larger, from block to block are meant so."""
    alike: dict[object, list[TensorAudit]] = defaultdict(list)
    for row in layers:
        reads = re.sub(r"\S*\d\S*|\bof\b.*", "", row.reads)
        if row.looks.std and row.looks.family != "constant":
            alike[row.shape, row.fan_in, row.is_end, row.is_output, reads].append(row)
    for group in alike.values():
        usual = sorted(group, key=lambda row: row.looks.std)[len(group) // 2]
        odd = [
            row
            for row in group
            if not _same(row, usual)
            and abs(math.log(row.looks.std / usual.looks.std)) > math.log(ALIKE)
        ]
        kinds = {row.kind for row in odd}
        if odd and not all(_is_by_depth([r for r in group if r.kind == kind]) for kind in kinds):
            yield _note(
                odd,
                f"std {odd[0].looks.std:.3g}, where {usual.tensor}, of the same shape and reading "
                f"alike, has {usual.looks.std:.3g}",
            )


def _is_by_depth(group: Sequence[TensorAudit]) -> bool:
    stds = [row.looks.std for row in group]
    distinct = len({round(math.log(std), 1) for std in stds}) > 2
    return distinct and stds in (sorted(stds), sorted(stds, reverse=True))


def _not_truncated(layers: Sequence[TensorAudit]) -> Iterator[Finding]:
    """Find normal weights of a fixed std. nn.init.trunc_normal_ takes its bounds in units of the
    weights, so that its -2 and 2 cut nothing off from a std of 0.02."""
    cut = [row for row in layers if row.looks.family == "truncated normal"]
    whole = [
        row
        for row in layers
        if _is_of_no_fan(row) and is_untruncated(row.looks, math.prod(row.shape))
    ]
    far = [row for row in whole if row.looks.largest > FARTHEST]
    if far:
        yield _note(
            far,
            f"single numbers are up to {max(r.looks.largest for r in far):.3g} std from the mean; "
            "rules of truncated normals may put some on their bounds, however far out",
        )
    is_fixed = any(row.looks.fits for row in whole)
    if is_fixed and (cut or len(whole) > 3):
        others = f", unlike {named([row.tensor for row in cut])}" if cut else ""
        largest = sorted(row.looks.largest for row in whole)[len(whole) // 2]
        yield _note(
            whole,
            f"normal without truncation, up to {largest:.2g} std{others}; if one "
            "was meant: nn.init.trunc_normal_ takes a and b in units of the weights, not of std",
        )


def embedding_tables(model: nn.Module) -> set[str]:
    """Return the names of the weights of embeddings, which may be those of layers, too."""
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    return {name for name, x in model.named_parameters() if id(x) in tables}


def _embeddings(rows: Sequence[TensorAudit], tables: set[str]) -> Iterator[Finding]:
    """Find embeddings of tokens and of places that differ much in size. Both are added."""
    by_width: dict[int, list[TensorAudit]] = defaultdict(list)
    for row in rows:
        is_place = "pos" in row.tensor.lower() and len(row.shape) > 1 and row.shape[-2] > 1
        if row.looks.std and (row.tensor in tables or (is_place and not row.fan_in)):
            by_width[row.shape[-1]].append(row)
    for group in by_width.values():
        small, *_, large = sorted(group, key=lambda row: row.looks.std) * 2
        ratio = large.looks.std / small.looks.std
        if ratio > PROPORTION:
            yield _note(
                [large],
                f"std {large.looks.std:.3g}, {ratio:.2g} times that of {small.tensor}; where both "
                "are added, the smaller one is hardly seen",
            )


def _outputs(layers: Sequence[TensorAudit], tables: set[str]) -> Iterator[Finding]:
    for row in layers:
        if row.is_output and LARGE_OUTPUT < (row.second or 0.0) <= EXPLODED and row.needed:
            tied = ", and is an embedding, too" if row.tensor in tables else ""
            yield _note(
                [row],
                f"outputs start with E[y²] = {row.second:.3g}, so that a softmax is certain of "
                f"wrong answers; std {row.needed:.3g} makes it 1, and this is "
                f"{row.looks.std:.3g}{tied}",
            )


def _dead_units(flow: Flow) -> Iterator[Finding]:
    shares = {
        name: float((~layer.alive).double().mean())
        for name, layer in flow.layers.items()
        if layer.alive is not None and len(layer.alive)
    }
    dead = [name for name, share in shares.items() if MOST_DEAD < share < 1]
    if dead:
        share = 100 * shares[dead[0]]
        yield Finding(
            "note",
            f"{named(dead)}: {share:.0f} % of the units get no gradient on any of the examples",
            tuple(dead),
        )


def trained(rows: Sequence[TensorAudit], has_statistics: bool) -> Finding | None:
    """Return the note that weights look trained, and which of them look drawn again; None where
    they do not."""
    judged = [row for row in rows if row.fan_in and min(row.shape[0], row.fan_in) >= 16]
    structured = [row for row in judged if row.looks.is_structured]
    needed = 0.25 if has_statistics else 0.5
    if not structured or len(structured) < needed * len(judged):
        return None
    again = [row.tensor for row in judged if row.looks.is_drawn and not row.is_output]
    sentence = "the weights look trained, so that only errors are reported"
    if again:
        sentence += f"; freshly drawn look: {named(again)} (drawn again after loading?)"
    return Finding("note", sentence, tuple(again))


def _note(rows: Sequence[TensorAudit], sentence: str) -> Finding:
    tensors = tuple(row.tensor for row in rows)
    return Finding("note", f"{named(tensors)}: {sentence}", tensors)
