"""What differs between two runs: configuration, provenance and results."""

from collections.abc import Mapping
from typing import Any

from rectifiers.results.origin import code_of, machine_of
from rectifiers.results.statistics import error_interval_pct, mcnemar
from rectifiers.runs.record import Record, TrainingRecord

MISSING = "(not there)"
MIXED = (
    "one was tested on the images that chose (data.protocol=paper), the other on images "
    "that it had not seen"
)
RUN_BY_RUN = ("wall_s", "images_per_second", "epochs", "drop_epochs", "status")


def flat(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the leaves of a nested mapping by dotted key; lists are leaves."""
    leaves: dict[str, Any] = {}
    for key, value in node.items():
        leaves |= (
            flat(value, f"{prefix}{key}.")
            if isinstance(value, Mapping)
            else {f"{prefix}{key}": value}
        )
    return leaves


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return (its value in one, in the other) for every key that differs, in the order of the
    keys."""
    pairs = {
        key: (one.get(key, MISSING), other.get(key, MISSING))
        for key in sorted(one.keys() | other.keys())
    }
    return {key: (a, b) for key, (a, b) in pairs.items() if a != b}


def unpaired_reason(one: Record, other: Record, protocol: str) -> str | None:
    """Return why two runs' answers by a protocol cannot be compared image by image, or None."""
    if one.protocols[protocol].split != other.protocols[protocol].split:
        return MIXED
    same_data = one.provenance.data == other.provenance.data
    same_size = one.protocols[protocol].num_images == other.protocols[protocol].num_images
    return None if same_data and same_size else "other images"


def compare(one: Record, other: Record) -> dict[str, Any]:
    """Return all that differs between two runs, as plain data.

    `results` holds, for each protocol that both were tested by: the two errors in percent with
    their intervals (Wilson, 95 %), the difference (other minus one, in points; None where only one
    is of `data.protocol=paper`), and McNemar's test where both kept which images they had right.
    """
    return {
        "runs": [one.run, other.run],
        "origins": [
            {"code": code_of(record), "machine": machine_of(record)} for record in (one, other)
        ],
        "choices": differences(one.choices, other.choices),
        "configuration": differences(flat(one.science), flat(other.science)),
        "training": differences(*map(_of_training, (one, other))),
        "provenance": differences(
            flat(one.provenance.model_dump()), flat(other.provenance.model_dump())
        ),
        "results": {
            name: _result(one, other, name)
            for name in sorted(one.protocols.keys() & other.protocols.keys())
        },
        "only_one_has": sorted(one.protocols.keys() ^ other.protocols.keys()),
    }


def _of_training(record: Record) -> dict[str, Any]:
    sizes = (
        flat({"images": record.images.model_dump()}) if isinstance(record, TrainingRecord) else {}
    )
    return {key: getattr(record, key, None) for key in RUN_BY_RUN} | sizes


def _result(one: Record, other: Record, protocol: str) -> dict[str, Any]:
    pair = one.protocols[protocol], other.protocols[protocol]
    reason = unpaired_reason(one, other, protocol)
    paired = None
    if reason is None:
        first, second, p = mcnemar(*(result.is_correct() for result in pair))
        paired = {"only_one_right": first, "only_other_right": second, "p": p}
    return {
        "top1_error_pct": [result.top1_error_pct for result in pair],
        "interval_pct": [error_interval_pct(r.top1_errors, r.num_images) for r in pair],
        "num_images": [result.num_images for result in pair],
        "difference": None if reason == MIXED else pair[1].top1_error_pct - pair[0].top1_error_pct,
        "top5_error_pct": [result.top5_error_pct for result in pair],
        "nll": [result.nll for result in pair],
        "paired": paired,
        "unpaired_reason": reason,
        "same_settings": pair[0].settings == pair[1].settings,
    }
