"""The command line of a program that measures networks by name, keeps the numbers and writes a page
of them: `[name ...]` measures some again, and `--check` compares the page with the kept numbers."""

import argparse
import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from rectifiers.results.documents import write_or_check
from rectifiers.runtime.console import cli_errors
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import write_text

Results = dict[str, Any]  # by name


def main(
    about: str | None,
    names: Collection[str],
    measure: Callable[[str], Any],
    page: Callable[[Results], str],
    stem: str,
) -> None:
    """Do what the command line says. The numbers lie in results/<stem>.json, the page beside
    them."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=about, formatter_class=raw)
    parser.add_argument("network", nargs="*", help="networks to measure again (default: all)")
    parser.add_argument("--check", action="store_true", help="exit with 1 if the page is stale")
    options = parser.parse_args()
    numbers = Path(__file__).parents[1] / "results" / f"{stem}.json"
    with cli_errors():
        for name in options.network:
            if name not in names:
                raise InputError(f"{name} is not known; choose from: {', '.join(names)}")
        results = json.loads(numbers.read_text()) if numbers.exists() else {}
        for name in () if options.check else options.network or names:
            results[name] = measure(name)
            write_text(numbers, json.dumps(results, indent=1) + "\n")
        path = numbers.with_name(f"{stem.upper()}.md")
        write_or_check({path: page(results)}, options.check, f"python scripts/{stem}.py")
