"""Should the slope of a squared rectifier be learned? results/LANGUAGE_MODEL.md says what was asked
and what came out; the criteria there are older than the runs.

    python studies/language_model.py                        everything: about six core-hours
    python studies/language_model.py --steps 1000 4000 --arms none 0 0.25 0.5
    python studies/language_model.py --steps 16000 --seeds 0 1

It needs data/text.txt, any text; the committed numbers are from "tinyshakespeare", 1.1 MB of
Shakespeare's plays. Every run is a line of results/language_model.jsonl as soon as it ends, and is
not repeated: a program that was stopped goes on where it was. Several may work side by side, each
with other arms; other seeds only where the searches are done, and 16,000 steps only after all of
4,000. The lines of several folders are joined by `cat`."""

import argparse
import hashlib
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import language_model_page as protocol
import torch
import torch.nn.functional as F
from language_model_page import BLOCKS, CONTEXT, HEADS, LEARNED, NONE, RUNS, TEXTS, WIDTH, Run
from torch import Tensor, nn

from rectifiers import InputError, activations, audit, initialize, parameter_groups

TEXT = Path("data/text.txt")
PIECES = 64  # of the validation or test text at once


# --- the network ---------------------------------------------------------------------------------


def activation(arm: str, channels: int) -> nn.Module:
    if arm == NONE:
        return activations.identity(channels)
    if arm == LEARNED:
        return activations.squared_prelu(channels, initial_slope=protocol.INITIAL)
    return activations.squared_leaky_relu(channels, slope=float(arm))


class Block(nn.Module):
    """Attention to earlier bytes and a perceptron, each behind a normalisation."""

    def __init__(self, arm: str) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        hidden = 4 * WIDTH
        up, down = nn.Linear(WIDTH, hidden), nn.Linear(hidden, WIDTH)
        self.mlp = nn.Sequential(up, activation(arm, hidden), down)

    def forward(self, x: Tensor, later: Tensor) -> Tensor:
        y = self.norms[0](x)
        x = x + self.attention(y, y, y, attn_mask=later, is_causal=True, need_weights=False)[0]
        # a row per byte: the slopes of PReLU belong to the second dimension
        return x + self.mlp(self.norms[1](x).flatten(0, 1)).view_as(x)


class LanguageModel(nn.Module):
    """Scores of the next byte: [N, CONTEXT] to [N, CONTEXT, 256]."""

    def __init__(self, arm: str) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block(arm) for _ in range(BLOCKS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256)
        self.register_buffer("later", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.place.weight
        for block in self.blocks:
            x = block(x, self.later)
        return self.head(self.norm(x))


# --- text and training ---------------------------------------------------------------------------

Batch = tuple[Tensor, Tensor]  # bytes, and the next ones


class Text:
    """The bytes of a file: 90 % for training, 5 % for validation, 5 % for the test."""

    def __init__(self) -> None:
        if not TEXT.is_file():
            raise InputError(f"{TEXT} is not there; give any text of a megabyte")
        content = TEXT.read_bytes()
        part, batch = len(content) // 20, TEXTS * (CONTEXT + 1)
        if part < batch:
            raise InputError(
                f"{TEXT} has {len(content):,} bytes, and a twentieth of them does not fill a batch "
                f"of {batch}; give a text of at least {20 * batch:,}"
            )
        numbers = torch.frombuffer(bytearray(content), dtype=torch.uint8).long()
        self.train, self.val, self.test = numbers.split([len(content) - 2 * part, part, part])
        self.digest = hashlib.sha256(content).hexdigest()[:12]

    def batches(self, seed: int) -> Iterator[Batch]:
        generator = torch.Generator().manual_seed(seed)
        while True:
            last = len(self.train) - CONTEXT
            starts = torch.randint(last, (TEXTS,), generator=generator)
            rows = self.train[starts[:, None] + torch.arange(CONTEXT + 1)]
            yield rows[:, :-1], rows[:, 1:]


def cross_entropy(model: nn.Module, batch: Batch) -> Tensor:
    tokens, following = batch
    return F.cross_entropy(model(tokens).flatten(0, 1), following.flatten())


@torch.no_grad()
def loss_on(model: nn.Module, text: Tensor) -> float | None:
    """Return the mean loss on all whole pieces of a text; None for one that is no number."""
    rows = text.unfold(0, CONTEXT + 1, CONTEXT)
    losses = [
        cross_entropy(model, (part[:, :-1], part[:, 1:])) * len(part) for part in rows.split(PIECES)
    ]
    loss = float(sum(losses) / len(rows))
    return loss if math.isfinite(loss) else None


def train(text: Text, arm: str, steps: int, rate: float, seed: int) -> Run:
    """Return the losses at the end (None: diverged), the mean |a| of each block, and CPU
    seconds."""
    began = time.process_time()
    torch.manual_seed(seed)
    model = LanguageModel(arm)
    batches = text.batches(seed)
    example, _ = next(batches)
    initialize(model, example, seed=seed)
    audit(model, example).check()

    groups = parameter_groups(model, weight_decay=protocol.DECAY)
    optimizer = torch.optim.AdamW(groups, lr=rate, betas=protocol.BETAS, fused=True)
    for step in range(1, steps + 1):
        cosine = 0.55 + 0.45 * math.cos(math.pi * step / steps)  # to a tenth
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, step / protocol.WARMUP) * cosine
        optimizer.zero_grad()
        loss = cross_entropy(model, next(batches))
        loss.backward()
        optimizer.step()
        if not loss.isfinite():
            break

    is_judged = seed not in protocol.SEARCHED
    val = loss_on(model, text.val)
    slopes = [m.weight.detach().abs() for m in model.modules() if isinstance(m, nn.PReLU)]
    if val is None:
        slopes = []
    return {
        **{"arm": arm, "steps": steps, "rate": rate, "seed": seed, "text": text.digest},
        **{"val": val, "test": loss_on(model, text.test) if is_judged else None},
        "slopes": [a.mean().item() for a in slopes],
        "folded": [torch.minimum(a, 1 / a).mean().item() for a in slopes],
        "steep": [(a > 1).float().mean().item() for a in slopes],
        "seconds": round(time.process_time() - began, 1),
    }


