"""Command lines of studies that measure networks by name: one keeps the numbers in
results/<stem>.json, the other makes the page results/<STEM>.md of them, without torch."""

import argparse
import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from rectifiers.results.documents import write_or_check
from rectifiers.runtime.console import cli_errors
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import write_text

RESULTS = Path(__file__).parents[1] / "results"
Results = dict[str, Any]  # by name
Page = Callable[[Results], str]


def measure_main(
    about: str | None,
    names: Collection[str],
    measure: Callable[[str], Any],
    page: Page,
    stem: str,
) -> None:
    """Measure the networks of the command line, or all, and write the page."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=about, formatter_class=raw)
    parser.add_argument("network", nargs="*", help="networks to measure again (default: all)")
    options = parser.parse_args()

    with cli_errors():
        for name in options.network:
            if name not in names:
                raise InputError(f"{name} is not known; choose from: {', '.join(names)}")

        results = read_numbers(stem)
        for name in options.network or names:
            results[name] = measure(name)
            ordered = {name: results[name] for name in names if name in results}
            write_text(RESULTS / f"{stem}.json", json.dumps(ordered, indent=1) + "\n")
        write_page(page, stem, check=False)


def page_main(about: str | None, page: Page, stem: str) -> None:
    """Write the page, or with `--check` compare it with the kept numbers."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--check", action="store_true", help="exit with 1 if the page is stale")
    options = parser.parse_args()
    with cli_errors():
        write_page(page, stem, options.check)


def read_numbers(stem: str) -> Results:
    """Return what was measured so far, by name."""
    path = RESULTS / f"{stem}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def write_page(page: Page, stem: str, check: bool) -> None:
    numbers = read_numbers(stem)
    if not numbers:
        raise InputError(f"results/{stem}.json has no numbers yet; run python studies/{stem}.py")
    text = page(numbers)
    command = f"python studies/{stem}_page.py"
    write_or_check({RESULTS / f"{stem.upper()}.md": text}, check, command)
