"""Many runs as one: planned, started as far as they are missing, tabulated at any moment.

Examples:
  python scripts/sweep.py plan sweeps/slopes experiment=table2/relu,table2/prelu seed=0,1 \
      data=digits
  python scripts/sweep.py launch sweeps/slopes
  python scripts/sweep.py status sweeps/slopes
  python scripts/sweep.py collect sweeps/slopes

A sweep whose functions conf/ does not name is launched with `trust=[<module>,...]`.
"""

import argparse
import sys
from pathlib import Path
from shlex import quote

from rectifiers.cli.composition import all_keys
from rectifiers.cli.hints import check_arguments
from rectifiers.cli.launcher import hand_over, launch, launch_together, run, run_missing
from rectifiers.cli.sweep import load, plan, print_means, print_status
from rectifiers.runs.trust import split_trust
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.programs import cli_errors
from rectifiers.runtime.signals import INTERRUPTED


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(
        dest="command", required=True, title="commands", metavar="command"
    )

    def command(name: str, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        made.add_argument("sweep", type=Path, help="the sweep's folder")
        return made

    command("plan", "make a sweep").add_argument(
        "overrides", nargs="+", help="as for train.py --multirun"
    )
    launching = command("launch", "start what is missing, the cheapest first")
    launching.add_argument(
        "--jobs",
        type=int,
        help="processes at a time on this machine (default: one per free core; 1 with a GPU)",
    )
    launching.add_argument(
        "--together",
        action="store_true",
        help="many runs per process, for those that are shorter than its start",
    )
    launching.add_argument(
        "--print", action="store_true", help="only print the commands, for any other scheduler"
    )
    launching.add_argument(
        "--cluster", choices=("slurm", "local"), help="hand the runs to submitit"
    )
    launching.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="submitit's, such as slurm_partition='\"gpu\"'",
    )
    for name, text in (
        ("status", "the state of each run"),
        ("collect", "means over seeds of the runs that are done"),
    ):
        command(name, text).add_argument("--json", action="store_true", help="print JSON")
    running = command("run", "train one job, or all that are missing, one after the other")
    running.add_argument("job", nargs="?", help="its name (default: all jobs that are missing)")
    return parser.parse_args(arguments)


def main() -> None:
    runs_code = sys.argv[1:2] in (["launch"], ["run"])
    trust, arguments = split_trust(sys.argv[1:]) if runs_code else ((), sys.argv[1:])
    args = parse(arguments)
    try:
        with cli_errors():
            if args.command == "plan":
                check_arguments(args.overrides, all_keys)
                count = plan(args.sweep, [args.overrides])
                command = f"python scripts/sweep.py launch {quote(str(args.sweep))}"
                print(f"{count} runs in {args.sweep}; start them with: {command}")
            elif args.command == "launch":
                if args.jobs is not None and args.jobs < 1:
                    raise InputError(
                        f"--jobs={args.jobs} is not usable; give a whole number at least 1"
                    )
                if args.print or args.cluster:
                    hand_over(
                        args.sweep, "printed" if args.print else args.cluster, args.set, trust
                    )
                else:
                    (launch_together if args.together else launch)(args.sweep, args.jobs, trust)
            elif args.command == "run":
                run(args.sweep, args.job, trust) if args.job else run_missing(args.sweep, trust)
            else:
                (print_status if args.command == "status" else print_means)(
                    load(args.sweep), args.json
                )
    except KeyboardInterrupt:  # a second one
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
