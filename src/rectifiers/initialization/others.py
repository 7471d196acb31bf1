"""What `initialize` does, on request, to parameters that are no layer's weight: scales at the end
of residual branches, and tables of embeddings."""

import math
from collections.abc import Collection
from typing import get_args

import torch
from torch import Tensor, nn

from rectifiers.initialization.distributions import Residual, Trace
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.seeds import derive_seed

Values = dict[str, list[tuple[Tensor, Tensor]]]  # by layer, its tensors with their values before


def check_options(residual: str, embeddings: float | None) -> None:
    """Raise an InputError for options that are unknown."""
    if residual not in get_args(Residual):
        known = ", ".join(get_args(Residual))
        raise InputError(f"residual={residual} is not known; choose one of: {known}")
    is_number = isinstance(embeddings, int | float) and not isinstance(embeddings, bool)
    if embeddings is not None and not (is_number and 0 < embeddings < math.inf):
        raise InputError(f"embeddings={embeddings} is not usable; give a std such as 0.02, or None")


def check_fit(residual: Residual, embeddings: float | None, structure: Trace) -> None:
    """Raise an InputError for options that mean nothing in this network."""
    if residual == "zero" and (not structure.scales or None in structure.scales):
        raise InputError(
            "residual=zero: needs residual branches that all end in a layer or a scale, as of a "
            "normalisation; set what they end in to 0 yourself, or leave residual out"
        )
    if residual == "depth" and not structure.branches:
        raise InputError(
            "residual=depth: no residual branch of the network ends in a layer; leave residual out"
        )
    if embeddings is not None and not structure.tables:
        raise InputError(
            f"embeddings={embeddings}: the run reads no embedding; leave embeddings out"
        )


@torch.no_grad()
def zero_scales(model: nn.Module, structure: Trace, before: Values) -> dict[str, str]:
    """Set the scales at the end of residual branches to 0, with the shifts beside them; return them
    by name, each with what was done."""
    done = {}
    for name in filter(None, dict.fromkeys(structure.scales)):
        owner = model.get_submodule(name.rpartition(".")[0])
        shift = getattr(owner, "bias", None) if name.endswith("weight") else None
        parameters = [x for x in (model.get_parameter(name), shift) if isinstance(x, Tensor)]
        before.setdefault(name, [(x, x.clone()) for x in parameters])
        for x in parameters:
            x.zero_()
        done[name] = "set to 0, at the end of a residual branch"
    return done


@torch.no_grad()
def fill_tables(structure: Trace, std: float, seed: int, before: Values) -> None:
    """Fill all tables of embeddings with N(0, std^2); rows for padding stay 0."""
    for i, (name, table) in enumerate(structure.tables.items()):
        if table.weight.is_inference():
            raise InputError(
                f"{name} was made in inference mode, so nothing can fill it; make the model outside"
            )
        before.setdefault(name, [(table.weight, table.weight.clone())])
        generator = torch.Generator().manual_seed(derive_seed("embeddings", seed, i))
        drawn = torch.empty(table.weight.shape, dtype=torch.float32, device="cpu")
        drawn.normal_(std=std, generator=generator)
        if table.padding is not None:
            drawn[table.padding] = 0
        table.weight.copy_(drawn)


@torch.no_grad()
def describe_tables(
    trace: Trace, std: float | None, layers: Collection[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return (what was done with tables that were filled, why others were not), by name.

    layers: the names of weights that were filled as those of layers."""
    done, left = {}, {}
    for name, table in trace.tables.items():
        second = float(table.read().double().square().mean())
        filled = "by the rule of the layer" if std is None else f"with N(0, {std:g}²)"
        tied = " and a layer's weight" if name in trace.calls else ""
        if std is not None or name in layers:
            done[name] = f"an embedding{tied}: filled {filled}; it gives E[x²] = {second:.3g}"
        else:
            left[name] = f"an embedding{tied}, which gives E[x²] = {second:.3g}"
    return done, left
