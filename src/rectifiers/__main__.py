"""Say what is at fault with the start of a network: `python -m rectifiers audit module:name`."""

import argparse
import inspect
import pkgutil
import sys
from typing import Any

from rectifiers.runtime.errors import InputError, first_line


def main() -> int:
    """Print the audit of the command line's model; return 1 if there are errors."""
    parser = argparse.ArgumentParser(prog="python -m rectifiers", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("audit", help="read a model's weights, and run it once")
    command.add_argument(
        "model",
        metavar="package.module:name",
        help="a function without arguments that returns the model, or (model, example)",
    )
    command.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="8,3,224,224",
        help="of a batch of standard normal numbers; once for each argument of the forward method",
    )
    command.add_argument("--strict", action="store_true", help="exit with 1 on warnings, too")
    options = parser.parse_args()
    try:
        shapes = tuple(map(_shape, options.shape))
        model, example = _model(options.model, shapes)
        # not above, where --help would wait for torch
        from rectifiers.initialization.audit import audit

        report = audit(model, example)
    except InputError as error:
        print(error, file=sys.stderr)
        return 1
    print(report.to_markdown())
    return int(bool(report.errors or (options.strict and report.warnings)))


def _shape(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in text.split(","))
    except ValueError:
        raise InputError(
            f"--shape={text}: not whole numbers; give them with commas, as 8,3,224,224"
        ) from None


def _model(name: str, shapes: tuple[tuple[int, ...], ...]) -> tuple[Any, Any]:
    """Return the model that a function makes, and the example."""
    if not all(name.partition(":")):
        raise InputError(f"{name}: names no function; give package.module:function")
    try:
        function = pkgutil.resolve_name(name)
        made = function()
    except Exception as error:
        raise InputError(
            f"{name}: no model ({type(error).__name__}: {first_line(error)}); give a function of "
            "a module that Python finds here, which takes no arguments"
        ) from error
    if inspect.isclass(made) or not isinstance(made, tuple):
        made = (made, None)
    if len(made) != 2 or (made[1] is None) == (not shapes):
        raise InputError(
            f"{name}: give --shape where it returns a model, and none where it returns a pair "
            "(model, example)"
        )
    if len(shapes) == 1:
        return made[0], shapes[0]
    return made[0], shapes or made[1]


if __name__ == "__main__":
    sys.exit(main())
