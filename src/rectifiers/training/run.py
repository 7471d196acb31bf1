"""A run from its configuration to its record."""

import math
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import yaml
from pytorch_lightning.loggers import Logger, WandbLogger
from rich.console import Console
from rich.progress import Progress

from rectifiers.config import InputError
from rectifiers.data.module import ImageData
from rectifiers.data.preprocess import PixelMoments, fit
from rectifiers.data.sources import Source
from rectifiers.data.statistics import load_or_fit, save, statistics_key
from rectifiers.evaluation.testing import evaluate
from rectifiers.initializers import warn_of_drift
from rectifiers.models.network import Network
from rectifiers.models.spec import depth
from rectifiers.runs import record as records
from rectifiers.runs.identity import science
from rectifiers.runs.lookup import finished, prepare, run_folder
from rectifiers.runs.provenance import code_fingerprint, provenance
from rectifiers.training.assembly import (
    EVERY_PREPROCESS_KEYS,
    build_geometry,
    build_network,
    build_rule,
    build_sgd_settings,
    build_source,
    configured,
)
from rectifiers.training.callbacks import AtomicCheckpointIO, EpochFiles, EpochLines, progress, write_metrics
from rectifiers.training.divergence import Diverged
from rectifiers.training.isolation import isolated
from rectifiers.training.module import Classifier

console = Console(stderr=True)
AUTOCAST = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


@contextmanager
def _bar(what: str, images: int) -> Iterator[Callable[[int], None]]:
    """Show a bar over `images` on a terminal; call what it gives with the number of images just done."""
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=images)
        yield lambda done: bar.advance(task, done)


@dataclass(frozen=True)
class Outcome:
    """A run's record, where it lies, and whether this call made it (False: it was there already)."""

    record: dict[str, Any]
    path: Path
    fresh: bool


def train(config: dict[str, Any], choices: dict[str, Any]) -> Outcome:
    """Run `config`, a resolved plain dict, unless its record exists; go on from its last checkpoint where there is one.

    choices: the group options that made the configuration (`{"activation": "prelu", ...}`), kept in the record.

    Raises:
        InputError: for anything the user gave that cannot be used; nothing has been overwritten then.
    """
    prepare(config)
    _check_device(config["compute"])
    source = build_source(config)
    prepare(config)  # once more: what waits for the data's hash
    found = finished(config)
    if found:
        return Outcome(*found, fresh=False)
    folder = run_folder(config)
    assert folder is not None  # opening the source filled in the content's hash
    path = folder / "record.json"
    kept = records.load(path) if path.exists() and not config["rerun"] else None
    with isolated(config["compute"]["threads"]):
        run = _Run(config, choices, source, folder)
        record = run.to_record() if kept is None else run.with_more_protocols(kept)
    records.write(path, record)
    return Outcome(record, path, fresh=True)


def _check_device(compute: dict[str, Any]) -> None:
    if compute["accelerator"] == "gpu" and not torch.cuda.is_available():
        raise InputError("compute.accelerator=gpu needs a GPU, and torch sees none; choose compute=cpu")
    if compute["accelerator"] == "cpu" and compute["precision"] == "16-mixed":
        raise InputError("compute.precision=16-mixed works on a GPU only; choose 32-true or bf16-mixed")


def _set_aside(folder: Path) -> None:
    """Move a run that will be run again to `replaced/<id>-<n>`, n from 1; nothing is deleted."""
    attic = folder.parent / "replaced"
    attic.mkdir(exist_ok=True)
    n = 1
    while (attic / f"{folder.name}-{n}").exists():
        n += 1
    folder.rename(attic / f"{folder.name}-{n}")


