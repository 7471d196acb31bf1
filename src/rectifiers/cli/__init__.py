"""The command line; `main` is `rectifiers-train`, which may be called where only the library is
installed."""

import sys


def main() -> None:
    """Do what `rectifiers.cli.train.main` does, or say which extra it needs."""
    try:
        from rectifiers.cli.train import main as train
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "rectifiers":
            raise
        sys.exit(
            f"error: {error.name} is not installed, which training needs; install rectifiers "
            "with its extra train"
        )
    train()
