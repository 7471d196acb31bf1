"""Calls of git."""

import subprocess
from pathlib import Path


def git(*arguments: str, at: Path) -> str | None:
    """Return the output of a git command in a folder, or None where it fails or git is not installed."""
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(at), *arguments], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
