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
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "bench"))

import numpy as np
import torch
from plain_loop import Rates, Setting, Size, allow_tf32, plain_rates, rates, rows_of, tuned
from pytorch_lightning.callbacks import Callback

from rectifiers.cli.composition import compose_job
from rectifiers.data import jpeg
from rectifiers.data.sources import Source
from rectifiers.data.splits import ArraySplit, Part, take
from rectifiers.models.rows import trace
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
BF16 = ("trainer.precision=bf16-mixed",)
SETTINGS = {  # the most important ones first
    "bfloat16": Setting(BF16, torch.bfloat16),
    "TF32": Setting((), tf32=True),
    "float32": Setting(()),
    "bfloat16, compiled": Setting(("fast=true",), torch.bfloat16, is_compiled=True),
    "bfloat16, PReLU": Setting(BF16, torch.bfloat16, activation="prelu"),
}


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
