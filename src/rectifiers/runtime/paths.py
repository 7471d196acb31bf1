"""Where the configuration is: inside an installed package, and beside `src` in a checkout."""

from pathlib import Path


def locate(package: Path) -> tuple[Path, Path | None]:
    """Return the folder of configurations and the checkout that contains the package, None where it is installed."""
    installed, checkout = package / "conf", package.parents[1]
    return (installed, None) if installed.is_dir() else (checkout / "conf", checkout)


CONF, CHECKOUT = locate(Path(__file__).parents[1])
