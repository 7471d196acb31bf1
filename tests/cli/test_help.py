"""What every program answers to --help: what it does, a sentence per option, and examples."""

import argparse
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from rectifiers.cli.help import text

from conftest import ROOT, load_script

PROGRAMS = (
    "analyse",
    "benchmark",
    "claims",
    "prepare_imagenet",
    "report",
    "sweep",
)  # with argparse


class Asked(Exception):
    """A program is about to read its command line."""


@pytest.fixture
def parser(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> argparse.ArgumentParser:
    """The parser of a program, which is stopped where it would use it."""

    def stop(self: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        raise Asked(self)

    for name in ("parse_args", "parse_intermixed_args"):
        monkeypatch.setattr(argparse.ArgumentParser, name, stop)
    monkeypatch.setattr(sys, "argv", [f"{request.param}.py"])
    with pytest.raises(Asked) as stopped:
        load_script(request.param).main()
    return stopped.value.args[0]


def commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            said = {choice.dest: choice.help for choice in action._choices_actions}
            for name, command in action.choices.items():
                assert said.get(name), f"{name} is listed without a sentence"
                yield name, command


@pytest.mark.parametrize("parser", PROGRAMS, indirect=True)
def test_every_command_says_what_it_does_and_every_argument_what_it_means(
    parser: argparse.ArgumentParser,
) -> None:
    for name, command in [("", parser), *commands(parser)]:
        assert command.description, name
        arguments = [
            each for each in command._actions if not isinstance(each, argparse._SubParsersAction)
        ]
        silent = [
            each.option_strings or each.metavar or each.dest for each in arguments if not each.help
        ]
        assert silent == [], name


@pytest.mark.parametrize("program", ["evaluate", *PROGRAMS])
def test_every_program_gives_two_examples_that_name_it(program: str) -> None:
    said = load_script(program).__doc__ or ""
    assert len(re.findall(rf"^ *python scripts/{program}\.py \w", said, re.MULTILINE)) >= 2


def test_train_gives_examples_too() -> None:
    assert text([]).partition("Examples:")[2].count("activation=") >= 2


@pytest.mark.process
def test_evaluate_answers_help(call) -> None:
    done = call("scripts/evaluate.py", "--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Test what is trained by other protocols")
    assert str(ROOT) not in done.stdout
