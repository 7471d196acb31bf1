"""How fast a GPU trains, as a share of its own matrix products and beside a plain loop of
torchvision's, how fast photographs are read for it, and the tests that need one.

Each measurement is printed and saved as it is made, and the same command continues: what is there
is not measured again, and none begins after --seconds. Training is that of `train.py` on images of
noise: loader, preprocessing, check of the loss and Lightning included. The plain loop has the same
layers, precision, layout, optimiser and autotuning, and its batches lie in pinned memory.

Examples:
  python studies/gpu/speed.py --records $OUT/speed.json
  python studies/gpu/speed.py --device cpu --px 32 --batch 2 --records /tmp/speed.json
"""

import argparse
import gc
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).parents[1] / "bench"))

import numpy as np
import torch
import torch.nn.functional as F
import torchvision
from pytorch_lightning.callbacks import Callback
from torch import Tensor, nn

from rectifiers.cli.composition import compose_job
from rectifiers.data import jpeg
from rectifiers.data.sources import Source
from rectifiers.data.splits import ArraySplit, Part, take
from rectifiers.models.rows import Row, expand, trace
from rectifiers.results.documents import markdown
from rectifiers.runs.provenance import code_fingerprint
from rectifiers.runtime.console import cli_errors
from rectifiers.runtime.errors import InputError, first_line
from rectifiers.runtime.files import write_text
from rectifiers.runtime.machine import usable_cores
from rectifiers.runtime.schema import JsonObject
from rectifiers.training.train import train

ROOT = Path(__file__).parents[2]
RECORDS = Path(__file__).with_suffix(".json")
MODELS = ("vgg19", "model_a")
PHOTOS = 128  # different images of noise
Rates = list[float]  # images per second, of each block of steps


class Setting(NamedTuple):
    """How a step computes. asked: the overrides of `train.py`; tf32: whether products of float32
    may keep ten bits, for which no run has a key but `fast`."""

    asked: tuple[str, ...]
    dtype: torch.dtype = torch.float32
    tf32: bool = False
    is_compiled: bool = False
    activation: str = "relu"


BF16 = ("trainer.precision=bf16-mixed",)
SETTINGS = {  # the most important ones first
    "bfloat16": Setting(BF16, torch.bfloat16),
    "TF32": Setting((), tf32=True),
    "float32": Setting(()),
    "bfloat16, compiled": Setting(("fast=true",), torch.bfloat16, is_compiled=True),
    "bfloat16, PReLU": Setting(BF16, torch.bfloat16, activation="prelu"),
}


@dataclass(frozen=True)
class Size:
    """The device, and how large and how many steps are."""

    device: str
    px: int = 224
    batch: int = 128
    classes: int = 1000
    warmup: int = 5  # steps, in which cuDNN searches and torch compiles
    blocks: int = 4
    steps: int = 5  # of a block

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


# ---- this project's training ----


def noise(side: int, images: int, classes: int) -> Source:
    """Return images of noise [3, side, side], of which `PHOTOS` differ; `data=speed.noise`."""
    draw = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (PHOTOS, 3, side, side), dtype=torch.uint8, generator=draw)
    different = ArraySplit(pixels, [i % classes for i in range(PHOTOS)])
    names = tuple(f"{label:04d}" for label in range(classes))
    return Source("noise", names, 3, Part(different, np.arange(images) % PHOTOS), different)


class Measured(BaseException):
    """All blocks are timed, and the training is left."""


class Stopwatch(Callback):
    """Notes the time before each block of steps, and leaves the training after the last one."""

    def __init__(self, size: Size, tf32: bool) -> None:
        self.size, self.tf32 = size, tf32
        self.marks: list[float] = []

    def on_train_start(self, *_: Any) -> None:
        if self.tf32:
            allow_tf32(True)  # which a run's end takes back

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
        timed = index - self.size.warmup
        if timed < 0 or timed % self.size.steps:
            return
        self.size.wait()
        self.marks.append(time.perf_counter())
        if len(self.marks) > self.size.blocks:
            raise Measured


