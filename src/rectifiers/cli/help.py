"""What `--help` prints: the choices of every group, and all settings as the command line has them.

Hydra's own takes four times as long (it copies its search path for every group, and again for its
own groups)."""

import textwrap
from typing import Any

import yaml
from omegaconf import OmegaConf

from rectifiers.cli.composition import compose_with_choices, parse_overrides
from rectifiers.runs.config import RunConfig, Target
from rectifiers.runtime.distributed import launch_command
from rectifiers.runtime.files import CONF
from rectifiers.runtime.schema import Section, expected, keys, subsection

WIDTH, COLUMN = 120, 40  # characters of a line, and where the meanings begin
HELP, SWEEP = {"--help", "-h"}, {"--multirun", "-m"}
HEAD = (
    "Train a network with a chosen activation and initialiser, test it, and keep a record "
    "of the run."
)
EXAMPLES = """\
Examples:
  {program} activation=prelu init=he
  {program} activation=gelu init=xavier model.norm=batch trainer.max_epochs=10
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
        overrides = [
            each.input_line or ""
            for each in parse_overrides(overrides)
            if not each.is_sweep_override()
        ]
    settings = OmegaConf.to_container(compose_with_choices(overrides)[0])
    folders = [
        path.parent.relative_to(CONF) for path in CONF.rglob("*.yaml") if path.parent != CONF
    ]
    choices = "\n".join(
        f"{folder}: {', '.join(_names(folder.as_posix()))}" for folder in sorted(set(folders))
    )
    return "\n\n".join(
        [
            HEAD,
            f"Choices (group=option):\n\n{choices}",
            "Settings (key=value), with their present values:\n\n"
            + "\n".join(_lines(settings, RunConfig)),
            EXAMPLES.format(program=launch_command(nodes=1, devices=1, arguments=[])),
        ]
    )


def _lines(settings: Any, section: type[Section], indent: str = "") -> list[str]:
    """The settings as YAML, each with its meaning and what it takes."""
    lines, known = [], keys(section)
    for key, value in settings.items():
        field = known.get(key)
        inside = subsection(field) if field else None
        if isinstance(value, dict) and (inside or field is None):
            lines += [f"{indent}{key}:", *_lines(value, inside or Target, f"{indent}  ")]
        elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
            lines += [f"{indent}{key}:", *(f"{indent}- {_flow(item)}" for item in value)]
        else:
            meaning = (
                f"# {field.description} [{expected(field)}]" if field and not field.alias else ""
            )
            lines += _beside(f"{indent}{key}: {_flow(value)}", meaning)
    return lines


def _beside(setting: str, meaning: str) -> list[str]:
    """A setting, and its meaning in a column beside it, or below where there is no room."""
    meanings = textwrap.wrap(meaning, WIDTH - COLUMN, subsequent_indent="# ") or [""]
    first = [] if len(setting) < COLUMN else [setting]
    column = ["" if first else setting, *[""] * len(meanings)]
    return first + [
        f"{left:{COLUMN}}{right}".rstrip() for left, right in zip(column, meanings, strict=False)
    ]


def _flow(value: Any) -> str:
    return (
        yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6)
        .removesuffix("...\n")
        .rstrip()
    )


def _names(folder: str) -> list[str]:
    return sorted(path.stem for path in (CONF / folder).glob("*.yaml"))
