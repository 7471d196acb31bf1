"""Collect every `DEVIATION:` of conf/ and src/ in docs/results/reproduction.md, so that each is documented.

python scripts/deviations.py           # write them into it
python scripts/deviations.py --check   # exit with 1 where it is not up to date
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- deviations -->\n", "<!-- end -->"
TAG = "DEVIATION:"


def deviations(path: Path) -> list[str]:
    """Return the text after every tag of a file: the rest of the line and of the comment or docstring below it."""
    lines = path.read_text().splitlines()
    found = []
    for i, line in enumerate(lines):
        before, tag, text = line.partition(TAG)
        if not tag:
            continue
        inline = bool(before.split("#")[0].strip()) and "#" in before
        parts = [text.strip()]
        for below in [] if inline else lines[i + 1 :]:
            more = below.strip().removeprefix("#").strip()
            if not more or more.startswith('"""') or (path.suffix == ".yaml" and not below.strip().startswith("#")):
                break
            parts.append(more)
        found.append(" ".join(parts).removesuffix('"""').rstrip("."))
    return found


def section() -> str:
    """Return the list, by file."""
    paths = sorted(p for folder in ("conf", "src") for p in (ROOT / folder).rglob("*") if p.suffix in (".py", ".yaml"))
    lines = [f"- `{path.relative_to(ROOT).as_posix()}`: {text}." for path in paths for text in deviations(path)]
    return "\n".join(lines) + "\n"


def updated(document: str) -> str:
    """Return `document` with the current list."""
    pattern = re.escape(BEGIN) + ".*?" + re.escape(END)
    return re.sub(pattern, lambda _: BEGIN + section() + END, document, count=1, flags=re.DOTALL)


if __name__ == "__main__":
    path = ROOT / "docs" / "results" / "reproduction.md"
    text = path.read_text()
    if sys.argv[1:] == ["--check"]:
        sys.exit(
            f"{path.name} lists other deviations than the code; run make deviations" if updated(text) != text else 0
        )
    path.write_text(updated(text))