# --- what is run ---------------------------------------------------------------------------------


def run(text: Text, arm: str, steps: int, rate: float, seed: int) -> None:
    """Train once, unless that was done, and keep what came out."""
    if (arm, steps, rate, seed) in map(protocol.key, protocol.read_runs()):
        return
    line = json.dumps(train(text, arm, steps, rate, seed))
    print(line, flush=True)
    with RUNS.open("a") as file:
        file.write(f"{line}\n")


def search(text: Text, arm: str, steps: int) -> float:
    """Return the best rate; try rates until it has a worse neighbour on both sides."""
    near = search(text, arm, protocol.SHORT) if steps > protocol.SHORT else protocol.rate_at(2)
    lower, higher = protocol.neighbours(near, steps)
    rates = [lower, near, higher]
    while rates:
        for rate in rates:
            for seed in protocol.SEARCHED:
                run(text, arm, steps, rate, seed)
        means = protocol.searched(protocol.read_runs(), arm, steps)
        rates = protocol.missing_rates(means, steps)
    return min(means, key=means.__getitem__)


def measure(text: Text, arms: Sequence[str], lengths: Sequence[int], seeds: Sequence[int]) -> None:
    if any(run["text"] != text.digest for run in protocol.read_runs()):
        raise InputError(f"{RUNS} has runs of another text than {TEXT}; move it away")
    for steps in sorted(lengths):
        if steps == protocol.LONG and protocol.best_slope(protocol.read_runs()) is None:
            raise InputError(
                f"--steps {steps}: the best slope is known after the search of slopes "
                f"{', '.join(protocol.SLOPES)} at {protocol.MIDDLE} steps; run that first"
            )
        for arm in protocol.arms_of(protocol.read_runs(), steps):
            if arm in arms:
                rate = search(text, arm, min(steps, protocol.MIDDLE))
                for seed in sorted({*seeds} & {*protocol.SEEDS[steps]}):
                    run(text, arm, steps, rate, seed)


def main() -> None:
    lengths, judged = list(protocol.SEEDS), list(protocol.JUDGED)
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--arms", nargs="+", choices=protocol.ARMS, default=protocol.ARMS)
    parser.add_argument("--steps", nargs="+", type=int, choices=lengths, default=lengths)
    parser.add_argument("--seeds", nargs="+", type=int, choices=judged, default=judged)
    options = parser.parse_args()
    torch.set_num_threads(1)  # the hours are those of one core
    try:
        measure(Text(), options.arms, options.steps, options.seeds)
        protocol.write_page(check=False)
    except InputError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
