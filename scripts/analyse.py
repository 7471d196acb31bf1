"""What the theory says, and what is measured beside it.

python scripts/analyse.py propagation [key=value ...]     variance of responses and gradients, layer by layer
python scripts/analyse.py gain [key=value ...]            gains and stability of every activation, yours too
python scripts/analyse.py histograms [key=value ...]      activations and gradients along a training
python scripts/analyse.py responses run=<id> [runs_dir=]  means, active and dead units, slopes of a finished run
python scripts/analyse.py fisher [key=value ...]          Fisher information of a small network, for several slopes
python scripts/analyse.py preprocessing [key=value ...]   mean image, components, reconstruction, whitened images

Keys are those of train.py (model=small30 activation=prelu init=xavier data=digits seed=1), and each analysis' own:
{own}
Numbers (JSON) and figures (SVG) go to results/analyses/<name>-<hash of what was asked>/, or below out=<folder>. With
--json the numbers are printed instead of a table.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from rectifiers.analysis.settings import SETTINGS, split
from rectifiers.cli.composition import composed, of_run
from rectifiers.cli.train import hints, unusable_choice
from rectifiers.runs import record as records
from rectifiers.runs.config import check, options
from rectifiers.runs.lookup import run_folder
from rectifiers.runtime.console import progress_bar
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.paths import CONF
from rectifiers.runtime.schema import keys
from rectifiers.runtime.signals import INTERRUPTED

RESULTS = Path(__file__).parents[1] / "results" / "analyses"
WIDE = 160  # characters, where no terminal says how many it has
GROUPS = ("model", "activation", "init", "data", "preprocess")


def configuration(arguments: list[str]) -> dict[str, Any]:
    """Return the configuration that train.py would have."""
    unusable = unusable_choice(arguments)
    if unusable:
        raise InputError(unusable)
    for argument in arguments:
        if "=" not in argument or argument[0] in "+~":
            raise InputError(f"{argument} is not usable; write key=value")
    try:
        config = composed(arguments)
    except InputError as fault:
        raise InputError(next(iter(hints(arguments)), str(fault))) from fault
    check(config)
    return config


def chosen(arguments: list[str], group: str, default: str) -> str:
    """Return the option of `group` by its name, with the keys that were changed."""
    given = dict(argument.partition("=")[::2] for argument in arguments)
    own = [f"{key.partition('.')[2]}={value}" for key, value in given.items() if key.startswith(f"{group}.")]
    return " ".join([given.get(group, default), *own])


def analyse(name: str, arguments: list[str]) -> tuple[dict[str, Any], Path]:
    """Do what is asked; return its numbers and where they belong."""
    settings, rest = split(name, arguments)
    own = settings.model_dump(mode="json")
    out = [argument.partition("=")[2] for argument in rest if argument.startswith("out=")]
    rest = [argument for argument in rest if not argument.startswith("out=")]
    numbers, asked = ANALYSES[name](own, rest)
    return {"analysis": name, "asked": {**asked, **own}, **numbers}, Path(out[-1]) if out else RESULTS


def described(rest: list[str]) -> dict[str, Any]:
    """What was asked of the run's keys, in words."""
    from omegaconf import OmegaConf

    defaults = {
        key: value
        for entry in OmegaConf.load(CONF / "train.yaml").defaults
        if not isinstance(entry, str)
        for key, value in entry.items()
    }
    groups = {group: chosen(rest, group, defaults[group]) for group in GROUPS}
    others = [argument for argument in rest if argument.partition("=")[0].partition(".")[0] not in GROUPS]
    return {**groups, "others": sorted(others)}


