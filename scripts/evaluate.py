"""Test a finished run, an ensemble, or a file of weights, without training.

Settings (key=value):
  run           a run id, the beginning of one, or a run's folder; a list [<run>,<run>,...] for an
                ensemble; or the file of a state_dict, with the options that build its network
  evaluation    the test protocols, as for train.py: evaluation=[center,ten_view]
  trust         [<module>,...]: modules whose functions the run may use besides those of conf/
  data.download true: data may be downloaded to data.root=<folder>
  logger=wandb  also send the run to W&B; logger=tensorboard writes it for TensorBoard
  trainer, data.num_workers, data.size, threads, data.root, runs_dir, cache_dir: as for train.py

Examples:
  python scripts/evaluate.py run=00dc6def7c5e evaluation=dense_multi_scale
  python scripts/evaluate.py run=[00dc6def7c5e,c8754e788a5f] evaluation=ten_view
  python scripts/evaluate.py run=vgg19.pt model=vgg19 activation=relu data=imagenet

New results are added to the run's record. An ensemble gets a record of its own. The results of a
state_dict are only printed. Start several processes with torchrun.
"""

import sys
from collections.abc import Mapping, Sequence
from os.path import isfile
from pathlib import Path

from rich.console import Console

from rectifiers.cli.composition import Choices, composed, override
from rectifiers.cli.finished import of_run, split_trust
from rectifiers.cli.hints import check_arguments
from rectifiers.cli.train import AnyOutcome
from rectifiers.results.run_tables import errors_table, print_record
from rectifiers.runs.config import RunConfig
from rectifiers.runtime.console import cli_errors, ignore_broken_pipe, printable
from rectifiers.runtime.distributed import world
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.stopping import deferring_signals


def test(arguments: list[str]) -> None:
    """Do what the command line asks for, and print what comes out."""
    trust, arguments = split_trust(arguments)
    check_arguments(arguments)
    values = {key: value for key, _, value in (argument.partition("=") for argument in arguments)}
    names = [name.strip() for name in values.pop("run", "").strip("[]").split(",")]
    if not all(names):
        command = "scripts/evaluate.py run=<id or folder> evaluation=<option>"
        raise InputError(f"no run is given; call {command}")

    if len(names) == 1 and isfile(names[0]) and Path(names[0]).name != "record.json":
        return test_state_dict(Path(names[0]), values)
    outcome = test_runs([of_run(name, values, trust) for name in names])
    if world().rank == 0:
        with ignore_broken_pipe():
            print_record(outcome.record, Console())
            print(printable(str(outcome.path)))
    return None


def test_state_dict(path: Path, values: Mapping[str, str]) -> None:
    """Test the weights of a file in the network that `values`, the keys of train.py, build."""
    config = composed([override(key, value) for key, value in values.items()])
    from rectifiers.training.train import test_weights

    results = test_weights(config, path)
    if world().rank == 0:
        Console().print(errors_table(results))


def test_runs(runs: Sequence[tuple[RunConfig, Choices, list[str] | None]]) -> AnyOutcome:
    """Test a run, or the ensemble of several; `of_run` returns what is needed of each."""
    config = runs[0][0]
    if len(runs) > 1:
        from rectifiers.training.ensemble import ensemble

        return ensemble(runs, config.runs_dir)

    from rectifiers.training.train import publish, train

    outcome = train(*runs[0])
    if not outcome.fresh and config.logger and world().rank == 0:
        publish(config, outcome)
    return outcome


def main() -> None:
    if {"--help", "-h"} & set(sys.argv[1:]):
        print(__doc__.rstrip())
        return
    with (
        cli_errors("interrupted; nothing was recorded of the protocol that was being tested"),
        deferring_signals(),
    ):
        test(sys.argv[1:])


if __name__ == "__main__":
    main()
