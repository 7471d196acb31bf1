"""The settings of each analysis beside the run's own: what they are, what they may be, and one sentence where not."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from rectifiers.runs.config import Number
from rectifiers.runtime.errors import InputError


@dataclass(frozen=True)
class Setting:
    """One key. `allowed` is a Number, a tuple of words, or a Number in a list for several of it."""

    default: Any
    allowed: Number | tuple[str, ...] | list[Number]
    meaning: str

    def fault(self, key: str, value: Any) -> str | None:
        """Return what is wrong with `value`, or None."""
        if isinstance(self.allowed, Number):
            return self.allowed.fault(value)
        if isinstance(self.allowed, tuple):
            return (
                None
                if value in self.allowed
                else f"{key}={value} is not known; choose one of: {', '.join(self.allowed)}"
            )
        if not isinstance(value, list) or not value:
            example = str(self.default).replace(" ", "")
            return f"{key}={value} is not usable; give a list such as {key}={example}"
        return next((fault for fault in map(self.allowed[0].fault, value) if fault), None)


def _count(key: str, default: int, meaning: str, most: int, least: int = 1) -> dict[str, Setting]:
    return {key: Setting(default, Number(key, int, least=least, most=most), meaning)}


SETTINGS: Mapping[str, Mapping[str, Setting]] = {
    "propagation": {
        **_count("seeds", 5, "networks, each with images of its own", 1000),
        **_count("images", 64, "a network", 100_000),
        "inputs": Setting("data", ("data", "gaussian"), "preprocessed training images, or N(0, 1)"),
    },
    "gain": {
        **_count("seeds", 5, "networks an activation", 1000),
        **_count("depth", 50, "layers", 1000, least=2),
        **_count("units", 256, "a layer", 4096, least=2),
        **_count("images", 64, "Gaussian inputs a network", 100_000),
    },
    "responses": {},
    "histograms": {
        **_count("snapshots", 5, "at logarithmically spaced steps, the first and the last included", 50, least=2),
    },
    "fisher": {
        **_count("seeds", 5, "runs an arm", 1000, least=2),
        **_count("images", 1000, "over which the information is taken", 100_000),
        "inputs": Setting("data", ("data", "gaussian"), "preprocessed training images, or N(0, 1), at the start alone"),
        "slopes": Setting(
            [0, 0.01, 0.1, 0.25, 0.5], [Number("slopes", float, least=-10, most=10)], "0: ReLU; fixed: LReLU, and PReLU"
        ),
        **_count("snapshots", 3, "along the training, its start and its end included; 1: the start alone", 50),
    },
    "preprocessing": {
        **_count("images", 16, "shown", 144),
        "components": Setting(
            [1, 4, 16, 64], [Number("components", int, least=1, most=4096)], "of which images are made again"
        ),
        **_count("shown", 40, "principal components as images", 400),
    },
}


def split(name: str, arguments: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Return (the settings of analysis `name` with `arguments` put in, the arguments that are the run's).

    Raises:
        InputError: for an analysis that is not known, or a value that cannot be used.
    """
    if name not in SETTINGS:
        raise InputError(f"{name} is no analysis; choose one of: {', '.join(SETTINGS)}")
    own = {key: setting.default for key, setting in SETTINGS[name].items()}
    rest = []
    for argument in arguments:
        key, _, text = argument.partition("=")
        if key not in own:
            rest.append(argument)
            continue
        try:
            own[key] = yaml.safe_load(text)
        except yaml.YAMLError:
            own[key] = text
        fault = SETTINGS[name][key].fault(key, own[key])
        if fault:
            raise InputError(fault)
    return own, rest
