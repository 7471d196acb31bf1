"""How initialisations carry the signal through networks: results/INITIALIZATION.md.

    python studies/initialization.py                    everything: forty minutes on one core
    python studies/initialization.py chains             50 layers with every built-in activation
    python studies/initialization.py resnet18 vgg16_bn  some networks; the others keep their numbers

Every ReLU, GELU, SiLU and Hardswish of a network is replaced by PReLU or by GELU. The program
measures the mean square of the input and the output of the last block, and of the scores, on
standard normal images, in training mode without dropout, over 8 seeds.
"""

from collections.abc import Callable
from itertools import pairwise, product
from typing import Any

import torch
import torchvision
from initialization_page import BLOCKS, CHAINS, DEPTH, EXAMPLES, IMAGES, SEEDS, WIDTH, page
from measured_page import measure_main
from torch import Tensor, nn

from rectifiers import PReLU, activations, initialize
from rectifiers.activations.modules import outputs, pieces
from rectifiers.runtime.console import say

NAMES = (
    *("relu", "leaky_relu", "prelu", "rrelu", "noisy_relu", "relu6", "squared_relu", "crelu"),
    *("maxout", "glu", "elu", "selu", "gelu", "silu", "mish", "hardswish", "snake", "softplus"),
    *("sigmoid", "tanh", "identity", "dks", "tat_leaky_relu", "relu cubed"),
)
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"PReLU": lambda: PReLU(1), "GELU": nn.GELU}
FUNCTIONAL = ("googlenet",)  # calls F.relu, which nothing replaces
REPLACED = (nn.ReLU, nn.GELU, nn.SiLU, nn.Hardswish)
METHODS = ("torch's default", "Kaiming, gain √2", "rectifiers")


