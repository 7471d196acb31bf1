"""Analyses, a module each: what theory says of signals, and what is measured.

A module has `analyse(config, **settings)`, which returns numbers as plain JSON types; `report`,
which returns tables and lines for the terminal; and `plot`, which returns a figure. The settings
stand here because the help needs them without torch."""

from collections.abc import Mapping
from typing import Annotated, Literal

import yaml
from pydantic import Field

from rectifiers.runtime.errors import InputError
from rectifiers.runtime.ranges import Range
from rectifiers.runtime.schema import Section, checked, keys

Networks = Annotated[int, Range(ge=1, le=1000)]
Components = Annotated[int, Range(ge=1, le=4096)]


class Propagation(Section):
    seeds: Networks = Field(5, description="number of networks, each with its own images")
    inputs: Literal["data", "gaussian"] = Field(
        "data", description="data: preprocessed training images; gaussian: N(0, 1)"
    )


class Preprocessing(Section):
    components: tuple[Components, ...] = Field(
        (1, 4, 16, 64), min_length=1, description="numbers of components to rebuild images from"
    )


SETTINGS: Mapping[str, type[Section]] = {
    "propagation": Propagation,
    "histograms": Section,
    "preprocessing": Preprocessing,
}


def split(name: str, arguments: list[str]) -> tuple[Section, list[str]]:
    """Return (the settings of analysis `name` with `arguments` put in, the run's arguments)."""
    if name not in SETTINGS:
        raise InputError(f"{name} is no analysis; choose one of: {', '.join(SETTINGS)}")
    settings, rest = {}, []
    for argument in arguments:
        key, _, text = argument.partition("=")
        if key not in keys(SETTINGS[name]):
            rest.append(argument)
            continue
        try:
            settings[key] = yaml.safe_load(text)
        except yaml.YAMLError:
            settings[key] = text
    return checked(SETTINGS[name], settings), rest
