"""What is unusual of weights that look drawn by a rule: notes, inferred from a std and measured on
nothing."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from torch import nn

from rectifiers.initialization.findings import Finding, TensorAudit, named
from rectifiers.initialization.flow import Flow
from rectifiers.initialization.report import EXPLODED
from rectifiers.initialization.weights import is_untruncated

LARGE_OUTPUT = 100.0  # E[y^2] of scores, from which on a softmax is certain of a wrong answer
PROPORTION = 10.0  # of the stds of embeddings that are added
FARTHEST = 8.0  # in std, that no normal number reaches
LARGEST_STD_RATIO = 1.25  # of layers that count as alike
MOST_DEAD = 0.8  # share of units


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
            larger = [
                other
                for other in inner
                if other.looks.std > LARGEST_STD_RATIO * row.looks.std and _is_of_no_fan(other)
            ]
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
            and abs(math.log(row.looks.std / usual.looks.std)) > math.log(LARGEST_STD_RATIO)
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


def _note(rows: Sequence[TensorAudit], sentence: str) -> Finding:
    tensors = tuple(row.tensor for row in rows)
    return Finding("note", f"{named(tensors)}: {sentence}", tensors)
