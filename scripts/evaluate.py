"""Test what is trained by other protocols, without training.

Settings (key=value):
  run           a run's name, the beginning of one, or its folder; [<run>,<run>,...]: their
                ensemble; or the file of a plain state_dict
  evaluation    the protocols: an option of train.py, with its keys
  trust         [<module>,...]: needed by a run whose functions conf/ does not name
  data.download true: data may be written to data.root=, which must be given then
  logger=wandb  sends all of the run to W&B that it lacks; likewise logger=tensorboard
  trainer=gpu, data.num_workers, threads, data.root, runs_dir, cache_dir: as for train.py; what the
                run is cannot be changed. Several processes are started by torchrun

Examples:
  python scripts/evaluate.py run=b7cc5f7113d3 evaluation=dense_multi_scale
  python scripts/evaluate.py run=[b7cc5f7113d3,c8754e788a5f] evaluation=ten_view
  python scripts/evaluate.py run=vgg19.pt model=vgg19 activation=relu data=imagenet

What a run lacks is tested from its last checkpoint and added to its record; an ensemble gets a
record of its own; the result of a plain state_dict is printed and not recorded.
"""

import sys
from dataclasses import replace
from os.path import isfile  # unlike Path.is_file: False of a name that is too long for a path
from pathlib import Path

from rich.console import Console

from rectifiers.cli.composition import all_keys, composed, override
from rectifiers.cli.finished import of_run
from rectifiers.cli.hints import check_arguments
from rectifiers.cli.train import AnyOutcome
from rectifiers.results.console import errors_table, print_record
from rectifiers.runs.trust import split_trust
from rectifiers.runtime.console import cli_errors, ignore_broken_pipe
from rectifiers.runtime.distributed import world
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.signals import INTERRUPTED, deferring_signals


def test(arguments: list[str]) -> None:
    """Do what the command line asks for, and print what comes out."""
    trust, arguments = split_trust(arguments)
    check_arguments(arguments, all_keys)
    values = {key: value for key, _, value in (argument.partition("=") for argument in arguments)}
    names = [name.strip() for name in values.pop("run", "").strip("[]").split(",")]
    if not all(names):
        command = "scripts/evaluate.py run=<id or folder> evaluation=<option>"
        raise InputError(f"no run is given; call {command}")
    if len(names) == 1 and isfile(names[0]) and Path(names[0]).name != "record.json":
        config = composed([override(key, value) for key, value in values.items()])
        from rectifiers.training.train import test_weights

        results = test_weights(config, Path(names[0]))
        if world().rank == 0:
            Console().print(errors_table(results))
        return
    runs = [of_run(name, values, trust) for name in names]
    if len(runs) == 1:
        from rectifiers.training.train import train

        outcome: AnyOutcome = train(*runs[0])
        if not outcome.fresh and runs[0][0].logger.targets() and world().rank == 0:
            from rectifiers.training.loggers import publish

            folder = outcome.path.parent
            outcome = replace(outcome, note=publish(runs[0][0], folder, outcome.record))
    else:
        from rectifiers.training.ensemble import ensemble

        outcome = ensemble(runs, runs[0][0].runs_dir)
    if world().rank == 0:
        with ignore_broken_pipe():
            print_record(outcome.record, Console())
            print(outcome.path)
        if outcome.note:
            print(outcome.note, file=sys.stderr)


def main() -> None:
    if {"--help", "-h"} & set(sys.argv[1:]):
        print(__doc__.rstrip())
        return
    try:
        with cli_errors(), deferring_signals():
            test(sys.argv[1:])
    except KeyboardInterrupt:  # a second one
        message = "interrupted; nothing was recorded of the protocol that was being tested"
        print(message, file=sys.stderr)
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
