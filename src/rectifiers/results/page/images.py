"""Which class every test image is of, and what runs answered, as far as their scores were kept."""

from collections.abc import Sequence
from typing import Any

from rectifiers.evaluation.scores import load, scores_path
from rectifiers.results.listing import Found
from rectifiers.runs.record import TrainingRecord
from rectifiers.runtime.errors import InputError

MOST_ANSWERS = 1_000_000  # in one page


def classes_and_answers(
    found: Sequence[Found], names: Sequence[str]
) -> tuple[dict[str, Any], dict[str, dict[str, list[int]]]]:
    """Return (labels of the test images and names of the classes, by the data's hash; answers by protocol and run).

    names: what the page calls each run.

    An answer is the class of the highest score. Files that cannot be read, or are not of the test that the record tells
    of, count as not kept.
    """
    labels: dict[str, Any] = {}
    answers: dict[str, dict[str, list[int]]] = {}
    room = MOST_ANSWERS
    for each, name in zip(found, names, strict=True):
        for protocol, result in each.record.protocols.items():
            if result.scores is None or each.folder is None or result.num_images > room:
                continue
            try:
                kept = load(scores_path(each.folder, protocol))
            except InputError:
                continue
            if kept.digest() != result.scores:
                continue
            room -= result.num_images
            labels.setdefault(kept.data, {"labels": kept.labels.tolist(), "names": []})
            answers.setdefault(protocol, {})[name] = kept.scores.argmax(1).tolist()
    for each in found:
        known = labels.get(each.record.provenance.data)
        if known and isinstance(each.record, TrainingRecord) and each.record.class_names:
            known["names"] = each.record.class_names
    return labels, answers
