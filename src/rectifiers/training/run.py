"""A run from its configuration to its record: find or lock, build, fit, test, record."""

import errno
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
import yaml
from pytorch_lightning.callbacks import Callback

from rectifiers.data.statistics import save
from rectifiers.runs import record as records
from rectifiers.runs.config import RunConfig
from rectifiers.runs.folder import begin, begun_by
from rectifiers.runs.identity import science
from rectifiers.runs.lock import held
from rectifiers.runs.lookup import Found, Outcome, find, run_folder, settle
from rectifiers.runs.provenance import provenance
from rectifiers.runs.record import TrainingRecord
from rectifiers.runs.record_parts import ProtocolResult, Provenance
from rectifiers.runtime.console import stderr
from rectifiers.runtime.distributed import (
    SINGLE_PROCESS,
    World,
    all_gather,
    broadcast_from_rank_zero,
    check_agreement,
    launch_id,
    run_on_all_ranks,
    world,
)
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import write_text
from rectifiers.runtime.signals import deferring_signals, stop_if_requested
from rectifiers.tracking.client import Tracked
from rectifiers.tracking.mirror import Mirror, mirrored
from rectifiers.training import lightning
from rectifiers.training.build import Parts, build, check_functions, open_source
from rectifiers.training.checkpoints import LAST, PREVIOUS, AtomicCheckpointIO, first_line, load_weights, newest
from rectifiers.training.divergence import Diverged
from rectifiers.training.epoch_end import write_metrics
from rectifiers.training.isolation import isolated
from rectifiers.training.module import refuse_other_network
from rectifiers.training.preflight import announce, check_compute, meet
from rectifiers.training.recording import training_record, unread_warning
from rectifiers.training.testing import protocol_result

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
Choices = Mapping[str, str | None]
Results = dict[str, ProtocolResult]  # by the name of the protocol


def train(
    config: RunConfig,
    choices: Choices,
    overrides: Sequence[str] | None = None,
    callbacks: Sequence[Callback] = (),
) -> Outcome[TrainingRecord]:
    """Run `config` unless its record exists; go on from its last checkpoint where there is one.

    choices: the group options that made the configuration (`{"activation": "prelu", ...}`), kept in the record.
    overrides: what was typed for it after `python train.py`, kept in the record too.
    callbacks: look on while it trains and change nothing; the record does not know of them.

    Raises:
        InputError: for anything the user gave that cannot be used; nothing has been overwritten then.
        Stopped: where a signal asked for it; the same command goes on from the last checkpoint.
    """
    here = world()
    with deferring_signals(), _errors_in_words(config, here), ExitStack() as until_the_end:
        meet(config, here)
        run_on_all_ranks(lambda: check_functions(config))
        source = run_on_all_ranks(lambda: open_source(config.data))
        check_agreement({"data": source.digest})
        named = config.with_content(source.digest)
        config, found = find_or_lock(named, until_the_end, patience_s=1 if here.size == 1 else 10)
        if found is not None and found.is_complete:
            return Outcome(found.record, found.path, fresh=False)
        folder = _folder(config)
        announce(config, source, folder.name, here)
        stop_if_requested("before it began")
        with isolated(config.compute.threads):
            parts = build(config, source, folder.name, here)
            if found is None:
                broadcast_from_rank_zero(lambda: begin_folder(config, parts, folder))
            else:
                load_trained(parts, found)
            with mirrored(_tracked(config, choices, parts, folder, here)) as mirror:
                if found is None:
                    diverged = fit(config, parts, folder, here, mirror, callbacks)
                    results = {} if diverged else test(config, parts, folder, here, config.evaluation.protocols)
                    record = write_up(config, choices, overrides, parts, folder, here, diverged, results)
                else:
                    results = test(config, parts, folder, here, found.lacking)
                    record = found.record.model_copy(update={"protocols": found.record.protocols | results})
                record = broadcast_from_rank_zero(lambda: keep(record, folder))
                mirror.finished(record)  # the other ranks need not wait for what W&B takes
    return Outcome(record, folder / "record.json", fresh=True, note=mirror.note)


def find_or_lock(config: RunConfig, until_the_end: ExitStack, patience_s: float) -> tuple[RunConfig, Found | None]:
    """Return `config` with all that it refers to put in, and what there is of its run.

    Unless that is complete, this process, or rank 0 of several, holds the run until the end.

    Raises:
        InputError: where another process holds it.
    """
    launches = all_gather(launch_id())

    def on_rank_zero() -> tuple[RunConfig, Found | None]:
        settled = settle(config)
        folder = _folder(settled)
        if settled.rerun and begun_by(folder, launches):
            settled = settled.replaced({"rerun": False})  # that has been done, and this is a restart
        try:
            # after a restart, rank 0 may be on another node than the one that is still being ended
            until_the_end.enter_context(held(folder, patience_s))
        except InputError:
            found = find(settled)
            if found is None or not found.is_complete:
                raise
            return settled, found
        return settled, find(settled)

    return broadcast_from_rank_zero(on_rank_zero)


def begin_folder(config: RunConfig, parts: Parts, folder: Path) -> None:
    """Make the run's folder with what is known before training. A finished run that is run again is set aside."""
    try:
        begin(folder, anew=config.rerun)
        write_text(folder / "config.yaml", yaml.safe_dump(config.as_dict(), sort_keys=False))
        init_report = yaml.safe_dump([entry.as_dict() for entry in parts.init_report], sort_keys=False)
        write_text(folder / "init_report.yaml", init_report)
        save(parts.preprocess, folder / "statistics.pt")
    except OSError as error:
        raise InputError(f"runs_dir={config.runs_dir} cannot be written ({error}); give another") from error


