"""What git says of a checkout."""

import subprocess
from pathlib import Path


def git(*arguments: str, at: Path) -> str | None:
    """Return what git says in a folder, or None where it refuses or is not there."""
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(at), *arguments], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
