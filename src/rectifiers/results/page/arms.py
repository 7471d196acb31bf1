"""Runs that differ in nothing but the seed, and a name for each such group that says what it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rectifiers.results.comparison import flat
from rectifiers.runs.identity import canonical_json, run_id, without
from rectifiers.runs.record import TrainingRecord

OF_A_SEED = ("seed", "optim.drop_epochs")  # a rule may have found the latter
NAMING = ("model", "activation", "init", "preprocess", "optim")


@dataclass(frozen=True)
class Arm:
    """Runs of one configuration."""

    name: str
    runs: Sequence[TrainingRecord]


def arms(records: Sequence[TrainingRecord]) -> list[Arm]:
    """Group runs and name each group by what tells it from the others: choices first, then keys of
    the science."""
    groups: dict[str, list[TrainingRecord]] = {}
    for record in records:
        groups.setdefault(run_id(without(record.science, OF_A_SEED)), []).append(record)
    firsts = [runs[0] for runs in groups.values()]
    chosen = [{group: first.choices.get(group) for group in NAMING} for first in firsts]
    varying = [group for group in NAMING if len({str(each[group]) for each in chosen}) > 1] or [
        "activation"
    ]
    names = [" · ".join(str(each[group]) for group in varying) for each in chosen]
    sciences = [flat(without(first.science, OF_A_SEED)) for first in firsts]
    return [
        Arm(
            name
            + _rest(
                science, [s for s, other in zip(sciences, names, strict=True) if other == name]
            ),
            runs,
        )
        for name, science, runs in zip(names, sciences, groups.values(), strict=True)
    ]


def _rest(science: dict[str, Any], alike: Sequence[dict[str, Any]]) -> str:
    """What tells this science from those of the same name."""
    keys = sorted({key for other in alike for key in other})
    apart = [key for key in keys if len({canonical_json(other.get(key)) for other in alike}) > 1]
    return "".join(
        f" · {key.rpartition('.')[2]}={canonical_json(science.get(key))}" for key in apart
    )