def allow_tf32(is_allowed: bool) -> None:
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = is_allowed


def our_rates(model: str, setting: Setting, size: Size) -> Rates:
    """Return the images per second of `train.py`."""
    images = size.batch * (size.warmup + size.blocks * size.steps + 1)
    accelerator = "gpu" if size.device == "cuda" else "cpu"
    with tempfile.TemporaryDirectory() as place:
        overrides = f"""model={model} activation={setting.activation} data=speed.noise
            data.side={size.px} data.images={images} data.classes={size.classes}
            data.resize_px={size.px} data.crop_px={size.px} data.batch_size={size.batch}
            data.protocol=paper trainer={accelerator} trainer.max_epochs=1
            trainer.benchmark={str(size.device == "cuda").lower()} channels_last=true
            optim.fused=true optim.lr=1e-5 logger=none evaluation=center
            runs_dir={place}/runs cache_dir={place}/cache"""
        config, choices = compose_job((*overrides.split(), *setting.asked))
        watch = Stopwatch(size, setting.tf32)
        with suppress(Measured):
            train(config, choices, callbacks=[watch])
    return rates(watch.marks, size)


def rates(marks: list[float], size: Size) -> Rates:
    return [size.steps * size.batch / (b - a) for a, b in itertools.pairwise(marks)]


# ---- the plain loop ----


class Pyramid(nn.Module):
    """Max pooling into n x n bins per level n, as torch has it."""

    def __init__(self, levels: tuple[int, ...]) -> None:
        super().__init__()
        self.levels = levels

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([F.adaptive_max_pool2d(x, n).flatten(1) for n in self.levels], 1)


def rows_of(model: str, classes: int) -> tuple[Row, ...]:
    rows = compose_job((f"model={model}",))[0].model.rows
    assert rows is not None
    return expand(rows, width=1.0, classes=classes)


def plain_network(model: str, activation: str, size: Size) -> nn.Module:
    """Return torchvision's VGG-19, or another model and other activations with torch's modules."""
    if (model, activation) == ("vgg19", "relu"):
        return torchvision.models.vgg19(num_classes=size.classes)

    shapes = trace(rows_of(model, size.classes), channels=3, input_px=size.px)
    layers: list[nn.Module] = []
    channels, side = 3, size.px
    for row, after in ((shape.row, shape) for shape in shapes):
        if row.kind == "conv":
            layers.append(nn.Conv2d(channels, row.size, row.kernel, row.stride, row.padding))
        elif row.kind == "max_pool":
            layers.append(nn.MaxPool2d(row.kernel, row.stride, row.padding))
        elif row.kind == "pyramid":
            layers.append(Pyramid(row.levels))
        else:
            layers += [nn.Flatten(), nn.Linear(channels * max(side, 1) ** 2, row.size)]
        if row.weighted and after is not shapes[-1]:
            layers.append(nn.PReLU(row.size) if activation == "prelu" else nn.ReLU(inplace=True))
        if row.dropout:
            layers.append(nn.Dropout(row.dropout))
        channels, side = after.channels, after.side
    return nn.Sequential(*layers)


@contextmanager
def tuned(setting: Setting, size: Size) -> Iterator[None]:
    """Let torch compute as a run with this setting does."""
    search = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = size.device == "cuda"
    allow_tf32(setting.tf32 or setting.is_compiled)
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = search
        allow_tf32(False)