class UNet(nn.Module):
    """Convolutions, transposed convolutions and concatenations, without normalisation."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        sizes = [3, channels, 2 * channels, 4 * channels]
        self.encoder = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.ReLU()) for a, b in pairwise(sizes)
        )
        self.up = nn.ModuleList(nn.ConvTranspose2d(c, c, 2, stride=2) for c in sizes[:0:-1])
        self.decoder = nn.ModuleList(
            nn.Sequential(nn.Conv2d(2 * c, max(c // 2, channels), 3, padding=1), nn.ReLU())
            for c in sizes[:0:-1]
        )
        self.head = nn.Conv2d(channels, 10, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for block in self.encoder:
            skips.append(block(x))
            x = nn.functional.max_pool2d(skips[-1], 2)
        for up, block in zip(self.up, self.decoder, strict=True):
            x = block(torch.cat([up(x), skips.pop()], 1))
        return self.head(x)


class SharedTransformer(nn.Module):
    """One block of nn.MultiheadAttention and a perceptron, used six times, on patches of 8 px."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, width, 8, stride=8), nn.Linear(width, 10)
        self.block = nn.TransformerEncoderLayer(
            width, 4, 256, dropout=0, activation=nn.ReLU(), batch_first=True
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        for _ in range(6):
            x = self.block(x)
        return self.head(x.mean(1))


def bare(name: str) -> nn.Module:
    """Return a network of this file, of timm or of torchvision, with its own initialisation."""
    if name == "u_net":
        return UNet()
    if name == "shared_transformer":
        return SharedTransformer()
    if name.startswith("timm/"):
        import timm

        return timm.create_model(name.removeprefix("timm/"))
    settings = {"aux_logits": False, "init_weights": True} if name == "googlenet" else {}
    return torchvision.models.get_model(name, weights=None, **settings)


class Cubed(nn.Module):
    """max(0, y)^3, which no start makes stable."""

    def forward(self, x: Tensor) -> Tensor:
        return x.relu() ** 3


def chain(name: str) -> nn.Module:
    """Return 50 linear layers with a built-in activation between them."""
    settings = {"depth": DEPTH - 1} if name in ("dks", "tat_leaky_relu") else {}
    layers: list[nn.Module] = []
    size = WIDTH
    for _ in range(DEPTH - 1):
        factory = activations.FACTORIES.get(name)
        activation = factory(WIDTH, **settings) if factory else Cubed()
        layers += [nn.Linear(size, WIDTH * pieces(activation)), activation]
        size = WIDTH * outputs(activation)
    return nn.Sequential(*layers, nn.Linear(size, WIDTH)).eval()


@torch.no_grad()
def measure_chain(name: str, mode: str, seed: int) -> dict[str, Any]:
    """Return E[y^2] behind 50 layers on the example, on fresh inputs and on larger ones, the part
    of it that varies from input to input, and whether the report warns of the depth."""
    x, fresh = (
        torch.randn(EXAMPLES, WIDTH, generator=torch.Generator().manual_seed(s))
        for s in (seed, seed + SEEDS)
    )
    model = chain(name)
    report = initialize(model, x, mode=mode, seed=seed)
    responses = [model(inputs).double() for inputs in (x, fresh, 1.1 * x)]
    second = [float(y.square().mean()) for y in responses]
    varies = float(responses[0].var(0, correction=0).mean()) / second[0]
    return {
        "second": second,
        "varies": varies,
        "unstable": any("stable" in w for w in report.warnings),
    }


def build(name: str, activation: str, seed: int) -> nn.Module:
    """Return a network with another activation in every place and torchvision's own weights."""
    torch.manual_seed(seed)
    model = bare(name)
    for place, module in list(model.named_modules()):
        if activation in ACTIVATIONS and isinstance(module, REPLACED):
            parent, _, last = place.rpartition(".")
            setattr(model.get_submodule(parent), last, ACTIVATIONS[activation]())
        elif "Dropout" in type(module).__name__ or "StochasticDepth" in type(module).__name__:
            module.p = 0.0
    return model.train()


def kaiming(model: nn.Module) -> None:
    """Fill all weights with He's gain for ReLU, whatever activation stands before them."""
    for key, weight in model.named_parameters():
        is_weight = not any(word in key for word in ("embedding", "scale", "token"))
        if weight.dim() > 1 and is_weight:
            nn.init.kaiming_normal_(weight)


@torch.no_grad()
def measure(name: str, activation: str, method: str, seed: int) -> list[float]:
    """Return the mean squares of the last block's input, of its output, and of the scores."""
    block, px = BLOCKS[name]
    model = build(name, activation, seed)
    images = torch.randn(IMAGES, 3, px, px, generator=torch.Generator().manual_seed(seed))
    if method == "rectifiers":
        initialize(model, images, seed=seed)
    elif method != METHODS[0]:
        kaiming(model)

    signals: list[Tensor] = []
    model.get_submodule(block).register_forward_hook(
        lambda _, inputs, output: signals.extend([inputs[0], output])
    )
    signals.append(model(images))
    # of the last use, where a block is used several times
    return [float(x.double().square().mean()) for x in signals[-3:]]


def measured(name: str) -> list[dict[str, Any]]:
    """Return the rows of a network, or of the chains, with the numbers of every seed."""
    rows: list[dict[str, Any]] = []
    if name == CHAINS:
        for chosen, mode in product(NAMES, ("forward", "empirical")):
            say(f"{DEPTH} layers, {chosen}, {mode}")
            seeds = [measure_chain(chosen, mode, seed) for seed in range(SEEDS)]
            rows.append({"activation": chosen, "mode": mode, "seeds": seeds})
        return rows
    for activation, method in product(["ReLU"] if name in FUNCTIONAL else ACTIVATIONS, METHODS):
        say(f"{name}, {activation}, {method}")
        values = [measure(name, activation, method, seed) for seed in range(SEEDS)]
        rows.append({"activation": activation, "init": method, "values": values})
    return rows


if __name__ == "__main__":
    measure_main(__doc__, (CHAINS, *BLOCKS), measured, page, "initialization")