def propagation(own: dict[str, Any], rest: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    from rectifiers.analysis.propagation import propagate
    from rectifiers.analysis.setup import AnalysisSetup

    subject = AnalysisSetup(configuration(rest))
    with progress_bar("networks", own["seeds"]) as tell:
        return propagate(subject, **own, tell=tell), described(rest)


def gain(own: dict[str, Any], rest: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    from rectifiers.analysis.gain import gains
    from rectifiers.training.assembly import configured

    config = configuration(rest)
    known = {
        name: yaml.safe_load((CONF / "activation" / f"{name}.yaml").read_text())
        for name in options("activation").split(", ")
    }
    if config["activation"] not in known.values():
        target = config["activation"]["_target_"].rpartition(".")[2]
        known[f"{target} (yours)"] = config["activation"]
    factories = {name: configured("activation", settings) for name, settings in known.items()}
    with progress_bar("networks", own["seeds"] * len(factories)) as tell:
        return gains(factories, **own, tell=tell), {"activation": config["activation"]}


def responses(own: dict[str, Any], rest: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    from rectifiers.analysis.responses import responses as asked_of

    given = dict(argument.partition("=")[::2] for argument in rest)
    if not given.get("run"):
        raise InputError("no run is given; call scripts/analyse.py responses run=<id or folder>")
    config, _ = of_run(given.pop("run"), given)
    folder = run_folder(config)
    assert folder is not None  # it has been found
    record = records.load(folder / "record.json")
    return asked_of(config, record, folder), {"run": record["run"]}


def histograms(own: dict[str, Any], rest: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    from rectifiers.analysis.histograms import histograms as drawn
    from rectifiers.analysis.setup import AnalysisSetup

    config = configuration(rest)
    steps = config["optim"]["epochs"] * AnalysisSetup(config).steps_an_epoch
    return drawn(config, steps, **own), described(rest)


TWO_LAYERS = (  # 16-12-10 on digits of 4 x 4, 15 epochs
    "model=mlp", "model.depth=1", "model.hidden=12", "data.resize_px=4", "data.crop_px=4", "optim.epochs=15",
    "optim.lr=0.05", "evaluation=center",
)  # fmt: skip


def fisher(own: dict[str, Any], rest: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    from rectifiers.analysis.slopes import arms
    from rectifiers.analysis.slopes import fisher as measured

    given = {argument.partition("=")[0] for argument in rest}
    rest = [*(own_default for own_default in TWO_LAYERS if own_default.partition("=")[0] not in given), *rest]
    config = configuration(rest)
    done = iter(range(1, 1 + (count := own["seeds"] * len(arms(own["slopes"])))))

    def tell(_: int) -> None:  # no bar: a training has one of its own
        print(f"network {next(done)} of {count}", file=sys.stderr, flush=True)

    return measured(config, **own, tell=tell), described(rest)


def preprocessing(own: dict[str, Any], rest: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    from rectifiers.analysis.components import preprocessing as made
    from rectifiers.analysis.setup import AnalysisSetup

    return made(AnalysisSetup(configuration(rest)), **own), described(rest)


ANALYSES: dict[str, Callable[[dict[str, Any], list[str]], tuple[dict[str, Any], dict[str, Any]]]] = {
    "propagation": propagation,
    "gain": gain,
    "responses": responses,
    "histograms": histograms,
    "fisher": fisher,
    "preprocessing": preprocessing,
}


def explained() -> str:
    """The analyses' own keys, for the help."""
    lines = []
    for name, settings in SETTINGS.items():
        own = [f"{k}={json.dumps(f.default).replace(' ', '')} ({f.description})" for k, f in keys(settings).items()]
        lines.append(f"  {name}: {'; '.join(own) or 'none'}")
    return "\n".join(lines)


def main() -> None:
    told = (__doc__ or "").replace("{own}", explained())
    parser = argparse.ArgumentParser(description=told, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", metavar="analysis")
    parser.add_argument("arguments", nargs="*", metavar="key=value")
    parser.add_argument("--json", action="store_true", help="print the numbers")
    asked = parser.parse_intermixed_args()
    try:
        numbers, root = analyse(asked.name, asked.arguments)
        from rectifiers.analysis import figures, tables
        from rectifiers.analysis.output import keep

        drawn = getattr(figures, asked.name)(numbers)
        numbers.pop("pictures", None)  # they are in the figures
        paths = keep(root, numbers, drawn if isinstance(drawn, dict) else {asked.name: drawn})
    except InputError as fault:
        sys.exit(f"error: {fault}")
    except KeyboardInterrupt:
        print("interrupted; nothing was written", file=sys.stderr)
        sys.exit(INTERRUPTED)
    if asked.json:
        print(json.dumps(numbers, indent=1))
        return
    console = Console(width=None if sys.stdout.isatty() else WIDE)
    console.print(getattr(tables, asked.name)(numbers), highlight=False)
    for path in paths:
        print(path)


if __name__ == "__main__":
    main()
