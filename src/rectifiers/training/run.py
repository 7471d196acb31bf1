"""A run from its configuration to its record."""

import errno
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from pytorch_lightning.callbacks import Callback

from rectifiers.data.sources import Source
from rectifiers.data.statistics import save
from rectifiers.nn.initializers import warn_of_drift
from rectifiers.runs import record as records
from rectifiers.runs.config import check, protocols
from rectifiers.runs.folder import begin, begun_by
from rectifiers.runs.identity import science
from rectifiers.runs.lock import held
from rectifiers.runs.lookup import finished, lacking, prepare, run_folder
from rectifiers.runs.provenance import code_fingerprint, provenance
from rectifiers.runtime.console import stderr
from rectifiers.runtime.distributed import (
    SINGLE_PROCESS,
    World,
    all_gather,
    broadcast_from_rank_zero,
    join_process_group,
    launch_id,
    run_on_all_ranks,
    world,
)
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import write_text
from rectifiers.runtime.signals import deferring_signals, interruptible, stop_if_requested
from rectifiers.tracking.client import Tracked
from rectifiers.tracking.mirror import Mirror, mirrored
from rectifiers.training.assembly import (
    build_data,
    build_geometry,
    build_network,
    build_preprocess,
    build_rule,
    build_sgd_settings,
    build_source,
)
from rectifiers.training.checkpoints import LAST, PREVIOUS, AtomicCheckpointIO, first_line, load_weights, newest
from rectifiers.training.divergence import Diverged
from rectifiers.training.epoch_end import write_metrics
from rectifiers.training.isolation import isolated
from rectifiers.training.lightning import BACKEND, build_trainer, fit
from rectifiers.training.module import Classifier, refuse_other_network
from rectifiers.training.preflight import agree, check_compute, preflight
from rectifiers.training.recording import training_record, unread_warning
from rectifiers.training.testing import protocol_result

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class Outcome:
    """A run's record, where it lies, whether this call made it (False: it was there already), and what W&B lacks."""

    record: dict[str, Any]
    path: Path
    fresh: bool
    note: str | None = None


def train(config: dict[str, Any], choices: dict[str, Any], callbacks: Sequence[Callback] = ()) -> Outcome:
    """Run `config`, a resolved plain dict, unless its record exists; go on from its last checkpoint where there is one.

    choices: the group options that made the configuration (`{"activation": "prelu", ...}`), kept in the record.
    callbacks: look on while it trains and change nothing; the record does not know of them.

    Raises:
        InputError: for anything the user gave that cannot be used; nothing has been overwritten then.
        Stopped: where a signal asked for it; the same command goes on from the last checkpoint.
    """
    here = world()
    with deferring_signals(), _in_words(config, here), ExitStack() as stack:
        prepare(config)
        check_compute(config["compute"], here)
        if config["compute"]["accelerator"] == "gpu":
            torch.cuda.set_device(here.local_rank)  # before anything is put on "the" GPU, by NCCL and pinning too
        join_process_group(here, BACKEND[config["compute"]["accelerator"]], config["compute"]["timeout_s"])
        agree(config)
        source = run_on_all_ranks(lambda: _opened(config))
        prepare(config)  # once more: what waits for the data's hash
        folder = run_folder(config)
        assert folder is not None  # opening the source filled in the content's hash
        launches = all_gather(launch_id())
        if config["rerun"] and broadcast_from_rank_zero(lambda: begun_by(folder, launches)):
            config["rerun"] = False  # that has been done, and this is a restart
        found = broadcast_from_rank_zero(lambda: finished(config))
        if found is None:
            # after a restart, rank 0 may be on another node than the one that is still being ended
            broadcast_from_rank_zero(lambda: stack.enter_context(held(folder, 1 if here.size == 1 else 10)))
            found = broadcast_from_rank_zero(lambda: finished(config))  # it may have been finished a moment ago
        if found is not None:
            return Outcome(*found, fresh=False)
        preflight(config, source, folder.name, here)
        stop_if_requested("before it began")
        return _train(config, choices, source, folder, callbacks)


