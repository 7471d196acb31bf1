"""Between the command line and the run: Hydra's configuration in, a record and one clear sentence out."""

import difflib
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import CompactHydraException
from hydra.types import RunMode
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from rich.console import Console

from rectifiers.cli.help import text, wanted
from rectifiers.results.console import print_record
from rectifiers.runs.config import options, protocols
from rectifiers.runs.lookup import finished, prepare
from rectifiers.runs.provenance import code_fingerprint
from rectifiers.runtime.distributed import resume_command, world
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.paths import CONF
from rectifiers.runtime.signals import INTERRUPTED, deferring_signals

_started = False


def main() -> None:
    """Do what the command line says: `python train.py ...` in a checkout, `rectifiers-train ...` anywhere.

    Nothing heavy is imported before the run starts, so `--help` and `--cfg job` answer at once.
    """
    with explain_refusal(sys.argv[1:]):
        if wanted(sys.argv[1:]):
            tell_help(sys.argv[1:])
        else:
            hydra.main(config_path=str(CONF), config_name="train", version_base="1.3")(launch)()


def launch(config: DictConfig) -> float:
    """Run a composed configuration, print its record, and return the error for a sweeper to minimise.

    Raises:
        CompactHydraException: with the sentence of an InputError, which Hydra prints without a traceback.
    """
    global _started
    _started = True
    choices = _choices(HydraConfig.get())
    sweeping = HydraConfig.get().mode == RunMode.MULTIRUN
    try:
        overrides = OmegaConf.to_container(HydraConfig.get().overrides.task, resolve=False)
        task = [str(override) for override in overrides]  # type: ignore[union-attr]
        for override in task:
            if override[0] in "+~":
                raise InputError(f"{override} adds or removes a key, which nothing here reads; write key=value")
        with deferring_signals():
            return (
                _launch_ensemble(config, choices, task) if "members" in config else _launch(config, choices, sweeping)
            )
    except InputError as fault:
        if sweeping:  # Hydra tells of a sweep's failures at its end; say it when it happens
            print(f"error: {fault}", file=sys.stderr)
            if world().size > 1 and not fault.on_all_ranks:
                sys.exit(1)  # the others are still in this run, or gone; none may go on to the next one alone
        raise CompactHydraException(f"error: {fault}") from fault
    except Exception:
        if sweeping and world().size > 1:
            traceback.print_exc()
            sys.exit(1)
        raise


def _choices(hydra: Any) -> dict[str, Any]:
    return {group: option for group, option in hydra.runtime.choices.items() if "hydra" not in group}


def _plain(config: DictConfig) -> dict[str, Any]:
    from omegaconf.errors import OmegaConfBaseException

    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as fault:
        raise InputError(f"the configuration cannot be resolved: {fault}") from fault
    assert isinstance(plain, dict)
    return plain  # type: ignore[return-value]


def _launch_ensemble(config: DictConfig, choices: dict, task: list[str]) -> float:
    """Run every member with the same overrides, as far as it is not there yet, and average their scores."""
    from hydra import compose

    names = ",".join(protocols(_plain(config)))
    own = ("experiment", "evaluation", "members")
    shared = [override for override in task if override.partition("=")[0] not in own]
    members = []
    if not isinstance(config.members, ListConfig):
        raise InputError(f"members={config.members} is not usable; give experiments: [table6/a_relu,table6/a_prelu]")
    for member in config.members:
        if member not in options("experiment").split(", "):
            raise InputError(f"members names {member}, which is no experiment; give some of: {options('experiment')}")
        overrides = [*shared, f"experiment={member}", f"evaluation=[{names}]"]
        composed = compose("train", overrides, return_hydra_config=True)
        chosen = _choices(composed.hydra)
        with open_dict(composed):
            del composed["hydra"]
        members.append((_plain(composed), chosen))
    from rectifiers.training.ensemble import ensemble

    outcome = ensemble(members, Path(config.runs_dir), choices["experiment"])
    if world().rank == 0:
        print_record(outcome.record, Console())
        print(outcome.path)
    return min(result["top1_error_pct"] for result in outcome.record["protocols"].values())


