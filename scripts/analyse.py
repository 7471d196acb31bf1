"""What the theory says, and what is measured beside it.

python scripts/analyse.py propagation [key=value ...]     variance of responses and gradients, layer
                                                          by layer
python scripts/analyse.py gain [key=value ...]            gains and stability of every activation,
                                                          yours too
python scripts/analyse.py phase [key=value ...]           ordered, critical and chaotic chains; He's
                                                          point among them
python scripts/analyse.py histograms [key=value ...]      activations and gradients along a training
python scripts/analyse.py responses run=<id> [runs_dir= trust=[<module>]]  means, active and dead
                                                                           units, slopes of a run
python scripts/analyse.py fisher [key=value ...]          Fisher information of a small network, for
                                                          several slopes
python scripts/analyse.py preprocessing [key=value ...]   mean image, components, reconstruction,
                                                          whitened images

Examples:
  python scripts/analyse.py propagation model=small30 init=xavier
  python scripts/analyse.py gain activation=mish beside=[relu,prelu]

Keys are those of train.py (model=small30 activation=prelu init=xavier data=digits seed=1), and each
analysis' own:
{own}

Numbers (JSON) and figures (SVG) go to results/analyses/<name>-<hash of what was asked>/, or below
out=<folder>. With --json the numbers are printed instead of a table.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rectifiers.analysis.settings import SETTINGS, split
from rectifiers.cli.composition import Choices, all_keys, compose_with_choices, resolve
from rectifiers.cli.finished import of_run
from rectifiers.cli.hints import check_arguments
from rectifiers.results.figures import write_svg
from rectifiers.runs.config import RunConfig
from rectifiers.runs.folder import run_folder
from rectifiers.runs.identity import run_id
from rectifiers.runs.record import TrainingRecord, load_training
from rectifiers.runs.trust import split_trust
from rectifiers.runtime.console import ignore_broken_pipe, wide_stdout
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import check_writable, write_text
from rectifiers.runtime.programs import cli_errors
from rectifiers.runtime.schema import keys
from rectifiers.runtime.signals import INTERRUPTED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS = Path(__file__).parents[1] / "results" / "analyses"
GROUPS = ("model", "activation", "init", "data", "preprocess")
DEFAULTS = {  # beside those of train.py
    "fisher": (  # 16-12-10 on digits of 4 x 4, 15 epochs
        "model=mlp",
        "model.depth=1",
        "model.hidden=12",
        "data.resize_px=4",
        "data.crop_px=4",
        "trainer.max_epochs=15",
        "optim.lr=0.05",
        "evaluation=center",
    ),
}


def configuration(arguments: list[str]) -> tuple[RunConfig, Choices]:
    """Return the configuration that train.py would have, and the options that were chosen."""
    check_arguments(arguments, all_keys)
    config, choices = compose_with_choices(arguments)
    return resolve(config), choices


def analyse(name: str, arguments: list[str]) -> tuple[dict[str, Any], Path]:
    """Make the analysis `name`; return its numbers and the folder that they belong into."""
    settings, rest = split(name, arguments)
    own = settings.model_dump(mode="json")
    out = [argument.partition("=")[2] for argument in rest if argument.startswith("out=")]
    rest = [argument for argument in rest if not argument.startswith("out=")]
    root = Path(out[-1]) if out else RESULTS
    check_writable("out", root)
    run = import_module(f"rectifiers.analysis.{name}").analyse
    if name == "responses":
        config, record, folder = finished_run(rest)
        numbers, asked = run(config, record, folder), {"run": record.run}
    else:
        given = {argument.partition("=")[0] for argument in rest}
        rest = [
            *(each for each in DEFAULTS.get(name, ()) if each.partition("=")[0] not in given),
            *rest,
        ]
        config, choices = configuration(rest)
        numbers = run(config, **own)
        asked = (
            {"activation": config.activation.as_dict()}
            if name in ("gain", "phase")
            else described(rest, choices)
        )
    return {"analysis": name, "asked": {**asked, **own}, **numbers}, root


def finished_run(arguments: list[str]) -> tuple[RunConfig, TrainingRecord, Path]:
    """Return (the configuration, the record, the folder) of the run that `run=` names."""
    trust, arguments = split_trust(arguments)
    given = dict(argument.partition("=")[::2] for argument in arguments)
    if not given.get("run"):
        raise InputError("no run is given; call scripts/analyse.py responses run=<id or folder>")
    config, *_ = of_run(given.pop("run"), given, trust)
    folder = run_folder(config)
    assert folder is not None  # of_run has found it
    return config, load_training(folder / "record.json"), folder


def described(arguments: list[str], choices: Choices) -> dict[str, Any]:
    """Return what the run's keys ask for, in words: each group's option with the keys that were
    changed in it."""
    groups: dict[str, Any] = {group: choices[group] for group in GROUPS}
    others = []
    for argument in arguments:
        group, _, key = argument.partition(".")
        if group in GROUPS and "=" in key:
            groups[group] += f" {key}"
        elif argument.partition("=")[0] not in GROUPS:
            others.append(argument)
    return {**groups, "others": sorted(others)}


def save(root: Path, numbers: dict[str, Any], figures: Mapping[str, "Figure"]) -> list[Path]:
    """Write numbers and figures to a folder named by what was asked, and return the paths."""
    name = f"{numbers['analysis']}-{run_id(numbers['asked'])}"
    folder = root / name
    paths = [folder / "numbers.json", *(folder / f"{figure}.svg" for figure in figures)]
    try:
        write_text(paths[0], json.dumps(numbers, indent=1, allow_nan=False) + "\n")
        for path, figure in zip(paths[1:], figures.values(), strict=True):
            write_svg(figure, path, name)
    except OSError as error:
        raise InputError(
            f"out={root} cannot be written ({error}); make room or give another"
        ) from error
    return paths


def own_keys() -> str:
    """Return the analyses' own keys, for the help."""
    lines = []
    for name, settings in SETTINGS.items():
        own = [
            f"{k}={json.dumps(f.default).replace(' ', '')} ({f.description})"
            for k, f in keys(settings).items()
        ]
        lines.append(f"  {name}: {'; '.join(own) or 'none'}")
    return "\n".join(lines)


def main() -> None:
    about = (__doc__ or "").replace("{own}", own_keys())
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", metavar="analysis", help="one of those above")
    parser.add_argument(
        "arguments",
        nargs="*",
        metavar="key=value",
        help="settings, as for train.py, and the analysis' own",
    )
    parser.add_argument("--json", action="store_true", help="print the numbers")
    options = parser.parse_intermixed_args()
    try:
        with cli_errors():
            numbers, root = analyse(options.name, options.arguments)
            from rectifiers.analysis import figures, tables

            drawn = getattr(figures, options.name)(numbers)
            numbers.pop("pictures", None)  # they are in the figures
            paths = save(root, numbers, drawn)
    except KeyboardInterrupt:
        print("interrupted; nothing was written", file=sys.stderr)
        sys.exit(INTERRUPTED)
    with ignore_broken_pipe():
        if options.json:
            print(json.dumps(numbers, indent=1))
            return
        wide_stdout().print(getattr(tables, options.name)(numbers), highlight=False)
        for path in paths:
            print(path)


if __name__ == "__main__":
    main()
