"""Lightning loggers that have each epoch once, however often a run was killed and resumed.

They get all rows of the history after each epoch's checkpoint, and once more when a run resumes
from one: an epoch that was logged before its checkpoint would be logged again after a kill.

`open_loggers` opens those of a run; `log_history` and `log_results` are the ways by which numbers
reach them."""

import csv
import io
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from pytorch_lightning import loggers
from pytorch_lightning.loggers.logger import DummyLogger

from rectifiers.runs.config import PLACES, RunConfig
from rectifiers.runs.identity import without
from rectifiers.runs.record import Record, TrainingRecord
from rectifiers.runs.record_parts import Provenance
from rectifiers.runtime.distributed import world
from rectifiers.runtime.errors import INTERRUPTED
from rectifiers.runtime.files import write_text
from rectifiers.runtime.schema import JsonObject

Rows = Sequence[JsonObject]
# The history's keys (which records and criteria name) that loggers show under other names.
LOGGED_AS = {
    "train_loss": "train/loss",
    "val/top1_error_pct": "val/error_top1",
    "val/top5_error_pct": "val/error_top5",
}


class RunLogger(loggers.Logger):
    """A logger of all rows of a run, in the run's folder `save_dir`.

    Loggers of Lightning's own work as well; `open_loggers` and the functions below tell them
    apart."""

    next_epoch = 1  # the first that is not logged yet

    def log_history(self, rows: Rows) -> None:
        """Log the epochs that are not logged yet; `rows` are those of all epochs so far."""
        for row in rows:
            if row["epoch"] >= self.next_epoch:
                self.log_epoch(row)
                self.next_epoch = row["epoch"] + 1
        self.flush()

    def flush(self) -> None:
        """Write what is logged. Lightning calls `save` at other times, too."""
        self.save()

    def log_epoch(self, row: JsonObject) -> None:
        """Log the row of an epoch."""
        self.log_metrics(finite(row), row["epoch"])

    def log_results(self, results: Mapping[str, float], record: TrainingRecord) -> None:
        """Log what the tests found, after all epochs."""
        self.log_metrics(dict(results), record.epochs)

    def close(self, exit_code: int) -> None:
        """End; `exit_code` is that of the run."""
        self.finalize("failed" if exit_code else "success")


class CSVLogger(RunLogger):
    """Rewrites `metrics.csv` after each epoch: one line an epoch, and in the last one the test
    errors, too. Lightning's own deletes lines when a run resumes."""

    def __init__(self, save_dir: str) -> None:
        super().__init__()
        self._path = Path(save_dir) / "metrics.csv"
        self._rows: list[JsonObject] = []

    @property
    def name(self) -> str:
        return ""  # Lightning joins it, and the version, to `save_dir`

    @property
    def version(self) -> str:
        return ""

    @property
    def save_dir(self) -> str:
        return str(self._path.parent)

    def log_hyperparams(self, *arguments: object, **options: object) -> None:
        """Nothing: `config.yaml` lies beside the file."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Nothing: the file follows from the history alone."""

    def log_epoch(self, row: JsonObject) -> None:
        self._rows.append(dict(row))

    def log_results(self, results: Mapping[str, float], record: TrainingRecord) -> None:
        if self._rows:
            self._rows[-1] |= results
        self.flush()

    def flush(self) -> None:
        columns = dict.fromkeys(key for row in self._rows for key in row)  # in order, each once
        text = io.StringIO()
        table = csv.DictWriter(text, list(columns))
        table.writeheader()
        table.writerows(self._rows)
        write_text(self._path, text.getvalue())


class TensorBoardLogger(RunLogger, loggers.TensorBoardLogger):
    """Lightning's, in `<run>/tensorboard`; its axis is epochs.

    The files of a run's earlier processes are removed, and all epochs written again: TensorBoard
    would show those between a checkpoint and a kill twice."""

    def __init__(self, save_dir: str) -> None:
        super().__init__(save_dir, name="tensorboard", version="", default_hp_metric=False)
        shutil.rmtree(self.log_dir, ignore_errors=True)