def _launch(config: DictConfig, choices: dict, sweeping: bool) -> float:
    plain = _plain(config)
    prepare(plain)
    # Several processes ask rank 0 whether the run is there, so that none goes on alone.
    found = finished(plain) if world().size == 1 else None
    if found:
        record, path, fresh, note = *found, False, None
    else:
        # Before torch starts its threads: they wait asleep and not spinning. Beside one other busy process a run on
        # two cores took 2.5 times as long with the default (47 s against 19 s; alone 18 s), and many times beside two.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        from rectifiers.training.run import train

        outcome = train(plain, choices)
        record, path, fresh = outcome.record, outcome.path, outcome.fresh
        note = outcome.note
    if world().rank == 0:
        note = note if fresh else _tell_sweep(plain, record, path)
        _tell(record, path, fresh)
        if note:
            print(note, file=sys.stderr)
    if record["status"] == "diverged":
        if not sweeping:
            sys.exit(1)
        return float("inf")
    results = record["protocols"]
    return min((result["top1_error_pct"] for result in results.values()), default=float("inf"))


def _tell_sweep(config: dict[str, Any], record: dict[str, Any], path: Path) -> str | None:
    """Tell a W&B sweep of a run that was there already: its agent waits for the numbers all the same."""
    if "WANDB_SWEEP_ID" not in os.environ or config["logger"]["name"] != "wandb":
        return None
    from rectifiers.tracking.mirror import publish

    return publish(record, path.parent, config["logger"])


def _tell(record: dict[str, Any], path: Path, fresh: bool) -> None:
    print_record(record, Console())
    if not fresh:
        older = "" if record["codes"] == [code_fingerprint()] else " It is of older code."
        print(f"This run exists already.{older} rerun=true runs it again.")
    print(path)


def tell_help(arguments: list[str]) -> None:
    """Print the help, with the settings that the overrides make."""
    try:
        print(text(arguments))
    except InputError as fault:
        print(f"error: {fault}", file=sys.stderr)
        sys.exit(1)


@contextmanager
def explain_refusal(arguments: list[str]) -> Iterator[None]:
    """Where Hydra refuses the command line, add what could have been meant: it names neither keys nor near misses."""
    unusable = unusable_choice(arguments)
    if unusable:
        print(f"error: {unusable}", file=sys.stderr)
        sys.exit(1)
    try:
        yield
    except KeyboardInterrupt:  # outside of a run, or a second one
        if world().rank == 0:
            print(f"interrupted; what has a checkpoint goes on from it with: {resume_command()}", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except SystemExit as refusal:
        if refusal.code not in (0, None) and not _started and not os.environ.get("HYDRA_FULL_ERROR"):
            for hint in hints(arguments):
                print(hint, file=sys.stderr)
        raise


def unusable_choice(arguments: list[str]) -> str | None:
    """Return what is wrong with a group's choice that is no name, such as null: Hydra answers it with a traceback."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import ChoiceSweep, QuotedString
    from hydra.errors import HydraException

    groups = {path.name for path in CONF.iterdir() if path.is_dir() and path.name != "hydra"}
    for argument in arguments:
        group, _, text = argument.partition("=")
        if group not in groups:
            continue
        try:
            given = OverridesParser.create().parse_override(argument).value()
        except HydraException:  # Hydra itself says what is wrong with the grammar
            continue
        choices = given.list if isinstance(given, ChoiceSweep) else [given]
        names = [name for choice in choices for name in (choice if isinstance(choice, list) else [choice])]
        if not all((isinstance(name, str) and name) or isinstance(name, QuotedString) for name in names):
            return f"{group}={text} is not usable; leave it out, or give {group}=<option> of: {options(group)}"
    return None


def hints(arguments: list[str]) -> list[str]:
    """Return a sentence for every override whose key the configuration does not have."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    pairs = [a.partition("=")[::2] for a in arguments if "=" in a and a[0] not in "-+~"]
    groups = sorted(path.name for path in CONF.iterdir() if path.is_dir() and path.name != "hydra")
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        chosen = [f"{key}={value}" for key, value in pairs if (CONF / key / f"{value}.yaml").is_file()]
        config = OmegaConf.to_container(compose("train", overrides=chosen))
    found = []
    for key, _ in pairs:
        node: Any = config
        path = ""
        for part in key.split("."):
            if part == "hydra" or "/" in part or not isinstance(node, dict):
                break
            if not path and part in groups and part not in node:
                break  # Hydra itself lists a group's options
            if part not in node:
                known = sorted(set(map(str, node)) | (set(groups) if not path else set()))
                near = difflib.get_close_matches(part, known, n=1)
                meant = f"did you mean {path}{near[0]}? " if near else ""
                where = f"of {path[:-1]}" if path else "here"
                found.append(f"{key} is not known; {meant}The keys {where} are: {', '.join(known)}")
                break
            path += f"{part}."
            node = node[part]
    return found
