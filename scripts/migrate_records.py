"""Rewrite the committed records of schema 2 as schema 3, which names the splits; every other byte stays.

python scripts/migrate_records.py
"""

import json
import lzma
from pathlib import Path
from typing import Any

from rectifiers.results.claim_records import FILE
from rectifiers.runs import record as records
from rectifiers.runtime.files import atomic_file

RESULTS = Path(__file__).parents[1] / "results"
HELD_OUT = {"digits": 450, "fashion_mnist": 10_000}  # images that chose and were tested, by the function of the data


def migrated(old: dict[str, Any]) -> dict[str, Any]:
    """Return a record of the paper's protocol, the only one there was, in schema 3."""
    assert old["schema_version"] == 2, old["run"]
    new: dict[str, Any] = {}
    for key, value in old.items():
        if key == "train_images":
            images = HELD_OUT[old["science"]["data"]["_target_"].rpartition(".")[2]]
            assert all(result["num_images"] == images for result in old["protocols"].values())
            new["images"] = {"train": value, "val": images, "test": None}
        else:
            new[key] = value
    new["schema_version"] = 3
    new["protocols"] = {name: _of_val(result) for name, result in old["protocols"].items()}
    if old["overrides"] is not None and not str(old["choices"].get("experiment")).startswith("claim/"):
        new["overrides"] = [*old["overrides"], "data.protocol=paper"]  # a claim's experiment says so itself
    return new


def _of_val(result: dict[str, Any]) -> dict[str, Any]:
    new: dict[str, Any] = {}
    for key, value in result.items():
        if key == "settings":
            new["split"] = "val"
            is_ten_view = value["_target_"].endswith(".ten_view")
            value = value | {"pad_px": 0} if is_ten_view else value
        new[key] = value
    return new


def text(old: bytes) -> records.Record:
    """Return the migrated record, with proof that no number changed: floats are compared by their bits."""
    before = json.loads(old)
    new = records.parse(json.dumps(migrated(before)))
    after = json.loads(records.to_json(new))
    for result in after["protocols"].values():
        result.pop("split")
        if result["settings"]["_target_"].endswith(".ten_view"):
            assert result["settings"].pop("pad_px") == 0
    after["train_images"] = after.pop("images")["train"]
    if after["overrides"] and after["overrides"][-1] == "data.protocol=paper":
        after["overrides"].pop()
    assert repr(sorted(_leaves(after | {"schema_version": 2}))) == repr(sorted(_leaves(before))), before["run"]
    return new


def _leaves(node: Any, place: str = "") -> list[tuple[str, str]]:
    if isinstance(node, dict) and node:
        return [leaf for key, value in node.items() for leaf in _leaves(value, f"{place}.{key}")]
    if isinstance(node, list) and node:
        return [leaf for i, value in enumerate(node) for leaf in _leaves(value, f"{place}.{i}")]
    return [(place, node.hex() if isinstance(node, float) else repr(node))]


def main() -> None:
    paths = sorted((RESULTS / "records").glob("*.json"))
    for path in paths:
        records.write(path, text(path.read_bytes()))
    claims = RESULTS / "claims" / FILE
    lines = [records.to_json(text(line)) + "\n" for line in lzma.decompress(claims.read_bytes()).splitlines()]
    with atomic_file(claims) as file:
        file.write(lzma.compress("".join(lines).encode()))
    print(f"{len(paths)} records and {len(lines)} of claims")


if __name__ == "__main__":
    main()
