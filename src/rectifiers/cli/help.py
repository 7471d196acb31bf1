"""What `--help` prints: the choices of every group, and all settings as the command line has them.

Hydra's own takes four times as long (it copies its search path for every group, and again for its own groups).
"""

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from rectifiers.cli.composition import composed
from rectifiers.runtime.distributed import launch_command
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.paths import CONF

HELP, SWEEP = {"--help", "-h"}, {"--multirun", "-m"}
HEAD = "Train a network with a chosen activation and initialiser, test it, and keep a record of the run."
EXAMPLES = """\
Examples:
  {program} activation=prelu init=he
  {program} activation=gelu init=xavier model.norm=batch optim.epochs=10
  {program} --multirun activation=relu,prelu,prelu_shared seed=0,1,2
  {program} --cfg job activation=maxout        # show the configuration, run nothing
  {program} --hydra-help                       # Hydra's own flags"""


def wanted(arguments: list[str]) -> bool:
    """Whether help is asked for, and nothing of Hydra's that has an answer of its own."""
    flags = {argument for argument in arguments if argument.startswith("-")}
    return bool(flags & HELP) and flags <= HELP | SWEEP


def text(arguments: list[str]) -> str:
    """Return the help for a command line.

    Raises:
        InputError: where an override cannot be composed.
    """
    overrides = [argument for argument in arguments if not argument.startswith("-")]
    if SWEEP & set(arguments):  # what differs from run to run has no one value to show
        try:
            parsed = OverridesParser.create().parse_overrides(overrides)
        except HydraException as fault:
            raise InputError(" ".join(str(fault).split())) from fault
        overrides = [each.input_line or "" for each in parsed if not each.is_sweep_override()]
    settings = composed(overrides, resolve=False)
    folders = [path.parent.relative_to(CONF) for path in CONF.rglob("*.yaml") if path.parent != CONF]
    choices = "\n".join(f"{folder}: {', '.join(_names(folder.as_posix()))}" for folder in sorted(set(folders)))
    return "\n\n".join(
        [
            HEAD,
            f"Choices (group=option):\n\n{choices}",
            f"Settings (key=value), with their present values:\n\n{yaml.safe_dump(settings, sort_keys=False).rstrip()}",
            EXAMPLES.format(program=launch_command(nodes=1, devices=1, arguments=[])),
        ]
    )


def _names(folder: str) -> list[str]:
    return sorted(path.stem for path in (CONF / folder).glob("*.yaml"))
