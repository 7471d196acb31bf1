"""The Fisher information matrix F of a small softmax network's weights, exact for the model over
given inputs.

F = E_x E_{c ~ p(.|x)}[grad log p_c grad log p_c'] is also the second derivative of the KL
divergence between the network and one with other weights, and -E[Hessian of log p]. A reader
reports of the paper's ICCV version that it asks how far F is from block-diagonal: a unit whose mean
is not 0 correlates the weights that read it with others."""

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from rectifiers.models.network import ImageNetwork, Network
from rectifiers.models.shortcuts import ShortcutBlock
from rectifiers.runtime.errors import InputError

# 128 MB of doubles; the matrix grows with its square, the time for the eigenvalues with its cube
MAX_WEIGHTS = 4000
CHUNK = 2**24  # numbers of the Jacobian at a time
# Shares of the mean eigenvalue: F is 0 in directions that leave the softmax unchanged, so its
# inverse needs a damping, and what an angle to the natural gradient says may depend on how much.
DAMPINGS = {
    "natural_angle": 1e-3,
    "natural_angle_damped_0.0001": 1e-4,
    "natural_angle_damped_0.01": 1e-2,
    "natural_angle_damped_0.1": 1e-1,
}
SHORTCUT = "shortcut"  # a measure of networks that have shortcuts


def weights_of(network: ImageNetwork) -> dict[str, Tensor]:
    """Return the weights of conv and linear layers by name, in their order; biases and slopes count
    as constants.

    Raises:
        InputError: where there are more than MAX_WEIGHTS.
    """
    chosen = {id(m.weight) for m in network.modules() if isinstance(m, nn.Conv2d | nn.Linear)}
    weights = {
        name: p.detach().double() for name, p in network.named_parameters() if id(p) in chosen
    }
    if (count := sum(p.numel() for p in weights.values())) > MAX_WEIGHTS:
        raise InputError(
            f"the Fisher information of {count} weights is beyond the limit of {MAX_WEIGHTS}; "
            "lower model.hidden or data.crop_px (with data.resize_px)"
        )
    return weights