@contextmanager
def open_loggers(
    config: RunConfig,
    functions: Mapping[str, Callable[..., loggers.Logger]],
    folder: Path,
    choices: Mapping[str, str | None],
    provenance: Provenance,
) -> Iterator[list[loggers.Logger]]:
    """Start the loggers of the run of `folder`, and close them with the exit code of the body.

    functions: make the loggers, by their keys, such as logger.csv. On other ranks than 0, loggers
    ignore what they are given."""
    if world().rank > 0:
        yield [DummyLogger() for _ in config.logger]
        return

    opened = []
    parameters = hyperparameters(config, choices, folder.name, provenance)
    with ExitStack() as closing:  # closes all, whatever one of them raises
        for name, target in config.logger.items():
            place = {} if "save_dir" in target.options else {"save_dir": str(folder)}
            logger = functions[f"logger.{name}"](**place)
            opened.append(logger)
            closing.push(partial(_close, logger))
            logger.log_hyperparams(parameters)
        yield opened


def _close(logger: loggers.Logger, _: object, error: BaseException | None, __: object) -> None:
    """Close a logger as the end of a `with` does, by the error that ended the body, or None."""
    exit_code = _exit_code(error)
    if isinstance(logger, RunLogger):
        logger.close(exit_code)
    else:
        logger.finalize("failed" if exit_code else "success")


def _exit_code(error: BaseException | None) -> int:
    """Return the exit code of a process that ends by `error`; `sys.exit` may hold no number."""
    if error is None:
        return 0
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    code = getattr(error, "code", 1)
    return code if isinstance(code, int) else 1


def log_history(
    run_loggers: Sequence[loggers.Logger], history: Rows, *, resuming: bool = False
) -> None:
    """Give loggers the rows of all epochs so far; one that is not ours gets the last, and nothing
    again when `resuming` from a checkpoint."""
    rows = [logged(row) for row in history]
    for logger in run_loggers:
        if isinstance(logger, RunLogger):
            logger.log_history(rows)
        elif not resuming:
            logger.log_metrics(finite(rows[-1]), rows[-1]["epoch"])
            logger.save()


def log_results(run_loggers: Sequence[loggers.Logger], record: TrainingRecord) -> None:
    """Give loggers what the tests of a finished or diverged run found."""
    if record.history:
        log_history(run_loggers, record.history, resuming=True)
    for logger in run_loggers:
        if isinstance(logger, RunLogger):
            logger.log_results(results(record), record)
        else:
            logger.log_metrics(results(record), record.epochs)


def logged(row: JsonObject) -> JsonObject:
    """Return a row of the history under the names that loggers show; errors are in percent."""
    return {LOGGED_AS.get(key, key): value for key, value in row.items()}


def finite(row: JsonObject) -> JsonObject:
    """Return the numbers of a row that are finite."""
    return {key: value for key, value in row.items() if value is not None and math.isfinite(value)}


def results(record: Record) -> dict[str, float]:
    """Return every protocol's errors in percent, as `test/<protocol>/error_top1`."""
    errors = {}
    for name, result in record.protocols.items():
        errors[f"test/{name}/error_top1"] = result.top1_error_pct
        if result.top5_error_pct is not None:
            errors[f"test/{name}/error_top5"] = result.top5_error_pct
    return errors


def group(choices: Mapping[str, str | None]) -> str | None:
    """Return the table of the run's experiment, or its search, or None."""
    if choices.get("experiment"):
        return str(choices["experiment"]).partition("/")[0]
    search = choices.get("hparams_search")
    return f"search {search}" if search else None


def hyperparameters(
    config: RunConfig, choices: Mapping[str, str | None], run: str, provenance: Provenance
) -> JsonObject:
    """Return the choices and the seed, the resolved configuration, and where the run comes from.
    What W&B groups and filters by is not nested: it would need two spellings of its path."""
    chosen = {name: option for name, option in choices.items() if option is not None}
    nested = {
        "config": without(config.as_dict(), PLACES),
        "provenance": provenance.model_dump(exclude={"versions"}),
    }
    return {**chosen, "run": run, "seed": config.seed, **nested}
