"""Faults of initialisation, each rebuilt in a few lines: what `audit` says of it, and what curing
it does to the training loss. Writes the table of docs/explanation/audit.md.

    python studies/faults.py   trains 34 small networks in some two minutes
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

from rectifiers import audit, initialize
from rectifiers.results.documents import filled

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "audit.md"
BLOCK = "faults: python studies/faults.py"  # of the page
STEPS, BATCH, LR = 300, 64, 1e-3
WIDTH, DEPTH, CLASSES = 64, 6, 10


@dataclass(frozen=True)
class Fault:
    """A fault in words, the model with it or cured, and the finding: its severity, and a tensor
    that it names."""

    words: str
    build: Callable[[bool], nn.Module]
    severity: str
    tensor: str


def digits() -> tuple[Tensor, Tensor]:
    """Return 1,797 digits of 8 x 8 pixels, [N, 64], standardised, and their labels."""
    data = load_digits()
    x = torch.tensor(data.data, dtype=torch.float32)
    return (x - x.mean()) / x.std(), torch.tensor(data.target)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in "qkvo")

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (4, -1)).transpose(1, 2) for layer in (self.wq, self.wk, self.wv)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1, self.w3 = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.w2 = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.attention, self.feed_forward = Attention(), FeedForward()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class Transformer(nn.Module):
    """Reads a digit as eight tokens, its rows. The rule of Llama's: std 0.02, and divided by
    sqrt(2 DEPTH) at the ends of branches.

    scaled: the layers whose std is divided. truncate_at: in units of the std."""

    def __init__(self, scaled: tuple[str, ...] = ("wo", "w2"), truncate_at: float = 3.0) -> None:
        super().__init__()
        self.embed = nn.Linear(8, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(DEPTH)))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, CLASSES)
        for name, weight in self.blocks.named_parameters():
            if weight.dim() > 1:
                is_scaled = name.split(".")[-2] in scaled
                std = 0.02 / math.sqrt(2 * DEPTH) if is_scaled else 0.02
                cut = truncate_at * std
                nn.init.trunc_normal_(weight, std=std, a=-cut, b=cut)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.embed(x.unflatten(-1, (8, 8))))).mean(1))


def gated(is_cured: bool) -> nn.Module:
    return Transformer(("wo", "w2") if is_cured else ("wo", "w2", "w3"))


def projections(is_cured: bool) -> nn.Module:
    return Transformer(("wo", "w2") if is_cured else ("wo", "w2", "wq", "wk", "wv"))


def truncation(is_cured: bool) -> nn.Module:
    return Transformer(truncate_at=3.0 if is_cured else 100.0)


def by_name(is_cured: bool) -> nn.Module:
    """Meant is `"norm" in name`, and block 1 is hit, too."""
    model = Transformer()
    for name, weight in model.blocks.named_parameters():
        if weight.dim() > 1 and name.startswith("1.") and not is_cured:
            nn.init.normal_(weight, std=0.2)
    return model


def fused(is_cured: bool) -> nn.Module:
    model = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, 0.0, batch_first=True, norm_first=True)
    if is_cured:
        for part in model.self_attn.in_proj_weight.chunk(3):
            nn.init.xavier_uniform_(part.detach())
    head = nn.Linear(WIDTH, CLASSES)
    return nn.Sequential(
        nn.Unflatten(1, (8, 8)), nn.Linear(8, WIDTH), model, Mean(), nn.LayerNorm(WIDTH), head
    )


class Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


def chain(depth: int, activation: Callable[[], nn.Module], *ends: nn.Module) -> nn.Sequential:
    """Return a perceptron with `depth` hidden layers."""
    layers = [m for _ in range(depth) for m in (nn.Linear(WIDTH, WIDTH), activation())]
    return nn.Sequential(*layers, *ends, nn.Linear(WIDTH, CLASSES))


def fill(model: nn.Module, rule: Callable[[Tensor], object]) -> nn.Module:
    """Fill the weights of all layers by a rule, and their biases with 0."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
            rule(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return model


def small_std(is_cured: bool) -> nn.Module:
    rule = nn.init.kaiming_normal_ if is_cured else lambda w: nn.init.normal_(w, std=0.01)
    return fill(chain(30, nn.ReLU), rule)


def large_std(is_cured: bool) -> nn.Module:
    rule = nn.init.kaiming_normal_ if is_cured else nn.init.normal_
    return fill(chain(20, nn.ReLU), rule)


def sigmoid(is_cured: bool) -> nn.Module:
    model = chain(30, nn.ReLU if is_cured else nn.Sigmoid)
    initialize(model, (8, WIDTH))
    return model


def dead(is_cured: bool) -> nn.Module:
    model = chain(2, nn.ReLU)
    nn.init.constant_(model.get_parameter("0.bias"), 0.0 if is_cured else -10.0)
    return model


def constant(is_cured: bool) -> nn.Module:
    rule = nn.init.kaiming_normal_ if is_cured else lambda w: nn.init.constant_(w, 0.02)
    return fill(chain(2, nn.ReLU), rule)


def uninitialised(is_cured: bool) -> nn.Module:
    model = chain(2, nn.ReLU)
    # what torch.empty may hold
    nn.init.constant_(model.get_parameter("2.bias"), 0.0 if is_cured else math.nan)
    return model


class Detached(nn.Module):
    def __init__(self, is_cured: bool) -> None:
        super().__init__()
        self.body, self.is_cured = nn.Linear(WIDTH, WIDTH), is_cured
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x).relu()
        return self.head(y if self.is_cured else torch.tensor(y.tolist()))


