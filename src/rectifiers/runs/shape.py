"""What a record has to look like, as data: what tables, page, terminal and W&B read of one is looked at here.

A file below a folder of runs may be anything; what passes this can be shown without another look.
"""

import re
from dataclasses import dataclass
from typing import Any

SCHEMA_VERSION = 1
STATUSES = ("finished", "diverged")
NUMBER, NOTHING = (int, float), type(None)
MAYBE = (*NUMBER, NOTHING)


@dataclass(frozen=True)
class Every:
    """All items of a list, or all values of an object, are of `shape`."""

    kind: type
    shape: Any


RESULT = {
    "seen": int,
    "top1_correct": int,
    "top1_error_pct": NUMBER,
    "settings": dict,
    "multiply_adds": int,
    **dict.fromkeys(("top5_error_pct", "nll", "brier", "ece"), MAYBE),
}
RECORD = {
    "schema_version": int,
    "run": str,
    "status": str,
    "choices": Every(dict, (str, NOTHING)),
    "science": dict,
    "protocols": Every(dict, RESULT),
    "codes": list,
    "provenance": Every(dict, (str, bool, int, NOTHING, dict)),
}
TRAINING = {
    "science": {
        "seed": int,
        "data": {"crop_px": int},
        "model": {"width": NUMBER},
        "optim": {"epochs": int},
        **dict.fromkeys(("init", "activation", "preprocess"), dict),
    },
    "network": {"depth": int, "input_px": int, "classes": int, "parameters": int, "multiply_adds": int},
    "ledger": Every(list, {"layer": str, "shape": list}),
    "slopes": Every(dict, dict.fromkeys(("mean", "std", "least", "most"), NUMBER) | {"channels": int}),
    "drop_epochs": list,
    "epochs": int,
    "history": Every(list, Every(dict, MAYBE)),
    "train_images": int,
    "images_per_second": MAYBE,
    "wall_s": NUMBER,
}
MEMBER = {key: (RECORD | TRAINING)[key] for key in ("run", "choices", "science", "train_images")}
ENSEMBLE = {"members": Every(list, MEMBER)}


ORIGIN = {
    "codes": Every(list, str),
    "provenance": {"machine": {"cpu": str, "threads": int, "device": str}},
}


def validate(record: Any) -> str | None:
    """Return what keeps `record` from being one, or None."""
    if not isinstance(record, dict):
        return "it is not a JSON object"
    if record.get("schema_version") != SCHEMA_VERSION:
        return f"its schema_version is {record.get('schema_version')!r} and this code reads {SCHEMA_VERSION}"
    shapes = (RECORD, ORIGIN, ENSEMBLE if "members" in record else TRAINING)
    fault = next((fault for shape in shapes if (fault := _differs(record, shape, ""))), None)
    if fault:
        return fault
    if not re.fullmatch(r"\w+", record["run"]):
        return f"its run is named {record['run']!r}"
    if record["status"] not in STATUSES:
        return f"its status is {record['status']!r}, not one of {', '.join(STATUSES)}"
    if not isinstance(record["provenance"].get("data"), (str, NOTHING)):
        return "its provenance.data is no hash"
    if record.get("members") == []:
        return "it is of no member"
    return next((fault for n, result in record["protocols"].items() if (fault := _miscounts(n, result))), None)


def _differs(node: Any, shape: Any, at: str) -> str | None:
    """The first place where `node` is not of `shape`: a type, several, an object with these keys, or `Every`."""
    if isinstance(shape, Every):
        if not isinstance(node, dict | list) or type(node) is not shape.kind:
            return _is(at, node)
        items = node.items() if isinstance(node, dict) else enumerate(node)
        return next((fault for k, item in items if (fault := _differs(item, shape.shape, f"{at}{k}."))), None)
    if isinstance(shape, dict):
        if not isinstance(node, dict):
            return _is(at, node)
        for key, own in shape.items():
            if key not in node:
                return f"it has no {at}{key}"
            if fault := _differs(node[key], own, f"{at}{key}."):
                return fault
        return None
    kinds = shape if isinstance(shape, tuple) else (shape,)
    return None if isinstance(node, kinds) and (not isinstance(node, bool) or bool in kinds) else _is(at, node)


def _is(at: str, node: Any) -> str:
    return f"its {at.rstrip('.')} is a {type(node).__name__}"


def _miscounts(name: str, result: dict[str, Any]) -> str | None:
    """What cannot be of the counts of one protocol."""
    seen, hits = result["seen"], result.get("top1_hits")
    if seen < 1 or not 0 <= result["top1_correct"] <= seen:
        return f"of {name}, {result['top1_correct']} of {seen} images are right"
    if result["top5_error_pct"] is not None and not isinstance(result.get("top5_correct"), int):
        return f"of {name}, it has no top5_correct"
    if "top1_hits" in result and not (isinstance(hits, str) and re.fullmatch(r"[0-9a-f]*", hits)):
        return f"of {name}, its top1_hits are not hexadecimal"
    if hits is not None and len(hits) != -(-seen // 4):
        return f"of {name}, its top1_hits are not of {seen} images"
    return None
