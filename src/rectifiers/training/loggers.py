"""The loggers that a configuration chooses, opened for a run."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from pytorch_lightning.loggers import Logger
from pytorch_lightning.loggers.logger import DummyLogger

from rectifiers.runs.config import RunConfig
from rectifiers.runs.record import TrainingRecord
from rectifiers.runs.record_parts import Provenance
from rectifiers.runtime.errors import InputError
from rectifiers.tracking.loggers import RunLogger, description, hyperparameters, log_results
from rectifiers.training.functions import import_function

EXTRAS = ("tensorboard", "wandb")  # the packages of loggers, which are in extras of that name


def check_packages(config: RunConfig) -> None:
    """Refuse loggers whose package is not installed.

    Raises:
        InputError: for the first one; the message names the extra.
    """
    for name in config.logger.targets():
        if name in EXTRAS and find_spec(name) is None:
            raise InputError(
                f"logger={name} needs {name}, which is not installed; call make setup "
                f"EXTRAS={name}, or choose logger=csv"
            )


@contextmanager
def open_loggers(
    config: RunConfig,
    folder: Path,
    choices: Mapping[str, str | None],
    provenance: Provenance,
    *,
    is_rank_zero: bool = True,
) -> Iterator[list[Logger]]:
    """Start the loggers of the run of `folder`, and close them with the exit code of the body.

    On the other ranks, they ignore what they are given."""
    targets = config.logger.targets()
    if not is_rank_zero:
        yield [DummyLogger() for _ in targets]
        return
    loggers: list[Logger] = []
    described = description(config, choices)
    parameters = hyperparameters(config, choices, folder.name, provenance)
    try:
        for name, target in targets.items():
            asked = {} if "save_dir" in target.options else {"save_dir": str(folder)}
            loggers.append(import_function(f"logger.{name}", target)(**asked))
            if isinstance(loggers[-1], RunLogger):
                loggers[-1].start(described, parameters)
            else:
                loggers[-1].log_hyperparams(parameters)
        yield loggers
    except BaseException as error:
        _close(loggers, exit_code(error))
        if note_of(loggers):
            print(note_of(loggers), file=sys.stderr)
        raise
    _close(loggers, 0)


def _close(loggers: list[Logger], exit_code: int) -> None:
    with ExitStack() as stack:  # closes all, whatever one of them raises
        for logger in loggers:
            if isinstance(logger, RunLogger):
                stack.callback(logger.close, exit_code)
            else:
                stack.callback(logger.finalize, "failed" if exit_code else "success")


def exit_code(error: BaseException) -> int:
    """Return the exit code of a process that ends by `error`."""
    if isinstance(error, KeyboardInterrupt):
        return 130
    return error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1


def note_of(loggers: list[Logger]) -> str | None:
    """Return what a user may do about a logger, after it is closed."""
    notes = [logger.note for logger in loggers if isinstance(logger, RunLogger) and logger.note]
    return notes[0] if notes else None


def publish(config: RunConfig, folder: Path, record: TrainingRecord) -> str | None:
    """Give the loggers of `config` a run that is recorded already; return a note."""
    with open_loggers(config, folder, record.choices, record.provenance) as loggers:
        log_results(loggers, record)
    return note_of(loggers)