class _Run:
    """The parts of one run, and the steps that use them."""

    def __init__(self, config: dict[str, Any], choices: dict[str, Any], source: Source, folder: Path) -> None:
        self.config, self.choices, self.source, self.folder = config, choices, source, folder
        self.geometry = build_geometry(config)
        self.data = ImageData(
            source,
            self.geometry,
            global_batch=config["optim"]["global_batch"],
            seed=config["seed"],
            workers=config["compute"]["workers"],
            pinned=config["compute"]["accelerator"] == "gpu",
            skip_bad=config["data"].get("bad_images") == "skip",
        )
        self.preprocess, self.statistics_hash = self._fit_preprocess()
        self.network, self.ledger = build_network(config, source, self.preprocess.flat_output)
        drift = warn_of_drift(self.network.sites()) if config["model"]["norm"] == "none" else None
        self.warnings = [] if drift is None else [drift]
        self.classifier = Classifier(
            self.network,
            self.preprocess,
            build_rule(config),
            build_sgd_settings(config),
            classes=len(source.classes),
            seed=config["seed"],
            code=code_fingerprint(),
        )

    def _fit_preprocess(self) -> tuple[Any, str]:
        settings = self.config["preprocess"]
        inputs = {
            "train": self.source.train_digest,
            "resize_px": self.geometry.resize_px,
            "crop_px": self.geometry.crop_px,
            "preprocess": settings,
        }
        key = statistics_key(inputs)
        method = configured("preprocess", settings, EVERY_PREPROCESS_KEYS)

        def fit_now() -> Any:
            with _bar("learning preprocess", len(self.source.train.labels)) as seen:

                def batches() -> Iterator[torch.Tensor]:
                    for images in self.data.statistics_batches():
                        yield images
                        seen(len(images))

                return fit(method, PixelMoments(batches), settings["scale"])

        return load_or_fit(Path(self.config["cache_dir"]) / "statistics", key, fit_now), key

    def _prepare_folder(self) -> None:
        """Make the run's folder with what is known before training. A finished run that is run again is set aside.

        One without a record was killed: it is gone on with, also where it is itself a rerun.
        """
        try:
            if self.config["rerun"] and (self.folder / "record.json").exists():
                _set_aside(self.folder)
            self.folder.mkdir(parents=True, exist_ok=True)
            for part in self.folder.glob("*.part"):
                part.unlink()  # what a kill left half written
            records.write_text(self.folder / "config.yaml", yaml.safe_dump(self.config, sort_keys=False))
            ledger = yaml.safe_dump([entry.as_dict() for entry in self.ledger], sort_keys=False)
            records.write_text(self.folder / "ledger.yaml", ledger)
            save(self.preprocess, self.folder / "statistics.pt")
        except OSError as fault:
            raise InputError(f"runs_dir={self.config['runs_dir']} cannot be written ({fault}); give another") from fault

    def with_more_protocols(self, kept: dict[str, Any]) -> dict[str, Any]:
        """Test the last checkpoint by what `kept` lacks; all that the record says of the training stays as it is."""
        last = self.folder / "last.ckpt"
        if not last.exists():
            raise InputError(
                f"evaluation=[{', '.join(self.config['evaluation'])}] asks for more than {self.folder / 'record.json'} "
                "has, and last.ckpt is gone, so nothing can be tested; give rerun=true to train again"
            )
        checkpoint = AtomicCheckpointIO().load_checkpoint(last)
        self.classifier.on_load_checkpoint(checkpoint)
        self.classifier.load_state_dict(checkpoint["state_dict"])
        if self.config["compute"]["precision"] == "64-true":
            self.classifier.double()
        asked = self.config["evaluation"]
        stale = [
            name
            for name, result in kept["protocols"].items()
            if result.get("settings") != asked.get(name, result.get("settings"))
        ]
        protocols = {name: result for name, result in kept["protocols"].items() if name not in stale}
        return {**kept, "protocols": protocols | self._test(asked.keys() - protocols.keys())}

    def to_record(self) -> dict[str, Any]:
        """Train to the end, from the last checkpoint where there is one, test, and return the record."""
        self._prepare_folder()
        if self.config["compute"]["compile"]:
            # In place, so the checkpoint's keys stay; with torch's own random numbers, so dropout's masks do too.
            self.network.compile(options={"fallback_random": True})
        diverged = self._fit()
        if self.config["logger"]["name"] == "csv" and self.classifier.history:
            write_metrics(
                self.folder / "metrics.csv", self.classifier.history
            )  # a kill may have come before its last line
        return self._record(diverged, {} if diverged else self._test(self.config["evaluation"]))

    def _test(self, names: Iterable[str]) -> dict[str, Any]:
        return {name: self._evaluate(name) for name in sorted(names)}

    def _fit(self) -> Diverged | None:
        compute, last = self.config["compute"], self.folder / "last.ckpt"
        logger = self._logger()
        shown = progress()
        trainer = pl.Trainer(
            accelerator=compute["accelerator"],
            devices=1,
            precision=compute["precision"],
            max_epochs=self.config["optim"]["epochs"],
            logger=logger or False,
            callbacks=[EpochFiles(self.folder, metrics=self.config["logger"]["name"] == "csv"), shown],
            plugins=[AtomicCheckpointIO()],
            enable_progress_bar=not isinstance(shown, EpochLines),
            enable_model_summary=False,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
        )
        if last.exists():
            console.print(f"continuing from {last}", highlight=False)
        status = 1
        try:
            trainer.fit(self.classifier, datamodule=self.data, ckpt_path=str(last) if last.exists() else None)
            status = 0
        except Diverged as found:
            return found
        except SystemExit as left:
            # Lightning turns Ctrl-C into exit(1); to the caller it shall be what it was.
            if isinstance(left.__context__, KeyboardInterrupt):
                raise KeyboardInterrupt from None
            raise
        finally:
            if isinstance(logger, WandbLogger):
                import wandb

                logger.experiment.finish(exit_code=status)
                wandb.teardown(exit_code=status)  # its service and threads would outlive the run
        return None

    def _logger(self) -> Logger | None:
        settings = self.config["logger"]
        if settings["name"] == "wandb":
            # The client's own error reports start threads that outlive every run, and go to its maker.
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
            import wandb

            return WandbLogger(
                experiment=wandb.init(
                    project=settings["project"],
                    id=self.folder.name,
                    name=" ".join(str(self.choices.get(group)) for group in ("model", "activation", "init", "data")),
                    dir=self.folder,
                    mode=settings["mode"],
                    resume="allow",
                    config=science(self.config),
                    settings=wandb.Settings(silent=True, disable_git=True, save_code=False, console="off"),
                )
            )
        return None

    def _evaluate(self, name: str) -> dict[str, Any]:
        settings, compute = self.config["evaluation"][name], self.config["compute"]
        protocol = configured(f"evaluation.{name}", settings)(self.geometry.crop_px)
        device = torch.device("cuda" if compute["accelerator"] == "gpu" else "cpu")
        lower = AUTOCAST.get(compute["precision"])  # a result is of the precision that the run was trained in
        images, started = self.source.val, time.perf_counter()
        with (
            _bar(f"testing {name}", len(images.labels)) as seen,
            torch.autocast(device.type, lower, enabled=bool(lower)),
        ):
            tested = evaluate(
                self.classifier.to(device),
                images,
                protocol,
                classes=len(self.source.classes),
                device=device,
                workers=compute["workers"],
                on_batch=seen,
            )
        seconds = time.perf_counter() - started
        shapes = Counter(images.shape(i) for i in range(len(images.labels)))
        cost = sum(count * protocol.multiply_adds(self.network, *shape) for shape, count in shapes.items())
        return {
            **tested.as_dict(),
            "settings": settings,
            "multiply_adds": round(cost / len(images.labels)),
            "images_per_second": len(images.labels) / seconds,
            "seconds": seconds,
            "code": code_fingerprint(),
        }

    def _record(self, diverged: Diverged | None, protocols: dict[str, Any]) -> dict[str, Any]:
        history = self.classifier.history
        gpu = self.config["compute"]["accelerator"] == "gpu"
        device = torch.cuda.get_device_name() if gpu else "cpu"
        return {
            "schema_version": records.SCHEMA_VERSION,
            "run": self.folder.name,
            "status": "diverged" if diverged else "finished",
            "diverged": {"step": diverged.step, "layer": diverged.layer} if diverged else None,
            "choices": self.choices,
            "science": science(self.config),
            "compute": self.config["compute"],
            "protocols": protocols,
            "network": _describe(self.network, self.source, self.config["data"]["crop_px"]),
            "ledger": [entry.as_dict() for entry in self.ledger],
            "warnings": [*self.warnings, *_unread(self.classifier.unread)],
            "slopes": {} if diverged else _slopes(self.network),
            "drop_epochs": self.classifier.rule.drop_epochs,
            "epochs": len(history),
            "history": [{key: _finite(value) for key, value in row.items()} for row in history],
            "train_images": len(self.source.train.labels),
            "images_per_second": statistics.harmonic_mean([row["images_per_second"] for row in history])
            if history
            else None,
            "wall_s": sum(part["seconds"] for part in (*history, *protocols.values())),
            "codes": self.classifier.codes,
            "provenance": provenance(self.source.digest, self.statistics_hash, device, torch.get_num_threads()),
        }


def _finite(number: float | None) -> float | None:
    """A diverged run's last numbers may be none; JSON says null."""
    return number if number is not None and math.isfinite(number) else None


def _unread(indices: set[int]) -> list[str]:
    if not indices:
        return []
    named = ", ".join(str(index) for index in sorted(indices))
    return [f"{len(indices)} training images could not be read; others took their places (by index: {named})"]


def _describe(network: Network, source: Source, input_px: int) -> dict[str, Any]:
    shapes = network.shapes
    return {
        "depth": depth([shape.row for shape in shapes]),
        "input_px": input_px,
        "channels": source.channels,
        "classes": len(source.classes),
        "parameters": sum(p.numel() for p in network.parameters()),
        "slopes": sum(slope.numel() for slope in network.slopes().values()),
        "multiply_adds": sum(shape.multiply_adds for shape in shapes),
    }


def _slopes(network: Network) -> dict[str, Any]:
    return {
        layer: {
            "mean": float(slope.mean()),
            "std": float(slope.std(correction=0)),
            "least": float(slope.min()),
            "most": float(slope.max()),
            "channels": slope.numel(),
        }
        for layer, slope in network.slopes().items()
    }
