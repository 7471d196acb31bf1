"""Which class every test image is of, and which one runs predicted, as far as their scores were
kept."""

from collections.abc import Sequence
from typing import Any

from rectifiers.evaluation.scores import Scores, load, scores_path
from rectifiers.results.listing import Found
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.errors import InputError

MAX_PREDICTIONS = 1_000_000  # in one page


def labels_and_predictions(
    found: Sequence[Found], names: Sequence[str]
) -> tuple[dict[str, Any], dict[str, dict[str, list[int]]]]:
    """Return (labels of the test images and names of the classes, by the data's hash; predictions
    by protocol and run).

    names: what the page calls each run.
    """
    labels: dict[str, Any] = {}
    predictions: dict[str, dict[str, list[int]]] = {}
    room = MAX_PREDICTIONS
    for each, name in zip(found, names, strict=True):
        for protocol, result in each.record.protocols.items():
            scores = _scores(each, protocol) if result.num_images <= room else None
            if scores is not None:
                room -= result.num_images
                labels.setdefault(scores.data, {"labels": scores.labels.tolist(), "names": []})
                predictions.setdefault(protocol, {})[name] = scores.scores.argmax(1).tolist()
    for each in found:
        known = labels.get(each.record.provenance.data)
        if known and not known["names"] and isinstance(each.record, TrainingRecord):
            known["names"] = each.record.class_names or []
    return labels, predictions


def _scores(found: Found, protocol: str) -> Scores | None:
    """The scores of a run; None where they were not kept, cannot be read, or are not those that its
    record names."""
    digest = found.record.protocols[protocol].scores
    if digest is None or found.folder is None:
        return None
    try:
        scores = load(scores_path(found.folder, protocol))
    except InputError:
        return None
    return scores if scores.digest() == digest else None