def plain_rates(model: str, setting: Setting, size: Size) -> Rates:
    """Return the images per second of a loop without this project's code."""
    device, is_gpu = torch.device(size.device), size.device == "cuda"
    network = plain_network(model, setting.activation, size).to(device)
    network = network.to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(
        network.parameters(), lr=1e-5, momentum=0.9, weight_decay=5e-4, fused=True
    )
    run = torch.compile(network, mode="reduce-overhead") if setting.is_compiled else network
    shape = (size.batch, 3, size.px, size.px)
    batches = [torch.randint(0, 256, shape, dtype=torch.uint8) for _ in range(4)]
    if is_gpu:
        batches = [batch.pin_memory() for batch in batches]
    labels = torch.randint(size.classes, (size.batch,), device=device)
    mean = torch.full((3, size.px, size.px), 127.5, device=device)

    def step(batch: Tensor) -> None:
        images = batch.to(device, non_blocking=True)
        x = (images - mean).contiguous(memory_format=torch.channels_last)
        with torch.autocast(size.device, setting.dtype, enabled=setting.dtype != torch.float32):
            loss = F.cross_entropy(run(x), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    marks = []
    with tuned(setting, size):
        for index in range(size.warmup + size.blocks * size.steps + 1):
            timed = index - size.warmup
            if timed >= 0 and timed % size.steps == 0:
                size.wait()
                marks.append(time.perf_counter())
            if len(marks) <= size.blocks:
                step(batches[index % len(batches)])
    return rates(marks, size)


# ---- what is measured ----


def product_flops(setting: Setting, size: Size) -> float:
    """Return the operations per second of the device's own product of two square matrices."""
    side, repeats = (8192, 20) if size.device == "cuda" else (512, 3)
    a, b = (torch.randn(side, side, device=size.device, dtype=setting.dtype) for _ in range(2))
    with tuned(setting, size):
        for number in range(2 * repeats):
            if number == repeats:
                size.wait()
                started = time.perf_counter()
            torch.mm(a, b)
        size.wait()
    return 2 * repeats * side**3 / (time.perf_counter() - started)


def training(model: str, name: str, size: Size) -> JsonObject:
    """Measure a model in a setting: this project, the plain loop, and the matrix product."""
    setting = SETTINGS[name]
    shapes = trace(rows_of(model, size.classes), channels=3, input_px=size.px)
    operations = 6 * sum(shape.multiply_adds for shape in shapes)  # forward and backward

    flops = product_flops(setting, size)
    plain = plain_rates(model, setting, size)
    clear()
    ours = our_rates(model, setting, size)
    return {
        "plain": plain,
        "ours": ours,
        "product_tflops": flops / 1e12,
        "share": median(ours) * operations / flops,
        "of_plain": median(ours) / median(plain),
    }


def reading(size: Size, batches: int = 20) -> JsonObject:
    """Measure the images per second of the loader, by processes, from JPEG shards made here."""
    import pipeline  # of studies/bench

    number_of_cores = usable_cores()
    rate = {}
    with tempfile.TemporaryDirectory() as place:
        pipeline.write_photos(Path(place) / "photos")
        source = pipeline.prepared_source(Path(place) / "photos", Path(place))
        for workers in sorted({1, min(8, number_of_cores), number_of_cores}):
            number = pipeline.BATCH * workers * (batches + 4)
            indices = np.arange(number) % pipeline.PHOTOS
            longer = replace(source, train=take(source.train, indices))
            data = pipeline.ImageData(
                longer, pipeline.PAPER, global_batch=pipeline.BATCH, seed=0, workers=workers
            )
            loader = iter(data.train_dataloader())
            for _ in range(3 * workers):  # the start, and what was read ahead meanwhile
                next(loader)
            started = time.perf_counter()
            for _ in range(batches * workers):
                next(loader)
            seconds = time.perf_counter() - started
            rate[f"{workers} processes"] = batches * workers * pipeline.BATCH / seconds
    return {"images_per_second": rate, "decoder": jpeg.unavailable_reason() or "in C"}


def gpu_tests(seconds: float) -> JsonObject:
    """Run the tests of `make test-gpu`; return their last line, and all lines where one fails."""
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "tests/test_gpu.py"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path])}
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds
    )
    lines = (ended.stdout + ended.stderr).strip().splitlines() or [""]
    if ended.returncode:
        raise RuntimeError("\n".join(lines[-40:]))
    return {"passed": lines[-1]}


