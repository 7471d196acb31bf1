"""Between the command line and the run: Hydra's configuration in, a record and one clear sentence out."""

import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, QuotedString
from hydra.errors import CompactHydraException, HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from rectifiers.cli.composition import Choices, choices_of, compose_with_choices, resolve
from rectifiers.cli.help import text, wanted
from rectifiers.results.console import print_record
from rectifiers.runs.config import RunConfig, options
from rectifiers.runs.folder import Outcome, find, settle
from rectifiers.runs.provenance import code_fingerprint
from rectifiers.runs.record import EnsembleRecord, TrainingRecord
from rectifiers.runtime.distributed import World, end_with_launcher, resume_command, world
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import CONF
from rectifiers.runtime.schema import unknown_key
from rectifiers.runtime.signals import INTERRUPTED, deferring_signals

GROUP_FOLDERS = {path.name for path in CONF.iterdir() if path.is_dir() and path.name != "hydra"}
_started = False
AnyOutcome = Outcome[TrainingRecord] | Outcome[EnsembleRecord]


def main() -> None:
    """Do what the command line says: `python train.py ...` in a checkout, `rectifiers-train ...` anywhere.

    Nothing heavy is imported before the run starts, so `--help` and `--cfg job` answer at once.
    """
    end_with_launcher()
    with explain_refusal(sys.argv[1:]):
        if wanted(sys.argv[1:]):
            print(text(sys.argv[1:]))
        else:
            hydra.main(config_path=str(CONF), config_name="train", version_base="1.3")(launch)()


def launch(config: DictConfig) -> float:
    """Run a composed configuration, print its record, and return the error for a sweeper to minimise.

    Raises:
        CompactHydraException: with the sentence of an InputError, which Hydra prints without a traceback.
    """
    global _started
    _started = True
    hydra_config, here = HydraConfig.get(), world()
    sweeping = hydra_config.mode == RunMode.MULTIRUN
    overrides = [str(each) for each in OmegaConf.to_container(hydra_config.overrides.task, resolve=False) or ()]
    try:
        for override in overrides:
            if override[0] in "+~":
                raise InputError(f"{override} adds or removes a key, which nothing here reads; write key=value")
        with deferring_signals():
            resolved, choices = resolve(config), choices_of(hydra_config)
            if resolved.members is not None:
                outcome: AnyOutcome = _run_ensemble(resolved, resolved.members, choices["experiment"], overrides)
            else:
                outcome = _run(resolved, choices, overrides, here)
            if here.rank == 0:
                _print(outcome)
    except InputError as error:
        if sweeping:  # Hydra reports a sweep's failures at its end only
            print(f"error: {error}", file=sys.stderr)
            if here.size > 1 and not error.on_all_ranks:
                sys.exit(1)  # the others are still in this run, or gone; none may go on to the next one alone
        raise CompactHydraException(f"error: {error}") from error
    except Exception:
        if sweeping and here.size > 1:
            traceback.print_exc()
            sys.exit(1)
        raise
    if outcome.record.status == "diverged" and not sweeping:
        sys.exit(1)
    errors = [result.top1_error_pct for result in outcome.record.protocols.values()]
    return min(errors, default=float("inf"))


def _run(config: RunConfig, choices: Choices, overrides: Sequence[str], here: World) -> Outcome[TrainingRecord]:
    """Return what there is of a run, or train it."""
    config = settle(config)
    # Several processes ask rank 0 whether the run is there, so that none goes on alone.
    found = find(config) if here.size == 1 else None
    if found is not None and found.is_complete:
        outcome = Outcome(found.record, found.path, fresh=False)
    else:
        # Before torch starts its threads: they wait asleep and not spinning. Beside one other busy process a run on
        # two cores took 2.5 times as long with the default (47 s against 19 s; alone 18 s), and many times beside two.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        from rectifiers.training.run import train

        outcome = train(config, choices, overrides)
    if not outcome.fresh and here.rank == 0 and "WANDB_SWEEP_ID" in os.environ and config.logger.name == "wandb":
        from rectifiers.tracking.mirror import publish

        # a W&B sweep's agent waits for the numbers of a run that was there already, all the same
        outcome = replace(outcome, note=publish(outcome.record, outcome.path.parent, config.logger))
    return outcome


