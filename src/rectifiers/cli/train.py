"""Between the command line and the run: Hydra's configuration in, a record and one clear sentence
out."""

import math
import multiprocessing
import os
import re
import shlex
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os.path import isdir
from pathlib import Path
from typing import NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from rectifiers.cli.composition import (
    REFUSALS,
    Choices,
    choices_of,
    compose_with_choices,
    expand_names,
    refusal,
    resolve,
)
from rectifiers.cli.hints import check_arguments
from rectifiers.results.run_tables import print_record
from rectifiers.runs.config import RunConfig
from rectifiers.runs.folder import Outcome, check_ckpt_path, find
from rectifiers.runs.options import options
from rectifiers.runs.provenance import code_fingerprint
from rectifiers.runs.record import EnsembleRecord, Record, TrainingRecord
from rectifiers.runtime.console import (
    SHOW_ALL,
    cli_errors,
    ignore_broken_pipe,
    print_error,
    printable,
)
from rectifiers.runtime.distributed import World, end_with_parent, world
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CONF
from rectifiers.runtime.machine import quick_imports, usable_cores
from rectifiers.runtime.own_modules import find_modules, named_by
from rectifiers.runtime.stopping import deferring_signals

AnyOutcome = Outcome[TrainingRecord] | Outcome[EnsembleRecord]
Job = tuple[DictConfig, Choices, list[str]]  # what is run, its choices, and what was typed for it

# of overrides: those of loggers that show a run elsewhere than in its folder
LOGGERS = re.compile(r"\+*logger(\.|=(?!(none|csv)$))")


def main() -> None:
    """Do what the command line says: `python train.py ...` in a checkout, `rectifiers-train ...`
    anywhere.

    Nothing heavy is imported before the run starts, so `--help` and `--cfg job` answer at once.
    """
    interrupted = "interrupted; the same command continues from the last checkpoint"
    with cli_errors(interrupted), ignore_broken_pipe():
        with hydra_errors():
            check_arguments(sys.argv[1:])
            sys.argv[1:] = expand_names(sys.argv[1:])
            launcher = Launcher()
            hydra.main(str(CONF), config_name="train", version_base="1.3")(launcher)()

        if launcher.single is not None:
            run_job(*launcher.single)
        if launcher.search is not None:
            print_best(launcher.search / "optimization_results.yaml")
        if launcher.statuses == {"diverged"}:
            raise all_diverged()


@contextmanager
def hydra_errors() -> Iterator[None]:
    """Let Hydra raise its errors instead of printing them, and turn them into an InputError."""
    before = os.environ.get(SHOW_ALL)
    os.environ[SHOW_ALL] = "1"
    try:
        yield
    except REFUSALS as error:
        raise refusal(error) from error
    finally:
        del os.environ[SHOW_ALL]
        if before is not None:
            os.environ[SHOW_ALL] = before


class Launcher:
    """What Hydra calls for each job of a command line.

    single: the job of a command without --multirun, which `main` runs, so that Hydra adds nothing
    to its errors. search: the folder into which Optuna writes what is best. statuses: of the runs
    of a sweep."""

    def __init__(self) -> None:
        self.single: Job | None = None
        self.search: Path | None = None
        self.statuses: set[str] = set()

    def __call__(self, config: DictConfig) -> float | None:
        """Run a job of a sweep, and return the error for a sweeper to minimise."""
        if multiprocessing.current_process().name != "MainProcess":  # a worker of joblib
            end_with_parent(os.getppid(), signal.SIGKILL)  # it would train on without its parent
        state = HydraConfig.get()
        typed = OmegaConf.to_container(state.overrides.task, resolve=False) or ()
        overrides = [str(override) for override in typed]
        find_modules(named_by(overrides), state.runtime.cwd)  # a launcher may have left that folder

        job = config, choices_of(state), overrides
        if state.mode != RunMode.MULTIRUN:
            self.single = job
            return None
        if "optuna" in str(state.sweeper):
            self.search = Path(state.sweep.dir)
        with ending_all_ranks():
            record = run_job(*job, is_single=False)
        self.statuses.add(record.status)
        return _val_error(record)


