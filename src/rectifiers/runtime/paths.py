"""Where the configuration and the checkout lie."""

from pathlib import Path

ROOT = Path(__file__).parents[3]
CONF = ROOT / "conf"
