"""The committed records, which take seconds to read: a worker of pytest reads them once."""

import lzma
from functools import cache

from conftest import ROOT
from rectifiers.claims.archive import files
from rectifiers.runs.record import Record, parse

RESULTS = ROOT / "results"
CLAIMS = RESULTS / "claims"


@cache
def stored() -> dict[str, list[tuple[bytes, Record]]]:
    """Return each committed record beside its text, by file: those that answer no claim any more
    among them."""
    texts = {path: [path.read_bytes()] for path in (RESULTS / "records").glob("*.json")}
    for path in [*files(CLAIMS), RESULTS / "make_train.json.xz"]:
        content = lzma.decompress(path.read_bytes())
        texts[path] = content.splitlines() if path.parent.parent == CLAIMS else [content]
    return {
        path.relative_to(RESULTS).as_posix(): [(text, parse(text)) for text in texts[path]]
        for path in sorted(texts)
    }
