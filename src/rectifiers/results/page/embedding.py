"""Data inside an HTML document."""

import base64
import gzip
import json
from collections.abc import Hashable, Sequence
from typing import Any

# A script's text ends at "</script", wherever it stands; U+2028 and U+2029 end a line of JavaScript.
ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\N{LINE SEPARATOR}\N{PARAGRAPH SEPARATOR}"}


def script_json(value: Any) -> str:
    """Return JSON that can stand in a <script>, whatever its strings hold. Only strings can hold what is escaped."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).translate(ESCAPES)


def packed(value: Any) -> str:
    """Return JSON, gzipped, in base64: what the page unpacks on demand, at a third of the size."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def column(values: Sequence[Any]) -> dict[str, list[Any]]:
    """Return a column as its different values, in order of appearance, and each entry's place among them."""
    places: dict[Hashable, int] = {}
    different: list[Any] = []
    at: list[int] = []
    for value in values:
        key = value if isinstance(value, str) else json.dumps(value, sort_keys=True) + "\0"
        if key not in places:
            places[key] = len(different)
            different.append(value)
        at.append(places[key])
    return {"values": different, "at": at}