@contextmanager
def ending_all_ranks() -> Iterator[None]:
    """Print an error of a sweep's job, and let no rank go on to the next job alone."""
    is_alone = world().size == 1
    try:
        yield
    except InputError as error:
        print_error(error)  # Hydra reports a sweep's failures at its end only
        if is_alone or error.on_all_ranks:
            raise
        # the others are still in this run, or gone
        sys.exit(1)
    except Exception:
        if is_alone:
            raise
        traceback.print_exc()
        sys.exit(1)


def run_job(
    config: DictConfig, choices: Choices, overrides: list[str], *, is_single: bool = True
) -> Record:
    """Run a composed configuration, print its record and return it; a single run that diverged
    ends with status 1."""
    place = world()
    with deferring_signals():
        resolved = resolve(config)
        restart_with_ranks(resolved, place)
        if resolved.members is None:
            outcome: AnyOutcome = _run(resolved, choices, overrides, place)
        else:
            outcome = _run_ensemble(resolved, resolved.members, choices["experiment"], overrides)
        if place.rank == 0:
            _print(outcome, overrides)
    if is_single and outcome.record.status == "diverged":
        sys.exit(1)
    return outcome.record


def print_best(path: Path) -> None:
    """Print what a search found best, and where that stands; an InputError where that is no
    number."""
    if not path.is_file():
        return
    best = OmegaConf.load(path)
    if not math.isfinite(best.best_value):
        raise all_diverged()

    found = " ".join(
        f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in best.best_params.items()
    )
    print(printable(f"best: {found}, val error {best.best_value:.2f} % ({path})"))


def all_diverged() -> InputError:
    """Return the error that a sweep has no result."""
    return InputError("every run diverged; search lower values of optim.lr", on_all_ranks=True)


def restart_with_ranks(config: RunConfig, place: World) -> None:
    """Start this command again under torchrun where it asks for several processes and is alone.

    The process is replaced before anything is locked or written.
    """
    is_launched = place.size > 1 or "TORCHELASTIC_RUN_ID" in os.environ
    if is_launched or config.trainer.num_nodes not in (1, "auto"):
        return
    processes = _asked_processes(config)
    if processes <= 1:
        return

    _check_gpus(config, processes)
    existing = find(config)
    if existing is not None and existing.is_complete:  # which needs no other process
        return
    _check_start(config, processes)
    _become_torchrun(processes)


def _asked_processes(config: RunConfig) -> int:
    """Return how many processes a machine starts for the run."""
    devices = config.trainer.devices
    if devices != "auto":
        return devices
    return _gpus() if config.trainer.accelerator == "gpu" else 1


def _check_gpus(config: RunConfig, processes: int) -> None:
    if config.trainer.accelerator == "gpu" and (gpus := _gpus()) < processes:
        raise InputError(
            f"trainer.devices={processes} needs as many GPUs, and torch sees {gpus}; give fewer, "
            "or choose trainer=ddp_cpu"
        )


def _check_start(config: RunConfig, processes: int) -> None:
    """Refuse before torchrun starts what would fail in its processes: it adds a page about them."""
    if not _may_exist(config):
        config.check_processes(processes)
    if not config.data.download:
        _check_root(config)
    # a process of a launcher of Hydra would start the whole sweep again
    if multiprocessing.parent_process() is not None or "SUBMITIT_EXECUTOR" in os.environ:
        raise InputError(
            f"trainer.devices={processes} starts processes of its own, which a launcher of Hydra "
            "does not allow; leave hydra/launcher out, or give trainer.devices=1"
        )


def _become_torchrun(processes: int) -> NoReturn:
    """Replace this process by torchrun, which starts the same command so many times."""
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // processes)))
    # otherwise a restart by torchrun finds the addresses of dead processes
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    os.environ.pop(SHOW_ALL, None)  # which `hydra_errors` sets around a sweep

    # -P: without it, -m would put the current folder on sys.path
    torchrun = ["-P", "-m", "torch.distributed.run", "--standalone"]
    command = [sys.executable, *torchrun, f"--nproc-per-node={processes}", *sys.argv]
    os.execv(sys.executable, command)


def _check_root(config: RunConfig) -> None:
    root = config.data.root
    if root is not None and not isdir(str(root)):
        raise InputError(f"data.root={root} is not a folder; give the folder of the data")


