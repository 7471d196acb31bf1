"""Migrate the committed records from schema 1 to schema 2, once.

python scripts/migrate_records.py            migrate results/records and results/claims
python scripts/migrate_records.py --check B  compare with the records of the git revision B: no number may have changed
"""

import argparse
import json
import lzma
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from rectifiers.results.commands import command
from rectifiers.runs import record as records

ROOT = Path(__file__).parents[1]
CLAIMS = ROOT / "results" / "claims" / "records.jsonl.xz"
RENAMED = (
    (r"^ledger\b", "init_report"),
    (r"^(protocols/.*/)seen$", r"\1num_images"),
    (r"^(protocols/.*/)top1_hits$", r"\1correct_mask"),
    (r"^(slopes/.*/)least$", r"\1min"),
    (r"^(slopes/.*/)most$", r"\1max"),
)
# What the first records did not have, by its new name.
ADDED = re.compile(
    r"^(kind|overrides(/\d+)?|class_names|provenance/data_pinned|protocols/\w+/(by_scale|scores|git_sha|git_dirty))$"
)


def migrate(old: dict[str, Any]) -> dict[str, Any]:
    """Return the record of schema 2; what was typed is derived from its choices and science."""
    line = command(old)
    new = {**old, "schema_version": 2, "kind": "training", "overrides": None if line is None else shlex.split(line)[2:]}
    new["init_report"] = new.pop("ledger")
    new["class_names"] = old.get("class_names")
    new["provenance"] = {"data_pinned": None, **old["provenance"]}
    new["slopes"] = {
        layer: {{"least": "min", "most": "max"}.get(key, key): value for key, value in slope.items()}
        for layer, slope in old["slopes"].items()
    }
    new["protocols"] = {name: _result(result) for name, result in old["protocols"].items()}
    return new


def _result(old: dict[str, Any]) -> dict[str, Any]:
    new = {"scores": None, "git_sha": None, "git_dirty": None, **old}
    new["num_images"], new["correct_mask"] = new.pop("seen"), new.pop("top1_hits")
    new["by_scale"] = {px: _errors(errors) for px, errors in old.get("by_scale", {}).items()}
    return new


def _errors(old: dict[str, Any]) -> dict[str, Any]:
    return {"num_images" if key == "seen" else key: value for key, value in old.items()}


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return where a migrated record does not say what the old one said; floats are compared by their bits."""
    before, after = _leaves(old), _leaves(new)
    renamed = {_rename(place): value for place, value in before.items()}
    wrong = [place for place, value in renamed.items() if place not in after or not _same(value, after[place])]
    return [*wrong, *(place for place in after.keys() - renamed.keys() if not ADDED.match(place))]


def _leaves(node: Any, place: str = "") -> dict[str, Any]:
    if isinstance(node, dict | list) and node:
        items = node.items() if isinstance(node, dict) else enumerate(node)
        return {k: v for key, item in items for k, v in _leaves(item, f"{place}/{key}").items()}
    return {place[1:]: node}


def _rename(place: str) -> str:
    for pattern, name in RENAMED:
        place = re.sub(pattern, name, place)
    return place


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, float) and isinstance(new, float):
        return old.hex() == new.hex()
    return old == new and (type(old) is type(new) or (type(old), type(new)) == (int, float))


def _committed(revision: str, path: Path) -> bytes:
    place = f"{revision}:{path.relative_to(ROOT).as_posix()}"
    return subprocess.run(["git", "show", place], cwd=ROOT, capture_output=True, check=True).stdout


def _records(content: bytes, path: Path) -> list[dict[str, Any]]:
    lines = lzma.decompress(content).splitlines() if path == CLAIMS else [content]
    return [json.loads(line) for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", metavar="REVISION", help="compare with this revision instead")
    asked = parser.parse_args()
    count = 0
    for path in (CLAIMS, *sorted((ROOT / "results" / "records").glob("*.json"))):
        before = _records(_committed(asked.check or "HEAD", path), path)
        if not asked.check:
            new = [records.parse(json.dumps(migrate(old))) for old in before]
            if path == CLAIMS:
                text = "".join(records.to_json(record) + "\n" for record in new)
                path.write_bytes(lzma.compress(text.encode()))
            else:
                records.write(path, new[0])
        for old, found in zip(before, _records(path.read_bytes(), path), strict=True):
            if wrong := differences({**old, "schema_version": 2}, found):
                sys.exit(f"{path}: run {old['run']} differs at {', '.join(wrong)}")
            count += 1
    print(f"{count} records say what they said")


if __name__ == "__main__":
    main()
