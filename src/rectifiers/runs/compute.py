"""Where a run is computed, and how: the section `compute` of a configuration."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from rectifiers.runtime.errors import InputError
from rectifiers.runtime.ranges import Count, Range
from rectifiers.runtime.schema import Section

SCIENCE = ("compute.precision", "compute.fast")  # the keys that are part of what a run is
FASTEST = {
    "precision": "bf16-mixed",
    "channels_last": True,
    "fused": True,
    "compile": True,
    "autotune": True,
}


class Compute(Section):
    """The hardware, and how the same numbers are computed on it."""

    accelerator: Literal["cpu", "gpu"] = Field(description="what trains and tests")
    nodes: Count | None = Field(
        description="machines; null: as many as were started (torchrun, srun)"
    )
    devices: Count | None = Field(
        description="processes per machine; null: as many as were started"
    )
    precision: Literal["32-true", "bf16-mixed", "16-mixed", "64-true"] = Field(
        description="of numbers; part of what a run is. 16-mixed works on a GPU only"
    )
    workers: Annotated[int, Range(ge=0, le=1024)] = Field(
        description="processes that load images, for each process that trains; 0: it loads them "
        "itself"
    )
    threads: Annotated[int, Range(ge=1, le=4096)] | None = Field(
        description="threads of torch; null: its own choice"
    )
    compile: bool = Field(description="whether torch.compile compiles the network")
    channels_last: bool = Field(
        description="order of maps in memory; the same numbers but for rounding"
    )
    fused: bool = Field(
        description="SGD in one pass over each weight; the same numbers but for rounding"
    )
    activation_checkpointing: bool = Field(
        description="whether maps are computed again in the backward pass instead of kept; the "
        "same bits"
    )
    autotune: bool = Field(
        False,
        description="whether cuDNN tries its algorithms on the first batch of each shape and keeps "
        "the fastest; the "
        "same numbers but for rounding. GPUs only",
    )
    fast: bool = Field(
        False,
        description="bfloat16, TF32, channels last, fused SGD, autotune, and a compiled network in "
        "CUDA graphs, "
        "whatever the other keys say; part of what a run is. GPUs with bfloat16 only",
    )
    timeout_s: Annotated[float, Range(gt=0, le=86400)] = Field(
        description="seconds that a process waits for another one, or for images, before the run "
        "ends"
    )

    @model_validator(mode="before")
    @classmethod
    def _choose_the_fastest(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or given.get("fast") is not True:
            return given
        if given.get("precision") not in ("32-true", FASTEST["precision"]):
            raise InputError(
                f"compute.fast=true computes in {FASTEST['precision']}, and "
                f"compute.precision={given.get('precision')} "
                "asks for another; leave one of them out"
            )
        return {**given, **FASTEST}
