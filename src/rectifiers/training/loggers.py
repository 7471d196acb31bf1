"""The loggers that a configuration chooses, opened for a run."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pytorch_lightning.loggers import Logger
from pytorch_lightning.loggers.logger import DummyLogger

from rectifiers.runs.config import RunConfig
from rectifiers.runs.folder import Outcome
from rectifiers.runs.record import TrainingRecord
from rectifiers.runs.record_parts import Provenance
from rectifiers.runtime.errors import INTERRUPTED
from rectifiers.tracking.loggers import RunLogger, description, hyperparameters, log_results
from rectifiers.training.functions import Choices, import_function


@contextmanager
def open_loggers(
    config: RunConfig,
    folder: Path,
    choices: Choices,
    provenance: Provenance,
    *,
    is_rank_zero: bool = True,
) -> Iterator[list[Logger]]:
    """Start the loggers of the run of `folder`, and close them with the exit code of the body.

    On the other ranks, they ignore what they are given."""
    if not is_rank_zero:
        yield [DummyLogger() for _ in config.logger]
        return
    loggers: list[Logger] = []
    parameters = hyperparameters(config, choices, folder.name, provenance)
    try:
        for name, target in config.logger.items():
            place = {} if "save_dir" in target.options else {"save_dir": str(folder)}
            logger = import_function(f"logger.{name}", target)(**place)
            loggers.append(logger)
            if isinstance(logger, RunLogger):
                logger.start(description(config, choices), parameters)
            else:
                logger.log_hyperparams(parameters)
        yield loggers
    except BaseException as error:
        _close(loggers, _exit_code(error))
        raise
    _close(loggers, 0)


def _close(loggers: list[Logger], exit_code: int) -> None:
    with ExitStack() as stack:  # closes all, whatever one of them raises
        for logger in loggers:
            if isinstance(logger, RunLogger):
                stack.callback(logger.close, exit_code)
            else:
                stack.callback(logger.finalize, "failed" if exit_code else "success")


def _exit_code(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1


def publish(config: RunConfig, outcome: Outcome[TrainingRecord]) -> None:
    """Give the loggers of `config` a run that is recorded already."""
    record, folder = outcome.record, outcome.path.parent
    with open_loggers(config, folder, record.choices, record.provenance) as loggers:
        log_results(loggers, record)
