"""Open the explorer, a page that shows how signal and gradient pass through the layers."""

import argparse
import sys
import webbrowser
from pathlib import Path

PAGE = Path(__file__).with_name("explorer.html")


def main() -> None:
    """Print the page's path, and open it in a browser unless `--print-path` is given."""
    parser = argparse.ArgumentParser(prog="python -m rectifiers.explore", description=__doc__)
    parser.add_argument(
        "--print-path", action="store_true", help="print the path of the page and open no browser"
    )
    arguments = parser.parse_args()
    print(PAGE)
    if not arguments.print_path and not webbrowser.open(PAGE.as_uri()):
        print(
            "no browser opened here; open the file above in one, or copy it to where one is",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
