"""The settings of each analysis beside the run's own."""

from collections.abc import Mapping
from typing import Annotated, Literal

import yaml
from pydantic import Field

from rectifiers.runtime.errors import InputError
from rectifiers.runtime.ranges import Range
from rectifiers.runtime.schema import Section, Words, checked, keys

Seeds = Annotated[int, Range(ge=1, le=1000)]
Images = Annotated[int, Range(ge=1, le=100_000)]
Inputs = Literal["data", "gaussian"]


class Propagation(Section):
    seeds: Seeds = Field(5, description="networks, each with images of its own")
    images: Images = Field(64, description="per network")
    inputs: Inputs = Field("data", description="preprocessed training images, or N(0, 1)")


class Gain(Section):
    seeds: Seeds = Field(5, description="networks per activation")
    depth: Annotated[int, Range(ge=2, le=1000)] = Field(50, description="layers")
    units: Annotated[int, Range(ge=2, le=4096)] = Field(256, description="per layer")
    images: Images = Field(64, description="Gaussian inputs per network")
    beside: Annotated[
        tuple[str, ...] | None, Words('a list of names such as ["relu", "prelu"]')
    ] = Field(
        None,
        description="what the chosen one is compared with, by name; null: everything of "
        "conf/activation",
    )


class Phase(Section):
    points: Annotated[int, Range(ge=2, le=400)] = Field(60, description="of each axis")
    bias_variance: Annotated[float, Range(gt=0, le=1000)] = Field(
        0.5, description="of biases, at the diagram's end"
    )


class Responses(Section):
    pass


class Histograms(Section):
    snapshots: Annotated[int, Range(ge=2, le=50)] = Field(
        5, description="at logarithmically spaced steps, the first and the last included"
    )


class Fisher(Section):
    seeds: Annotated[int, Range(ge=2, le=1000)] = Field(5, description="runs per arm")
    images: Images = Field(1000, description="over which the information is taken")
    inputs: Inputs = Field(
        "data", description="preprocessed training images, or N(0, 1), at the start alone"
    )
    slopes: Annotated[
        tuple[Annotated[float, Range(ge=-10, le=10)], ...],
        Words("a value such as [0, 0.01, 0.1, 0.25, 0.5]"),
    ] = Field(
        (0.0, 0.01, 0.1, 0.25, 0.5), min_length=1, description="0: ReLU; fixed: LReLU, and PReLU"
    )
    snapshots: Annotated[int, Range(ge=1, le=50)] = Field(
        3, description="along the training, its start and its end included; 1: the start alone"
    )


class Preprocessing(Section):
    images: Annotated[int, Range(ge=1, le=144)] = Field(16, description="shown")
    components: Annotated[
        tuple[Annotated[int, Range(ge=1, le=4096)], ...], Words("a value such as [1, 4, 16, 64]")
    ] = Field((1, 4, 16, 64), min_length=1, description="of which images are made again")
    shown: Annotated[int, Range(ge=1, le=400)] = Field(
        40, description="principal components as images"
    )


SETTINGS: Mapping[str, type[Section]] = {
    section.__name__.lower(): section
    for section in (Propagation, Gain, Phase, Responses, Histograms, Fisher, Preprocessing)
}


def split(name: str, arguments: list[str]) -> tuple[Section, list[str]]:
    """Return (the settings of analysis `name` with `arguments` put in, the arguments that are the
    run's).

    Raises:
        InputError: for an analysis that is not known, or a value that cannot be used.
    """
    if name not in SETTINGS:
        raise InputError(f"{name} is no analysis; choose one of: {', '.join(SETTINGS)}")
    own, rest = {}, []
    for argument in arguments:
        key, _, text = argument.partition("=")
        if key not in keys(SETTINGS[name]):
            rest.append(argument)
            continue
        try:
            own[key] = yaml.safe_load(text)
        except yaml.YAMLError:
            own[key] = text
    return checked(SETTINGS[name], own), rest
