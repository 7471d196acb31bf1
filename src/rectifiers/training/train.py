"""A run from its configuration to its record: find or lock, build, fit, test, record."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import torch
import yaml
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from rectifiers.data.preprocess import save_preprocess
from rectifiers.data.sources import Source
from rectifiers.runs import record as records
from rectifiers.runs.config import RunConfig, one_image_a_process
from rectifiers.runs.folder import (
    Found,
    Outcome,
    begin,
    check_ckpt_path,
    find,
    run_folder,
    run_lock,
)
from rectifiers.runs.links import link_run, readable_name
from rectifiers.runs.record import TrainingRecord
from rectifiers.runs.record_parts import ProtocolResult
from rectifiers.runtime.console import say
from rectifiers.runtime.distributed import (
    World,
    broadcast_from_rank_zero,
    check_agreement,
    run_on_all_ranks,
    world,
)
from rectifiers.runtime.errors import InputError, first_line
from rectifiers.runtime.files import NO_ROOM, check_writable, file_digest, refuse_link, write_text
from rectifiers.runtime.schema import JsonObject
from rectifiers.runtime.stopping import deferring_signals, stop_if_requested
from rectifiers.tracking.loggers import log_results, open_loggers
from rectifiers.training import lightning
from rectifiers.training.build import Run, build, check_weights, inspect_source, open_source
from rectifiers.training.checkpoints import (
    LAST,
    PREVIOUS,
    AtomicCheckpointIO,
    load_plain,
    load_weights,
    newest,
    not_written,
)
from rectifiers.training.checks import checked_functions
from rectifiers.training.from_weights import with_weights_content
from rectifiers.training.lightning import announce, init_distributed, isolated
from rectifiers.training.module import Diverged
from rectifiers.training.recording import Tested, protocol_result, training_record
from rectifiers.training.targets import (
    Choices,
    Functions,
    describe_activation,
    import_functions,
    name_activation,
)

Results = dict[str, ProtocolResult]  # by the name of the protocol


def train(
    config: RunConfig,
    choices: Choices,
    overrides: Sequence[str] | None = None,
    callbacks: Sequence[Callback] = (),
) -> Outcome[TrainingRecord]:
    """Run `config` unless its record exists; go on from its last checkpoint where there is one.

    choices: the group options that made the configuration (`{"activation": "prelu", ...}`), kept in
    the record.
    overrides: what was typed for it after `python train.py`, kept in the record too.
    callbacks: look on while it trains and change nothing; the record does not know of them.

    Bad input is an InputError, and nothing has been overwritten then. A signal ends in Stopped; the
    same command goes on from the last checkpoint.
    """
    place = world()
    with deferring_signals(), translate_errors(config, place), ExitStack() as until_the_end:
        # First the other ranks, so that from here on an error of one is raised on all.
        init_distributed(config, place)

        # What can be refused without data comes before they are opened, which may take minutes.
        run_on_all_ranks(lambda: check_places(config))
        functions = run_on_all_ranks(lambda: checked_functions(config))

        # The run's id holds the hashes of the weights that it starts from, and of the data, so no
        # run is found before they are opened.
        config = with_weights_content(config)
        source = open_together(config, functions)
        config = config.with_content(source.digest)
        folder, existing = find_or_lock(config, place, until_the_end)
        if existing is not None and existing.is_complete:
            return Outcome(existing.record, existing.path, fresh=False)

        activation = describe_activation(config, functions["activation"])
        choices = name_activation(choices, config, activation)
        announce(config, source, folder.name, activation, place)
        stop_if_requested("before it began")
        with isolated(config):
            run = build(config, functions, source, folder, place, is_trained=existing is not None)
            if existing is None:
                name = readable_name(folder.name, choices, config.seed, overrides or ())
                broadcast_from_rank_zero(lambda: begin_folder(run, name))
            else:
                load_trained(run, existing)

            with open_loggers(config, functions, folder, choices, run.provenance) as loggers:
                if existing is None:
                    diverged = fit(run, loggers, callbacks)
                    results = {} if diverged else test(run, config.evaluation.protocols)
                    record = training_record(run, choices, overrides, diverged, results)
                else:
                    results = existing.record.protocols | test(run, existing.lacking)
                    record = existing.record.model_copy(update={"protocols": results})

                # The record before the loggers: it is the result, and a server may fail.
                record = broadcast_from_rank_zero(lambda: save_record(record, folder))
                log_results(loggers, record)  # the other ranks need not wait for what W&B takes
    return Outcome(record, folder / "record.json", fresh=True)


def publish(config: RunConfig, outcome: Outcome[TrainingRecord]) -> None:
    """Give the loggers of `config` a run that is recorded already."""
    record, folder, functions = outcome.record, outcome.path.parent, import_functions(config)
    with open_loggers(config, functions, folder, record.choices, record.provenance) as loggers:
        log_results(loggers, record)


def check_places(config: RunConfig) -> None:
    """Refuse folders that cannot be written, before the data are opened; a cache that is there may
    be read alone."""
    check_writable("runs_dir", config.runs_dir)
    check_ckpt_path(config)
    if not config.cache_dir.is_dir():
        check_writable("cache_dir", config.cache_dir)


def open_together(config: RunConfig, functions: Functions, weights: Path | None = None) -> Source:
    """Open the data, the same on every rank, and look at all images; a collective call.

    weights: a plain `state_dict` to test, which is refused before that where it is of another
    network."""
    source = run_on_all_ranks(lambda: open_source(config, functions))
    # what is quickly compared, before all images are read
    if world().size > 1:
        check_agreement({"data": source.outline})
    run_on_all_ranks(lambda: check_weights(config, functions, source, weights))
    return inspect_source(source, config)


def find_or_lock(
    config: RunConfig, place: World, until_the_end: ExitStack
) -> tuple[Path, Found | None]:
    """Return (the run's folder, what there is of it).

    Unless that is complete, this process, or rank 0 of several, holds the run until the end.
    """
    # after a restart, rank 0 may be on another node than the one that is still being ended
    patience_s = 1 if place.size == 1 else 10

    def on_rank_zero() -> tuple[Path, Found | None]:
        folder = run_folder(config)
        assert folder is not None  # the data's hash is known
        # The lock before the look: another process may finish the run between the two.
        try:
            until_the_end.enter_context(run_lock(folder, patience_s))
        except InputError:  # another process has the run
            existing = find(config)
            if existing is None or not existing.is_complete:
                raise
            return folder, existing
        return folder, find(config)

    return broadcast_from_rank_zero(on_rank_zero)


def begin_folder(run: Run, name: str) -> None:
    """Make the run's folder with what is known before training, and links to it, one of which has
    `name`. A finished run that is run again is set aside."""
    begin(run.folder, rerun=run.config.rerun)
    text = yaml.safe_dump(run.config.as_dict(), sort_keys=False)
    write_text(run.folder / "config.yaml", text)
    save_preprocess(run.preprocess, run.folder / "statistics.pt")
    link_run(run.folder, name)


def fit(run: Run, loggers: list[Logger], callbacks: Sequence[Callback]) -> Diverged | None:
    """Train to the end, from the last checkpoint where there is one; return where the loss stopped
    being finite."""
    config = run.config
    if config.compile:
        # In place, so the checkpoint's keys stay; with torch's own random numbers, so dropout's
        # masks do too. torch leaves out the CUDA graphs where an operation allows none.
        run.network.compile(options={"fallback_random": True, "triton.cudagraphs": config.fast})
    stop_if_requested("before its next step")
    trainer = lightning.build_trainer(run, loggers, callbacks)
    if config.ckpt_path is not None:
        run.classifier.began_at = str(config.ckpt_path.resolve())
    start = load_first(run, trainer)
    if start is not None and run.place.rank == 0:
        say(f"continuing from {start}")
    try:
        lightning.fit(trainer, run.classifier, run.data, start)
    except Diverged as diverged:
        return diverged.with_traceback(None)  # whose frames hold the run's tensors
    return None


def load_first(run: Run, trainer: Trainer) -> Path | None:
    """Read the checkpoint to go on from, once and on rank 0, for the trainers of all ranks; return
    its path, or None where there is none."""
    began_at = run.classifier.began_at
    first = broadcast_from_rank_zero(lambda: first_checkpoint(run.folder, began_at))
    if first is None:
        return None
    path, content = first
    reader = trainer.strategy.checkpoint_io
    assert isinstance(reader, AtomicCheckpointIO)
    reader.loaded[path] = content
    return Path(path)


def first_checkpoint(folder: Path, chosen: str | None) -> tuple[str, JsonObject] | None:
    """Return the path and the content of the checkpoint to go on from: the newest one, where there
    is one and no other is chosen, or where a run that began at the chosen one wrote it."""
    if chosen is None:
        return newest(folder)
    with suppress(InputError):  # a damaged one gives way to the chosen one
        last = newest(folder)
        if last is not None and last[1]["rectifiers"].get("began_at") == chosen:
            return last
    return chosen, AtomicCheckpointIO().load_checkpoint(chosen)


def load_trained(run: Run, existing: Found) -> None:
    """Load the last checkpoint of a training that is finished, to test it by more protocols."""
    last = existing.path.with_name(LAST)
    try:
        checkpoint = broadcast_from_rank_zero(lambda: AtomicCheckpointIO().load_checkpoint(last))
    except InputError as error:
        reason, more = str(error).partition(";")[0], ",".join(existing.lacking)
        raise InputError(
            f"evaluation=[{more}] needs the run's network, and {reason}; give rerun=true to train "
            "it again",
            on_all_ranks=error.on_all_ranks,
        ) from error
    # no Trainer is built where nothing is trained, so what its `ckpt_path` does is done here
    run.classifier.on_load_checkpoint(checkpoint)
    run.classifier.load_state_dict(checkpoint["state_dict"])


def test(run: Run, names: Iterable[str]) -> Results:
    """Return what each of the protocols `names` finds; kept scores go into the run's folder."""
    known: list[Tested] = []
    return {name: protocol_result(run, name, known) for name in sorted(names)}


def save_record(record: TrainingRecord, folder: Path) -> TrainingRecord:
    """Write the record, after which nothing but the last checkpoint is needed, and return it."""
    records.write(folder / "record.json", record)
    (folder / PREVIOUS).unlink(missing_ok=True)
    return record


def test_weights(config: RunConfig, path: Path) -> Results:
    """Return what the protocols of `config` say of the weights in a plain `state_dict`; there is no
    run to record.

    Several processes test together, and each returns the result of all. Kept scores go into a
    folder beside the file, `<file>.tested`.
    """
    place, folder = world(), path.with_name(f"{path.name}.tested")
    # it lies beside a file that may be anybody's
    for part in (folder, folder / "scores"):
        refuse_link(part)
    with translate_errors(config, place):
        init_distributed(config, place)
        functions = run_on_all_ranks(lambda: checked_functions(config))
        if place.size > 1:
            check_agreement({"file of weights": file_digest(path)})
        source = open_together(config, functions, path)
        with isolated(config):
            run = build(config, functions, source, folder, place, is_trained=True)
            load_plain(run.network, load_weights(path))
            return test(run, config.evaluation.protocols)


@contextmanager
def translate_errors(config: RunConfig, place: World) -> Iterator[None]:
    """Turn a full disk, a loader that hangs, the loss of other processes and what Lightning
    refuses, wherever they are noticed, into a sentence."""
    try:
        yield
    except MisconfigurationException as error:
        raise InputError(f"Lightning's Trainer: {error}", on_all_ranks=True) from error
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise not_written(error.filename or config.runs_dir, error.strerror) from error
    except ValueError as error:
        if not str(error).startswith("Expected more than 1 value per channel"):
            raise  # not torch's error of batch normalisation
        raise one_image_a_process(config.data.batch_size) from error
    except RuntimeError as error:
        if str(error).startswith("Early stopping conditioned on metric"):
            reason = f"callbacks: {first_line(error)}; give one that is logged, such as val/loss"
            raise InputError(reason, on_all_ranks=True) from error
        if str(error).startswith("DataLoader timed out"):
            raise InputError(
                f"timeout_s={config.timeout_s:g} went by without a batch of the processes that "
                "load images; the same command goes on from the last checkpoint, and may be given "
                "a larger one where reading is that slow"
            ) from error
        is_lost = isinstance(error, torch.distributed.DistError) or "gloo" in str(error)
        if place.size == 1 or not is_lost:
            raise
        raise InputError(
            f"rank {place.rank} lost the other processes ({first_line(error)}); the same command "
            "goes on from the last checkpoint"
        ) from error
