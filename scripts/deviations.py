"""Collect every `DEVIATION:` of conf/ and src/ in docs/results/reproduction.md, so that each is
documented.

python scripts/deviations.py           # write them into it
python scripts/deviations.py --check   # exit with 1 where it is not up to date
"""

import sys
from pathlib import Path

from rectifiers.results.generated import filled, write_or_check
from rectifiers.runtime.programs import one_sentence

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "reproduction.md"
TAG = "DEVIATION:"


def deviations(path: Path) -> list[str]:
    """Return the text after every tag of a file: the rest of the line and of the comment or
    docstring below it."""
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
            if (
                not more
                or more.startswith('"""')
                or (path.suffix == ".yaml" and not below.strip().startswith("#"))
            ):
                break
            parts.append(more)
        found.append(" ".join(parts).removesuffix('"""').rstrip("."))
    return found


def section() -> str:
    """Return the list, by file."""
    paths = sorted(
        p
        for folder in ("conf", "src")
        for p in (ROOT / folder).rglob("*")
        if p.suffix in (".py", ".yaml")
    )
    lines = [
        f"- `{path.relative_to(ROOT).as_posix()}`: {text}."
        for path in paths
        for text in deviations(path)
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    with one_sentence():
        text = filled(PAGE.read_text(), "deviations", section())
        write_or_check({PAGE: text}, sys.argv[1:] == ["--check"], "make deviations")