def _run_ensemble(
    config: RunConfig, members: Sequence[str], experiment: str | None, overrides: Sequence[str]
) -> Outcome[EnsembleRecord]:
    """Run every member with the same overrides, as far as it is not there yet, and average their scores."""
    own = ("experiment", "evaluation", "members")
    shared = [override for override in overrides if override.partition("=")[0] not in own]
    tests = f"evaluation=[{','.join(config.evaluation.protocols)}]"
    runs = []
    for member in members:
        if member not in options("experiment").split(", "):
            raise InputError(f"members names {member}, which is no experiment; give some of: {options('experiment')}")
        typed = [*shared, f"experiment={member}", tests]
        composed, choices = compose_with_choices(typed)
        runs.append((resolve(composed), choices, typed))
    from rectifiers.training.ensemble import ensemble

    return ensemble(runs, config.runs_dir, experiment)


def _print(outcome: AnyOutcome) -> None:
    print_record(outcome.record, Console())
    if not outcome.fresh:
        older = "" if outcome.record.codes == [code_fingerprint()] else " It is of older code."
        print(f"This run exists already.{older} rerun=true runs it again.")
    print(outcome.path)
    if outcome.note:
        print(outcome.note, file=sys.stderr)


@contextmanager
def explain_refusal(arguments: list[str]) -> Iterator[None]:
    """Where Hydra refuses the command line, add what could have been meant: it names neither keys nor near misses."""
    try:
        refuse_unusable_choices(arguments)
        yield
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:  # outside of a run, or a second one
        if world().rank == 0:
            print(f"interrupted; what has a checkpoint goes on from it with: {resume_command()}", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except SystemExit as refusal:
        if refusal.code not in (0, None) and not _started and not os.environ.get("HYDRA_FULL_ERROR"):
            for hint in hints(arguments):
                print(hint, file=sys.stderr)
        raise


def refuse_unusable_choices(arguments: Iterable[str]) -> None:
    """Raise an InputError for a group's choice that is no name, such as null: Hydra answers it with a traceback."""
    for argument in arguments:
        group, _, text = argument.partition("=")
        if group not in GROUP_FOLDERS:
            continue
        try:
            given = OverridesParser.create().parse_override(argument).value()
        except HydraException:  # Hydra itself says what is wrong with the grammar
            continue
        choices = given.list if isinstance(given, ChoiceSweep) else [given]
        names = [name for choice in choices for name in (choice if isinstance(choice, list) else [choice])]
        if not all((isinstance(name, str) and name) or isinstance(name, QuotedString) for name in names):
            raise InputError(
                f"{group}={text} is not usable; leave it out, or give {group}=<option> of: {options(group)}"
            )


def hints(arguments: Iterable[str]) -> list[str]:
    """Return a sentence for every override whose key the configuration does not have."""
    pairs = [a.partition("=")[::2] for a in arguments if "=" in a and a[0] not in "-+~"]
    GlobalHydra.instance().clear()
    chosen = [f"{key}={value}" for key, value in pairs if (CONF / key / f"{value}.yaml").is_file()]
    config = OmegaConf.to_container(compose_with_choices(chosen)[0])
    found = []
    for key, _ in pairs:
        node: Any = config
        path = ""
        for part in key.split("."):
            if part == "hydra" or "/" in part or not isinstance(node, dict):
                break
            if not path and part in GROUP_FOLDERS and part not in node:
                break  # Hydra itself lists a group's options
            if part not in node:
                found.append(unknown_key(f"{path}{part}", {*map(str, node), *([] if path else GROUP_FOLDERS)}))
                break
            path += f"{part}."
            node = node[part]
    return found