def fit(
    config: RunConfig, parts: Parts, folder: Path, here: World, mirror: Mirror, callbacks: Sequence[Callback]
) -> Diverged | None:
    """Train to the end, from the last checkpoint where there is one; return where the loss stopped being finite."""
    if config.compute.compile:
        # In place, so the checkpoint's keys stay; with torch's own random numbers, so dropout's masks do too.
        parts.network.compile(options={"fallback_random": True})
    stop_if_requested("before its next step")
    trainer = lightning.build_trainer(config, folder, mirror.epochs, here, callbacks)
    start = broadcast_from_rank_zero(lambda: newest(folder))
    if start is not None and here.rank == 0:
        stderr.print(f"continuing from {start}", highlight=False, soft_wrap=True)
    diverged = None
    try:
        lightning.fit(trainer, parts.classifier, parts.data, start)
    except Diverged as found:
        diverged = found
    if config.logger.name != "none" and parts.classifier.history and here.rank == 0:
        write_metrics(folder / "metrics.csv", parts.classifier.history)  # a kill may have come before its last line
    return diverged


def load_trained(parts: Parts, found: Found) -> None:
    """Load the last checkpoint of a training that is finished, to test it by more protocols.

    Raises:
        InputError: where it is gone or damaged.
    """
    last = found.path.with_name(LAST)
    if not last.exists():
        raise InputError(
            f"evaluation=[{', '.join(found.lacking)}] asks for more than {found.path} has, and last.ckpt is gone, so "
            "nothing can be tested; give rerun=true to train again"
        )
    try:
        checkpoint = AtomicCheckpointIO().load_checkpoint(last)
    except InputError as error:
        raise InputError(f"{str(error).partition(';')[0]}; give rerun=true to train this run again") from error
    parts.classifier.on_load_checkpoint(checkpoint)
    parts.classifier.load_state_dict(checkpoint["state_dict"])


def test(config: RunConfig, parts: Parts, folder: Path, here: World, names: Iterable[str]) -> Results:
    """Return what each of the protocols `names` finds; kept scores go into `folder`."""
    return {name: protocol_result(name, config, parts.classifier, parts.source, folder, here) for name in sorted(names)}


def write_up(
    config: RunConfig,
    choices: Choices,
    overrides: Sequence[str] | None,
    parts: Parts,
    folder: Path,
    here: World,
    diverged: Diverged | None,
    results: Results,
) -> TrainingRecord:
    """Return the record of a training that has ended, on every rank."""
    unread = parts.classifier.unreadable_images() or sorted(set().union(*all_gather(parts.data.unread)))
    return training_record(
        run=folder.name,
        config=config,
        choices=dict(choices),
        overrides=overrides,
        source=parts.source,
        classifier=parts.classifier,
        init_report=parts.init_report,
        warnings=[*parts.warnings, *unread_warning(unread)],
        diverged=diverged,
        results=results,
        provenance=_provenance(config, parts),
        processes=here.size,
    )


def keep(record: TrainingRecord, folder: Path) -> TrainingRecord:
    """Write the record, after which nothing but the last checkpoint is needed, and return it."""
    records.write(folder / "record.json", record)
    (folder / PREVIOUS).unlink(missing_ok=True)
    return record


def test_weights(config: RunConfig, path: Path) -> Results:
    """Return what the protocols of `config` say of the weights in a plain `state_dict`; there is no run to record.

    Kept scores go into a folder beside the file, `<file>.tested`.

    Raises:
        InputError: where the file holds no weights, or those of another network than `config` describes.
    """
    check_compute(config.compute, SINGLE_PROCESS)
    source, folder = open_source(config.data), path.with_name(f"{path.name}.tested")
    with isolated(config.compute.threads):
        parts, weights = build(config, source, folder.name, SINGLE_PROCESS), load_weights(path)
        refuse_other_network(parts.network, weights)
        parts.network.load_state_dict(weights)
        return test(config, parts, folder, SINGLE_PROCESS, config.evaluation.protocols)


def _folder(config: RunConfig) -> Path:
    folder = run_folder(config)
    assert folder is not None  # the data's hash is known
    return folder


def _tracked(config: RunConfig, choices: Choices, parts: Parts, folder: Path, here: World) -> Tracked | None:
    """What W&B is told at the start; None where it is not asked for, and on all processes but one."""
    if config.logger.name != "wandb" or here.rank > 0:
        return None
    return Tracked(config.logger, folder, choices, science(config), _provenance(config, parts))


def _provenance(config: RunConfig, parts: Parts) -> Provenance:
    device = torch.cuda.get_device_name() if config.compute.accelerator == "gpu" else "cpu"
    source = parts.source
    return provenance(source.digest, parts.statistics_hash, device, torch.get_num_threads(), source.pinned)


@contextmanager
def _errors_in_words(config: RunConfig, here: World) -> Iterator[None]:
    """Turn a full disk and the loss of other processes, wherever they are noticed, into a sentence."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise InputError(
            f"{error.filename or config.runs_dir} could not be written ({error.strerror}); make room there and give "
            "the same command: the run goes on from its last checkpoint"
        ) from error
    except RuntimeError as error:
        if str(error).startswith("DataLoader timed out"):
            raise InputError(
                f"compute.timeout_s={config.compute.timeout_s:g} went by without a batch of the processes that load "
                "images; the same command goes on from the last checkpoint, and may be given a larger one where "
                "reading is that slow"
            ) from error
        if here.size == 1 or not (isinstance(error, torch.distributed.DistError) or "gloo" in str(error)):
            raise
        raise InputError(
            f"rank {here.rank} lost the other processes ({first_line(error)}); the same command goes on from the "
            "last checkpoint"
        ) from error