def clear() -> None:
    """Give back what the measurement before has left."""
    gc.collect()
    torch.compiler.reset()
    torch.cuda.empty_cache()


def measurements(size: Size, models: tuple[str, ...]) -> dict[str, Callable[[float], JsonObject]]:
    """Return what is to be measured, the most important first, each a function of the seconds that
    are left."""
    pieces: dict[str, Callable[[float], JsonObject]] = {}
    for name, setting in SETTINGS.items():
        if setting.is_compiled:
            pieces["reading"] = lambda _: reading(size)
            if size.device == "cuda":
                pieces["tests"] = gpu_tests
            else:
                continue  # which no run on a processor asks for
        for model in models:
            pieces[f"{model}, {name}"] = partial(_training, model, name, size)
    return pieces


def _training(model: str, name: str, size: Size, _: float) -> JsonObject:
    return training(model, name, size)


def measure(path: Path, size: Size, models: tuple[str, ...], seconds: float) -> JsonObject:
    """Measure what `path` does not have yet, and save each piece; return all."""
    started = time.monotonic()
    device = torch.cuda.get_device_name() if size.device == "cuda" else size.device
    about: JsonObject = {"device": device, "torch": torch.__version__, "code": code_fingerprint()}
    about |= {"px": size.px, "batch": size.batch}
    kept: JsonObject = json.loads(path.read_text()) if path.exists() else {"about": about}
    if kept["about"] != about:
        raise InputError(f"{path} is of {kept['about']}, and this is {about}; give another file")

    for name, piece in measurements(size, models).items():
        left = seconds - (time.monotonic() - started)
        if "error" not in kept.get(name, {"error": ""}):
            continue
        if left < 0:
            print(f"{name}: no time is left; the same command continues", flush=True)
            continue
        try:
            kept[name] = piece(left)
        except Exception as error:  # the others are measured all the same
            kept[name] = {"error": f"{type(error).__name__}: {error}"}
            print(f"{name}: {type(error).__name__}: {first_line(error)}", flush=True)
        else:
            print(f"{name}: {json.dumps(kept[name])}", flush=True)
        write_text(path, json.dumps(kept, indent=1) + "\n")
        clear()
    return kept


def table(kept: JsonObject) -> str:
    """Return what was measured as Markdown."""
    rows = []
    for name, row in kept.items():
        if "share" in row:
            per_second = (f"{median(row[way]):.0f}" for way in ("ours", "plain"))
            rest = (f"{row['of_plain']:.3f}", f"{row['share']:.2f}", f"{row['product_tflops']:.3g}")
            rows.append((name, *per_second, *rest))
    head = ("training", "images per second", "plain loop", "ours / plain", "share of the product")
    lines = [markdown((*head, "product, TFLOP/s"), rows)]
    if "images_per_second" in kept.get("reading", {}):
        by_workers = kept["reading"]["images_per_second"].items()
        read = ", ".join(f"{rate:.0f} by {workers}" for workers, rate in by_workers)
        lines.append(f"Images read per second: {read} (decoder {kept['reading']['decoder']}).")
    if "passed" in kept.get("tests", {}):
        lines.append(f"Tests: {kept['tests']['passed']}")
    return "\n\n".join(lines)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--px", type=int, default=Size.px)
    parser.add_argument("--batch", type=int, default=Size.batch)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--records", type=Path, default=RECORDS, help="where numbers are kept")
    parser.add_argument("--seconds", type=float, default=400, help="after which none begins")
    options = parser.parse_args()
    with cli_errors("interrupted; the same command continues"):
        if options.device == "cuda" and not torch.cuda.is_available():
            raise InputError("torch finds no GPU; give --device cpu to try it out")
        size = Size(options.device, options.px, options.batch)
        print(table(measure(options.records, size, tuple(options.models), options.seconds)))


if __name__ == "__main__":
    main()