class LoRA(nn.Module):
    """A frozen layer, and a product of two thin ones beside it; one of them starts at 0."""

    def __init__(self, is_cured: bool) -> None:
        super().__init__()
        self.frozen = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.a, self.b = nn.Linear(WIDTH, 4, bias=False), nn.Linear(4, WIDTH, bias=False)
        self.head = nn.Linear(WIDTH, CLASSES).requires_grad_(False)
        nn.init.zeros_(self.b.weight)
        if not is_cured:
            nn.init.zeros_(self.a.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((self.frozen(x) + self.b(self.a(x))).relu())


class Maps(nn.Module):
    """The 64 numbers as a map of 8 x 8 pixels, and the mean over positions before the scores."""

    def __init__(self, *layers: nn.Module, channels: int) -> None:
        super().__init__()
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(channels, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x.unflatten(1, (1, 8, 8))).flatten(2).mean(2))


def depthwise(is_cured: bool) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(1, 128, 1)]
    for _ in range(4):
        grouped = nn.Conv2d(128, 128, 3, padding=1, groups=128)
        layers += [grouped, nn.ReLU(), nn.Conv2d(128, 128, 1), nn.ReLU()]
    model = Maps(*layers, channels=128)
    fill(model, lambda w: nn.init.kaiming_normal_(w, mode="fan_out"))
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.groups > 1 and is_cured:
            nn.init.kaiming_normal_(module.weight)  # of a depthwise layer both fans are 9
    return model


def transposed(is_cured: bool) -> nn.Module:
    widths = (256, 128, 64, 32)
    layers: list[nn.Module] = [nn.Conv2d(1, 256, 8), nn.ReLU()]
    for before, after in pairwise(widths):
        layers += [nn.ConvTranspose2d(before, after, 4, 2, 1), nn.ReLU()]
    model = fill(Maps(*layers, channels=32), nn.init.kaiming_normal_)
    for module in model.modules():
        if isinstance(module, nn.ConvTranspose2d) and is_cured:
            nn.init.normal_(module.weight, std=math.sqrt(2 / (module.in_channels * 4)))
    return model