def check_typed(config: RunConfig, run: str, overrides: Sequence[str]) -> None:
    """Refuse what was typed and cannot be used, although the run exists and nothing is computed."""
    check_ckpt_path(config)
    if config.ckpt_path is not None:
        with quick_imports():
            from rectifiers.training.checkpoints import AtomicCheckpointIO, refuse_other_run

        refuse_other_run(AtomicCheckpointIO().load_checkpoint(config.ckpt_path), run)

    if config.trainer.accelerator == "gpu" and not _gpus():
        raise InputError(
            "trainer.accelerator=gpu needs a GPU, and torch finds none; choose trainer=cpu"
        )
    if any(typed.lstrip("+").startswith("data.root=") for typed in overrides):
        _check_root(config)
    if any(typed.startswith("+") for typed in overrides):  # a setting of a function's own
        with quick_imports():
            from rectifiers.training.checks import checked_functions

        checked_functions(config)


def _may_exist(config: RunConfig) -> bool:
    """Return whether the run may be there, so that it is only tested, which any number of processes
    can. One that is named by its data is known when these are opened."""
    if config.awaits_content:
        return not config.rerun and any(config.runs_dir.glob("*/record.json"))
    return find(config) is not None


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()


def _val_error(record: Record) -> float:
    """Return what a search minimises: the error on val after the last epoch, in percent, for test
    chooses nothing."""
    if not isinstance(record, TrainingRecord) or record.status == "diverged":
        return float("inf")
    return record.curve("val/top1_error_pct")[-1]


def _run(
    config: RunConfig, choices: Choices, overrides: Sequence[str], place: World
) -> Outcome[TrainingRecord]:
    """Return what there is of a run, or train it."""
    # Several processes ask rank 0 whether the run is there, so that none goes on alone.
    existing = find(config) if place.size == 1 else None
    if existing is not None and existing.is_complete:
        check_typed(config, existing.record.run, overrides)
        outcome = Outcome(existing.record, existing.path, fresh=False)
    else:
        # Before torch starts its threads: they wait asleep and not spinning. Beside one other busy
        # process a run on two cores took 2.5 times as long with the default (47 s against 19 s;
        # alone 18 s), and many times beside two.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        if not _may_exist(config):
            config.check_processes(place.size)
        with quick_imports():
            from rectifiers.training.train import train

        outcome = train(config, choices, overrides)

    is_of_agent = "WANDB_SWEEP_ID" in os.environ and "wandb" in config.logger
    if not outcome.fresh and place.rank == 0 and is_of_agent:
        from rectifiers.training.train import publish

        # a W&B sweep's agent waits for the numbers of a run that was there already, all the same
        publish(config, outcome)
    return outcome


def _run_ensemble(
    config: RunConfig, members: Sequence[str], experiment: str | None, overrides: Sequence[str]
) -> Outcome[EnsembleRecord]:
    """Run every member with the same overrides, as far as it is not there yet, and average their
    scores."""
    of_ensemble = ("experiment", "evaluation", "members")
    shared = [typed for typed in overrides if typed.partition("=")[0] not in of_ensemble]
    tests = f"evaluation=[{','.join(config.evaluation.protocols)}]"

    known = options("experiment")
    runs = []
    for member in members:
        if member not in known:
            raise InputError(
                f"members names {member}, which is no experiment; give some of: {', '.join(known)}"
            )
        typed = [*shared, f"experiment={member}", tests]
        composed, choices = compose_with_choices(typed)
        runs.append((resolve(composed), choices, typed))

    from rectifiers.training.ensemble import ensemble

    return ensemble(runs, config.runs_dir, experiment)


def _print(outcome: AnyOutcome, overrides: Sequence[str]) -> None:
    with ignore_broken_pipe():
        print_record(outcome.record, Console())
        if not outcome.fresh:
            sentences = ["This run exists already."]
            if outcome.record.status == "diverged":
                sentences.append("It diverged; a lower optim.lr makes another run.")
            if outcome.record.codes != [code_fingerprint()]:
                sentences.append("It is of older code.")
            sentences.append("rerun=true runs it again.")
            if loggers := [typed for typed in overrides if LOGGERS.match(typed)]:
                sent = ["python", "scripts/evaluate.py", f"run={outcome.path.parent}", *loggers]
                sentences.append(f"To send it: {shlex.join(sent)}")
            print(printable(" ".join(sentences)))
        print(printable(str(outcome.path)))