def fisher_matrix(network: ImageNetwork, inputs: Tensor) -> Tensor:
    """Return F [P, P] in double precision; the weights are in the order of `weights_of`,
    flattened."""
    exact, x = network.double().eval(), inputs.double()
    weights = weights_of(exact)
    count = sum(p.numel() for p in weights.values())

    fixed = {name: p.detach() for name, p in exact.named_parameters()}

    def score(chosen: Mapping[str, Tensor], one: Tensor, label: int) -> Tensor:
        return functional_call(exact, {**fixed, **chosen}, (one[None],))[0, label]

    # One class at a time: jacrev would nest two vmaps, and torch's rule for PReLU fails on the
    # shapes under two.
    row_of = vmap(grad(score), in_dims=(None, 0, None))
    classes = exact(x[:1]).shape[1]
    total = torch.zeros(count, count, dtype=torch.float64)
    for part in x.split(max(1, CHUNK // (count * classes))):
        rows = [row_of(weights, part, label) for label in range(classes)]
        flat_rows = [torch.cat([g.flatten(1) for g in row.values()], dim=1) for row in rows]
        jacobian = torch.stack(flat_rows, dim=1)  # of the scores, [images, classes, P]

        # grad log p_c is the score's gradient less its mean over classes; weighted by p_c
        p = F.softmax(exact(part).detach(), dim=1)[:, :, None]
        mean = (p * jacobian).sum(1, keepdim=True)
        weighted = (p.sqrt() * (jacobian - mean)).flatten(0, 1)
        total += weighted.T @ weighted
    return total / len(x)


def gradient(network: ImageNetwork, inputs: Tensor, labels: Tensor) -> Tensor:
    """Return the gradient [P] of the mean cross-entropy by the weights, in the order of
    `fisher_matrix`."""
    exact = network.double().eval()
    names = list(weights_of(exact))
    with torch.enable_grad():
        loss = F.cross_entropy(exact(inputs.double()), labels)
        parameters = dict(exact.named_parameters())
        gradients = torch.autograd.grad(loss, [parameters[name] for name in names])
    return torch.cat([g.flatten() for g in gradients])


def angle(fisher: Tensor, gradient: Tensor, damping: float) -> float | None:
    """Return the angle in degrees between the gradient and the natural gradient, (F + damping
    mean(F_ii) 1)^-1 gradient; None where one of them is zero."""
    floor = damping * float(fisher.diagonal().mean())
    if floor <= 0 or not bool(gradient.any()):
        return None
    factor = torch.linalg.cholesky(fisher + floor * torch.eye(len(fisher), dtype=fisher.dtype))
    natural = torch.cholesky_solve(gradient[:, None], factor)[:, 0]
    cosine = float(gradient @ natural / gradient.norm() / natural.norm())
    return math.degrees(math.acos(max(-1.0, min(1.0, cosine))))


def summarize(fisher: Tensor, hidden: int, classes: int, shortcut: int = 0) -> dict[str, float]:
    """Return the measures of a two-layer network's F by name.

    hidden, classes: the output layer's weight is [classes, hidden] and comes last. shortcut: the
    number of weights of a shortcut, which come before.

    Off-diagonal masses are means of |F_ij| / sqrt(F_ii F_jj) over pairs of different weights.
    output_units: the mass of output weights of one class and two hidden units, for which theory
    predicts (1 - a)^2 / (pi (1 + a^2)) at the start if the units are independent. first, output,
    cross: within the first layer's block, within the output's, between the two. shortcut: between
    the shortcut and both, where there is one. off_over_diagonal: ||F - diag F|| / ||diag F||,
    Frobenius. largest_over_mean: of the eigenvalues, 1 for a multiple of the unit matrix.
    effective_rank: (sum of eigenvalues)^2 / sum of squares, as a share of their number. dead: the
    number of weights without information, F_ii = 0."""
    diagonal = fisher.diagonal()
    alive = diagonal > 1e-14 * diagonal.max()
    scale = torch.where(alive, diagonal, torch.inf).rsqrt()
    correlation = (fisher * scale[:, None] * scale).abs()
    last = len(fisher) - hidden * classes  # where the output layer's weights begin
    first = last - shortcut  # where the first layer's weights end

    def mass(block: Tensor, known: Tensor) -> float:
        pairs = int(known.sum()) * (int(known.sum()) - 1)
        return float(block.sum() - block.diagonal().sum()) / pairs if pairs else math.nan

    def mass_between(block: Tensor, rows: Tensor, columns: Tensor) -> float:
        pairs = int(rows.sum()) * int(columns.sum())
        return float(block.sum()) / pairs if pairs else math.nan

    inner, outer = correlation[:first, :first], correlation[last:, last:]
    units = [  # of each class
        mass(outer[i : i + hidden, i : i + hidden], alive[last:][i : i + hidden])
        for i in range(0, hidden * classes, hidden)
    ]

    values = torch.linalg.eigvalsh(fisher).flip(0).clamp_min(0)
    measures = {
        "output_units": sum(units) / len(units),
        "first": mass(inner, alive[:first]),
        "output": mass(outer, alive[last:]),
        "cross": mass_between(correlation[:first, last:], alive[:first], alive[last:]),
        "off_over_diagonal": float((fisher - fisher.diag().diag()).norm() / diagonal.norm()),
        "largest_over_mean": float(values[0] / values.mean()),
        "effective_rank": float(values.sum() ** 2 / values.square().sum() / len(values)),
        "dead": int((~alive).sum()),
    }
    if shortcut:
        past = slice(first, last)
        others = torch.ones(len(fisher), dtype=torch.bool)
        others[past] = False
        measures[SHORTCUT] = mass_between(correlation[past][:, others], alive[past], alive[others])
    return measures


def check_two_layers(network: ImageNetwork) -> None:
    """Raise InputError for a network that `measure` cannot handle."""
    if isinstance(network, Network):
        has_two = len(network.sites()) == 2 and network.pieces == 1
    else:
        has_two = _only_block(network) is not None
    if not has_two:
        raise InputError(
            "fisher speaks of networks with two layers of weights, with shortcuts or without; give "
            "model=mlp or model=mlp_shortcuts, and model.depth=1"
        )
    weights_of(network)


def _only_block(network: ImageNetwork) -> ShortcutBlock | None:
    """The block of a perceptron with shortcuts that has just one; None of any other network."""
    match list(network.own_module().children()):
        case [nn.Flatten(), ShortcutBlock() as block]:
            return block
    return None


def measure(network: ImageNetwork, inputs: Tensor, labels: Tensor) -> dict[str, float]:
    """Return every measure of a two-layer network by name, SHORTCUT where it has one.

    The network stays in double precision. natural_angle: degrees between the gradient and the
    natural gradient, for each of `DAMPINGS`."""
    fisher = fisher_matrix(network, inputs)
    if isinstance(network, Network):
        last, shortcut = network.sites()[-1].module.weight, 0
    else:
        block = _only_block(network)
        assert block is not None  # see `check_two_layers`
        last, shortcut = block.out.weight, block.shortcut.weight.numel()

    classes, hidden = last.shape
    measures = summarize(fisher, hidden, classes, shortcut)

    downhill = gradient(network, inputs, labels)
    for name, damping in DAMPINGS.items():
        degrees = angle(fisher, downhill, damping)
        measures[name] = math.nan if degrees is None else degrees
    return measures
