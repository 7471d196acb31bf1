"""The loggers that a configuration chooses, opened for a run."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
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
    with ExitStack() as closing:  # closes all, whatever one of them raises
        for name, target in config.logger.items():
            place = {} if "save_dir" in target.options else {"save_dir": str(folder)}
            logger = import_function(f"logger.{name}", target)(**place)
            loggers.append(logger)
            closing.push(partial(_close, logger))
            if isinstance(logger, RunLogger):
                logger.start(description(config, choices), parameters)
            else:
                logger.log_hyperparams(parameters)
        yield loggers


def _close(logger: Logger, _: object, error: BaseException | None, __: object) -> None:
    exit_code = 0
    if error is not None:
        code = INTERRUPTED if isinstance(error, KeyboardInterrupt) else getattr(error, "code", 1)
        exit_code = code if isinstance(code, int) else 1
    if isinstance(logger, RunLogger):
        logger.close(exit_code)
    else:
        logger.finalize("failed" if exit_code else "success")


def publish(config: RunConfig, outcome: Outcome[TrainingRecord]) -> None:
    """Give the loggers of `config` a run that is recorded already."""
    record, folder = outcome.record, outcome.path.parent
    with open_loggers(config, folder, record.choices, record.provenance) as loggers:
        log_results(loggers, record)
