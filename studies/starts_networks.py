"""Five small networks as practitioners build them, whose starts studies/starts.py compares."""

import torch
import torch.nn.functional as F
from starts_page import CONTEXT
from torch import Tensor, nn


class Attention(nn.Module):
    """Causal or full self-attention with one joint layer for queries, keys and values."""

    def __init__(self, width: int, *, heads: int = 4, is_causal: bool) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.is_causal = heads, is_causal

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(x).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A transformer block with normalisation before each part."""

    def __init__(self, width: int, *, is_causal: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = Attention(width, is_causal=is_causal)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Gpt(nn.Module):
    """A language model of bytes whose head is the embedding of its inputs."""

    def __init__(self, width: int = 64, depth: int = 4) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(256, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Block(width, is_causal=True) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.place.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.token.weight)


class Vit(nn.Module):
    """A vision transformer: patches of 8 px, the mean over places instead of a class token."""

    def __init__(self, width: int = 64, depth: int = 6) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.place = nn.Parameter(torch.zeros(16, width))
        self.blocks = nn.Sequential(*(Block(width, is_causal=False) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.place
        return self.head(self.norm(self.blocks(x)).mean(1))


class Residual(nn.Module):
    """x + conv(relu(conv(relu(x)))), without normalisation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(F.relu(self.first(F.relu(x))))


def resnet(channels: int = 16, blocks: int = 12) -> nn.Module:
    """A residual network of 26 layers without normalisation."""
    stem = nn.Conv2d(3, channels, 4, stride=4)
    body = [Residual(channels) for _ in range(blocks)]
    head = [nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]
    return nn.Sequential(stem, *body, *head)


class UNet(nn.Module):
    """Two convolutions at each of three sizes, down and up, with concatenation between."""

    def __init__(self, channels: tuple[int, ...] = (8, 16, 32)) -> None:
        super().__init__()
        sizes = list(zip((3, *channels), channels, strict=False))
        self.down = nn.ModuleList(self._pair(*size) for size in sizes)
        back = list(zip(channels[:0:-1], channels[-2::-1], strict=True))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in back)
        self.up = nn.ModuleList(self._pair(2 * b, b) for _, b in back)
        self.last = nn.Conv2d(channels[0], 3, 1)

    @staticmethod
    def _pair(inputs: int, outputs: int) -> nn.Module:
        first = nn.Conv2d(inputs, outputs, 3, padding=1)
        second = nn.Conv2d(outputs, outputs, 3, padding=1)
        return nn.Sequential(first, nn.ReLU(), second, nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for pair in self.down:
            x = pair(x if not kept else F.max_pool2d(x, 2))
            kept.append(x)
        for grow, pair, left in zip(self.grow, self.up, kept[-2::-1], strict=True):
            x = pair(torch.cat([grow(x), left], 1))
        return self.last(x)


def dcgan(channels: int = 16, latent: int = 32) -> nn.Module:
    """DCGAN's discriminator, which ends in `latent` numbers, before its generator."""
    c = channels
    encoder = [
        *(nn.Conv2d(3, c, 4, 2, 1), nn.LeakyReLU(0.2)),
        *(nn.Conv2d(c, 2 * c, 4, 2, 1), nn.BatchNorm2d(2 * c), nn.LeakyReLU(0.2)),
        *(nn.Conv2d(2 * c, 4 * c, 4, 2, 1), nn.BatchNorm2d(4 * c), nn.LeakyReLU(0.2)),
        nn.Conv2d(4 * c, latent, 4),
    ]
    decoder = [
        *(nn.ConvTranspose2d(latent, 4 * c, 4), nn.BatchNorm2d(4 * c), nn.ReLU()),
        *(nn.ConvTranspose2d(4 * c, 2 * c, 4, 2, 1), nn.BatchNorm2d(2 * c), nn.ReLU()),
        *(nn.ConvTranspose2d(2 * c, c, 4, 2, 1), nn.BatchNorm2d(c), nn.ReLU()),
        *(nn.ConvTranspose2d(c, 3, 4, 2, 1), nn.Tanh()),
    ]
    return nn.Sequential(*encoder, *decoder)