def _opened(config: dict[str, Any]) -> Source:
    with interruptible("while the data was opened"):
        return build_source(config)


@contextmanager
def _in_words(config: dict[str, Any], here: World) -> Iterator[None]:
    """Turn a full disk and the loss of other processes, wherever they are noticed, into a sentence."""
    try:
        yield
    except OSError as fault:
        if fault.errno not in NO_ROOM:
            raise
        raise InputError(
            f"{fault.filename or config['runs_dir']} could not be written ({fault.strerror}); make room there and give "
            "the same command: the run goes on from its last checkpoint"
        ) from fault
    except RuntimeError as fault:
        if str(fault).startswith("DataLoader timed out"):
            waited = config["compute"]["timeout_s"]
            raise InputError(
                f"compute.timeout_s={waited} went by without a batch of the processes that load images; the same "
                "command goes on from the last checkpoint, and may be given a larger one where reading is that slow"
            ) from fault
        if here.size == 1 or not _of_the_network(fault):
            raise
        raise InputError(
            f"rank {here.rank} lost the other processes ({first_line(fault)}); the same command goes on from the "
            "last checkpoint"
        ) from fault


def _of_the_network(fault: RuntimeError) -> bool:
    return isinstance(fault, torch.distributed.DistError) or "gloo" in str(fault)


def _train(
    config: dict[str, Any], choices: dict[str, Any], source: Source, folder: Path, callbacks: Sequence[Callback]
) -> Outcome:
    path = folder / "record.json"
    kept = broadcast_from_rank_zero(lambda: records.load(path) if path.exists() and not config["rerun"] else None)
    with isolated(config["compute"]["threads"]):
        run = _Run(config, choices, source, folder)
        if kept is None:
            broadcast_from_rank_zero(run.prepare_folder)
        with mirrored(run.tracked()) as mirror:
            record = run.to_record(mirror, callbacks) if kept is None else run.with_more_protocols(kept)

            def keep() -> dict[str, Any]:
                records.write(path, record)
                (folder / PREVIOUS).unlink(missing_ok=True)
                return record

            kept = broadcast_from_rank_zero(keep)  # the others need not wait for what W&B takes
            mirror.finished(kept)
    return Outcome(kept, path, fresh=True, note=mirror.note)


