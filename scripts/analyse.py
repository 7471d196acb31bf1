"""Compare the paper's theory with measurements.

propagation    variance of responses and gradients, layer by layer
histograms     activations and gradients during a training
preprocessing  mean image, principal components, reconstructed and whitened images

Examples:
  python scripts/analyse.py propagation model=small30 init=xavier
  python scripts/analyse.py histograms model=mlp activation=tanh

All analyses take the keys of train.py, such as model=small30 data=digits seed=1. Their own keys are
{keys}

The numbers (JSON) and a figure (SVG) are written to results/analyses/<name>-<hash>/, or to
out=<folder>/<name>-<hash>/. With --json the numbers are printed in place of a table.
"""

import argparse
import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from rectifiers.analysis import SETTINGS, split
from rectifiers.cli.composition import compose_with_choices, resolve
from rectifiers.cli.hints import check_arguments
from rectifiers.results.documents import write_svg
from rectifiers.runs.identity import run_id
from rectifiers.runtime.console import cli_errors, ignore_broken_pipe, wide_stdout
from rectifiers.runtime.files import check_writable, write_text
from rectifiers.runtime.schema import JsonObject, keys

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS = Path(__file__).parents[1] / "results" / "analyses"
GROUPS = ("model", "activation", "init", "data", "preprocess")


def analyse(name: str, arguments: list[str]) -> tuple[JsonObject, Path]:
    """Make the analysis `name`; return its numbers and the folder that they belong into."""
    section, arguments = split(name, arguments)
    settings = section.model_dump(mode="json")
    out = [argument for argument in arguments if argument.startswith("out=")]
    root = Path(out[-1].removeprefix("out=")) if out else RESULTS
    check_writable("out", root)
    overrides = [argument for argument in arguments if argument not in out]
    check_arguments(overrides)

    composed, choices = compose_with_choices(overrides)
    config = resolve(composed)
    request = {group: choices.get(group) for group in GROUPS} | {"overrides": sorted(overrides)}
    numbers = import_module(f"rectifiers.analysis.{name}").analyse(config, **settings)
    return {"analysis": name, "request": {**request, **settings}, **numbers}, root


def save(root: Path, numbers: JsonObject, figure: "Figure") -> list[Path]:
    """Write numbers and figure to a folder named by its request, and return the paths."""
    name = f"{numbers['analysis']}-{run_id(numbers['request'])}"
    paths = [root / name / "numbers.json", root / name / f"{numbers['analysis']}.svg"]
    write_text(paths[0], json.dumps(numbers, indent=1, allow_nan=False) + "\n")
    write_svg(figure, paths[1], name)
    return paths


def help_of_keys() -> str:
    """Return the keys of every analysis, for the help."""
    lines = []
    for name, section in SETTINGS.items():
        for key, field in keys(section).items():
            default = json.dumps(field.default).replace(" ", "")
            lines.append(f"  {name}: {key}={default} ({field.description})")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").replace("{keys}", help_of_keys()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="analysis", help="one of the analyses above")
    parser.add_argument(
        "arguments", nargs="*", metavar="key=value", help="keys of train.py and of the analysis"
    )
    parser.add_argument("--json", action="store_true", help="print the numbers")
    options = parser.parse_intermixed_args()

    with cli_errors("interrupted; nothing was written"):
        numbers, root = analyse(options.name, options.arguments)
        module = import_module(f"rectifiers.analysis.{options.name}")
        figure = module.plot(numbers)
        numbers.pop("pictures", None)  # they are in the figure
        paths = save(root, numbers, figure)

    with ignore_broken_pipe():
        if options.json:
            print(json.dumps(numbers, indent=1))
            return
        console = wide_stdout()
        for part in module.report(numbers):
            console.print(part, highlight=False, markup=False)
        for path in paths:
            print(path)


if __name__ == "__main__":
    main()