class Tied(nn.Module):
    """Predicts the next pixel of a digit; the embedding of its 17 values is the last layer, too."""

    def __init__(self, is_cured: bool) -> None:
        super().__init__()
        self.values, self.places = nn.Embedding(17, 4 * WIDTH), nn.Embedding(64, 4 * WIDTH)
        nn.init.normal_(self.places.weight, std=0.02)
        if is_cured:
            nn.init.normal_(self.values.weight, std=0.02)
        self.norm, self.mix = nn.LayerNorm(4 * WIDTH), nn.Linear(4 * WIDTH, 4 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        pixels = (4 + 2 * x).round().clamp(0, 16).long()
        y = self.values(pixels) + self.places.weight
        return F.linear(self.norm(y + self.mix(y.relu())), self.values.weight)


def drawn_again(is_cured: bool) -> nn.Module:
    model = chain(4, nn.ReLU)
    train(model, lr=3 * LR)
    if not is_cured:
        nn.init.kaiming_uniform_(model.get_parameter("4.weight"), a=math.sqrt(5))
    return model


FAULTS = {
    "a bias that nothing fills": Fault(
        "torch.empty makes a bias, and no rule fills it", uninitialised, "error", "2.bias"
    ),
    "dead units": Fault(
        "a bias of -10 before ReLU: no unit is ever positive", dead, "error", "0.weight"
    ),
    "a detached branch": Fault(
        "numbers pass through a Python list on their way", Detached, "error", "body.weight"
    ),
    "both factors of LoRA are zero": Fault(
        "one factor should be zero, and the other random", LoRA, "error", "a.weight"
    ),
    "std 0.01 in 30 layers": Fault(
        "a fixed std that does not know the width", small_std, "warning", "6.weight"
    ),
    "std 1 in 20 layers": Fault("the default of normal_", large_std, "warning", "10.weight"),
    "thirty layers of sigmoid": Fault(
        "the signal arrives; the gradient does not, and all inputs look alike",
        sigmoid,
        "warning",
        "0.weight",
    ),
    "a constant": Fault("all weights are 0.02, all units alike", constant, "warning", "0.weight"),
    "depthwise fan": Fault(
        "kaiming_normal_(mode='fan_out') of a depthwise layer counts the outputs of all groups",
        depthwise,
        "note",
        "layers.1.weight",
    ),
    "transposed fan": Fault(
        "kaiming_normal_ of a transposed layer takes its outputs for its inputs",
        transposed,
        "note",
        "layers.2.weight",
    ),
    "fused q, k, v": Fault(
        "xavier_uniform_ of one weight for q, k and v, as in nn.MultiheadAttention",
        fused,
        "note",
        "2.self_attn.in_proj_weight[q]",
    ),
    "a gate scaled by depth": Fault(
        "w3 of a gated layer is divided by sqrt(2 L), as only w2 should be",
        gated,
        "note",
        "blocks.0.feed_forward.w3.weight",
    ),
    "q, k, v scaled by depth": Fault(
        "q, k and v are divided by sqrt(2 L), as only the output projection should be",
        projections,
        "note",
        "blocks.0.attention.wq.weight",
    ),
    "truncation at 100 std": Fault(
        "trunc_normal_ takes its bounds in units of the weights: nothing is cut",
        truncation,
        "note",
        "blocks.0.attention.wq.weight",
    ),
    "a name decides": Fault(
        "a pattern for names hits block 1, too", by_name, "note", "blocks.1.attention.wq.weight"
    ),
    "a large tied embedding": Fault(
        "the default of nn.Embedding, std 1, also makes the scores", Tied, "note", "values.weight"
    ),
    "loaded weights are drawn again": Fault(
        "one layer of a trained network is reset after loading", drawn_again, "note", "4.weight"
    ),
}


def train(model: nn.Module, steps: int = STEPS, lr: float = LR) -> list[float]:
    """Train on digits by Adam, and return the loss of every step."""
    x, labels = digits()
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=lr)
    generator, losses = torch.Generator().manual_seed(0), []
    for _ in range(steps):
        batch = torch.randint(len(x), (BATCH,), generator=generator)
        scores = model(x[batch])
        if isinstance(model, Tied):  # of the next pixel
            pixels = (4 + 2 * x[batch]).round().clamp(0, 16).long()
            loss = F.cross_entropy(scores[:, :-1].flatten(0, 1), pixels[:, 1:].flatten())
        else:
            loss = F.cross_entropy(scores, labels[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def build(fault: Fault, is_cured: bool) -> nn.Module:
    """Return the model of a fault, always the same one."""
    torch.manual_seed(0)
    return fault.build(is_cured)


def sentence(fault: Fault) -> str:
    """Return what `audit` says of the model."""
    findings = audit(build(fault, False), digits()[0][:8]).findings
    said = [x for x in findings if x.severity == fault.severity and fault.tensor in x.tensors]
    return str(said[0]) if said else "nothing"


def last_loss(fault: Fault, is_cured: bool) -> str:
    """Return the mean loss of the last 50 steps, with the fault or cured."""
    last = train(build(fault, is_cured))[-50:]
    return f"{sum(last) / len(last):.3g}"


def main() -> None:
    """Write the page's table."""
    torch.set_num_threads(1)  # the networks are small
    lines = ["| fault | what `audit` says | loss with it | cured |", "|---|---|---:|---:|"]
    for name, fault in FAULTS.items():
        said = sentence(fault).replace("|", "\\|")
        faulty, cured = (last_loss(fault, is_cured) for is_cured in (False, True))
        lines.append(f"| **{name}**: {fault.words} | {said} | {faulty} | {cured} |")
        print(lines[-1], flush=True)
    PAGE.write_text(filled(PAGE.read_text(), BLOCK, "\n".join([*lines, ""])))


if __name__ == "__main__":
    main()