def test_weights(config: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return what the protocols of `config` say of the weights in a plain `state_dict`; there is no run to record.

    Kept scores go into a folder beside the file, `<file>.tested`.

    Raises:
        InputError: where the file holds no weights, or those of another network than `config` describes.
    """
    check(config)
    check_compute(config["compute"], SINGLE_PROCESS)
    source = build_source(config)
    with isolated(config["compute"]["threads"]):
        return _Run(config, {}, source, path.with_name(f"{path.name}.tested")).test_weights(load_weights(path))


class _Run:
    """The parts of one run, and the steps that use them."""

    def __init__(self, config: dict[str, Any], choices: dict[str, Any], source: Source, folder: Path) -> None:
        self.config, self.choices, self.source, self.folder = config, choices, source, folder
        self.geometry = build_geometry(config)
        self.data = run_on_all_ranks(lambda: build_data(config, source, self.geometry))
        self.preprocess, self.statistics_hash = build_preprocess(config, self.data)
        self.network, self.init_report = run_on_all_ranks(
            lambda: build_network(config, source, self.preprocess.flat_output)
        )
        drift = warn_of_drift(self.network.sites()) if config["model"]["norm"] == "none" else None
        self.warnings = [] if drift is None else [drift]
        self.classifier = Classifier(
            self.network,
            self.preprocess,
            build_rule(config),
            build_sgd_settings(config),
            classes=len(source.classes),
            seed=config["seed"],
            run=folder.name,
            code=code_fingerprint(),
        )
        if config["compute"]["precision"] == "64-true":
            self.classifier.double()  # Lightning would, after weights of a checkpoint were rounded to single precision

    def prepare_folder(self) -> None:
        """Make the run's folder with what is known before training. A finished run that is run again is set aside."""
        try:
            begin(self.folder, anew=self.config["rerun"])
            write_text(self.folder / "config.yaml", yaml.safe_dump(self.config, sort_keys=False))
            ledger = yaml.safe_dump([entry.as_dict() for entry in self.init_report], sort_keys=False)
            write_text(self.folder / "ledger.yaml", ledger)
            save(self.preprocess, self.folder / "statistics.pt")
        except OSError as fault:
            raise InputError(f"runs_dir={self.config['runs_dir']} cannot be written ({fault}); give another") from fault

    def with_more_protocols(self, kept: dict[str, Any]) -> dict[str, Any]:
        """Test the last checkpoint by what `kept` lacks; all that the record says of the training stays as it is."""
        last = self.folder / LAST
        if not last.exists():
            raise InputError(
                f"evaluation=[{', '.join(protocols(self.config))}] asks for more than {self.folder / 'record.json'} "
                "has, and last.ckpt is gone, so nothing can be tested; give rerun=true to train again"
            )
        try:
            checkpoint = AtomicCheckpointIO().load_checkpoint(last)
        except InputError as fault:
            raise InputError(f"{str(fault).partition(';')[0]}; give rerun=true to train this run again") from fault
        self.classifier.on_load_checkpoint(checkpoint)
        self.classifier.load_state_dict(checkpoint["state_dict"])
        names = broadcast_from_rank_zero(lambda: lacking(self.config, kept, self.folder))
        return {**kept, "protocols": kept["protocols"] | self._test(names)}

    def test_weights(self, weights: dict[str, torch.Tensor]) -> dict[str, Any]:
        """Test other weights than the run's own."""
        refuse_other_network(self.network, weights)
        self.network.load_state_dict(weights)
        return self._test(protocols(self.config))

    def tracked(self) -> Tracked | None:
        """Return what W&B is told at the start; None where it is not asked for, and on all processes but one."""
        settings = self.config["logger"]
        if settings["name"] != "wandb" or world().rank > 0:
            return None
        return Tracked(settings, self.folder, self.choices, science(self.config), self._provenance())

    def to_record(self, mirror: Mirror, callbacks: Sequence[Callback]) -> dict[str, Any]:
        """Train to the end, from the last checkpoint where there is one, test, and return the record."""
        if self.config["compute"]["compile"]:
            # In place, so the checkpoint's keys stay; with torch's own random numbers, so dropout's masks do too.
            self.network.compile(options={"fallback_random": True})
        diverged = self._fit(mirror, callbacks)
        if self.config["logger"]["name"] != "none" and self.classifier.history and world().rank == 0:
            # a kill may have come before its last line
            write_metrics(self.folder / "metrics.csv", self.classifier.history)
        results = {} if diverged else self._test(protocols(self.config))
        unread = self.classifier.unreadable_images() or sorted(set().union(*all_gather(self.data.unread)))
        return training_record(
            run=self.folder.name,
            config=self.config,
            choices=self.choices,
            source=self.source,
            classifier=self.classifier,
            init_report=self.init_report,
            warnings=[*self.warnings, *unread_warning(unread)],
            diverged=diverged,
            results=results,
            where=self._provenance(),
        )

    def _test(self, names: Iterable[str]) -> dict[str, Any]:
        return {
            name: protocol_result(name, self.config, self.classifier, self.source, self.folder)
            for name in sorted(names)
        }

    def _fit(self, mirror: Mirror, callbacks: Sequence[Callback]) -> Diverged | None:
        stop_if_requested("before its next step")
        trainer = build_trainer(self.config, self.folder, mirror.epochs, world(), callbacks)
        start = broadcast_from_rank_zero(lambda: newest(self.folder))
        if start is not None and world().rank == 0:
            stderr.print(f"continuing from {start}", highlight=False, soft_wrap=True)
        try:
            fit(trainer, self.classifier, self.data, start)
        except Diverged as found:
            return found
        return None

    def _provenance(self) -> dict[str, Any]:
        gpu = self.config["compute"]["accelerator"] == "gpu"
        device = torch.cuda.get_device_name() if gpu else "cpu"
        return provenance(self.source.digest, self.statistics_hash, device, torch.get_num_threads(), self.source.pinned)
