"""Where a number comes from: code, lock, versions and machine. Nothing here names a person, a host
or a secret."""

import hashlib
import os
import platform
import re
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from subprocess import DEVNULL, PIPE

from rectifiers.runs.record_parts import Machine, Provenance
from rectifiers.runtime import machine
from rectifiers.runtime.files import CHECKOUT, git

PACKAGE = Path(__file__).parents[1]
COMMIT = re.compile(r"[0-9a-f]{7,64}")
KINDS = (".py", ".c", ".h")  # of source files
VERSIONS = (
    *("torch", "torchvision", "pytorch-lightning", "torchmetrics", "hydra-core", "numpy"),
    *("scikit-learn", "pillow"),
)


def code_fingerprint() -> str:
    """Return 12 hex digits of the package's source files: two equal ones ran the same code,
    committed or not."""
    paths = (path for kind in KINDS for path in PACKAGE.rglob(f"*{kind}"))
    bodies = {path.relative_to(PACKAGE): path.read_bytes() for path in paths}
    content = hashlib.sha256()
    for path, body in sorted(bodies.items()):
        content.update(f"{path.as_posix()} {len(body)}\n".encode() + body)
    return content.hexdigest()[:12]


def is_changed() -> bool | None:
    """Return whether the checkout departs from its commit, but for results/, which no run reads;
    None outside a checkout."""
    paths = ("--", ".", ":!results")
    status = git("status", "--porcelain", *paths, at=CHECKOUT) if CHECKOUT else None
    return None if status is None else bool(status)


def committed_file(commit: str, path: str) -> str | None:
    """Return a file of the checkout as a commit has it; None where either is not there."""
    reader = _objects()
    is_usable = COMMIT.fullmatch(commit) and "\n" not in path  # a record may be anybody's
    if not is_usable or reader is None or reader.stdin is None or reader.stdout is None:
        return None
    try:
        os.write(reader.stdin.fileno(), f"{commit}:{path}\n".encode())
    except BrokenPipeError:  # git has ended, because this is no repository
        return None

    # git answers "<object> <kind> <bytes>" and the content with a line's end, or "... missing"
    head = re.fullmatch(rb"\w+ (\w+) (\d+)\n", reader.stdout.readline())
    if head is None:
        return None
    kind, size = head[1], int(head[2])
    content = reader.stdout.read(size + 1)  # also of a folder, or the next answer would begin in it
    return content.decode().strip() if kind == b"blob" else None


@cache
def _objects() -> subprocess.Popen[bytes] | None:
    """Start git once for all objects that are asked for: a process for each of a thousand takes
    seconds. It ends with this process, when its pipe closes."""
    if CHECKOUT is None:
        return None
    command = ["git", "-C", str(CHECKOUT), "cat-file", "--batch"]
    try:
        return subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
    except OSError:
        return None


@cache
def has_commit(commit: str) -> bool | None:
    """Return whether the checkout's repository has a commit; None where nobody can say, outside a
    checkout or in a clone without its whole history."""
    shallow = git("rev-parse", "--is-shallow-repository", at=CHECKOUT) if CHECKOUT else None
    if CHECKOUT is None or shallow != "false":
        return None
    return git("cat-file", "-e", f"{commit}^{{commit}}", at=CHECKOUT) is not None


def commits_of(path: str) -> list[str]:
    """Return the commits that changed a file of the checkout, the latest first; none outside a
    checkout."""
    return _history().get(path, [])


@cache
def _history() -> dict[str, list[str]]:
    """Return the commits that changed each file of the checkout: to ask git once takes 0.1 s, and
    for each of a hundred files 5 s. A merge counts where it differs from all that it merges."""
    options = ("-c", "--name-only", "--no-renames", "--format=%x00%H")
    text = git("log", *options, at=CHECKOUT) if CHECKOUT else None
    commits: dict[str, list[str]] = {}
    for part in (text or "").split("\0"):
        commit, *paths = part.split("\n")
        for path in paths:
            commits.setdefault(path, []).append(commit)
    return commits


def provenance(
    data_hash: str,
    statistics_hash: str | None,
    device: str,
    threads: int,
    data_pinned: bool | None = None,
) -> Provenance:
    """Return what a record keeps: git sha and dirty flag (None outside a checkout), hashes,
    versions, machine.

    data_pinned: of prepared data, whether a `dvc.lock` names it.
    """
    lock = (CHECKOUT or PACKAGE) / "requirements.lock"
    has_lock = CHECKOUT is not None and lock.is_file()
    versions = {name: metadata.version(name) for name in VERSIONS}
    versions["python"] = platform.python_version()
    return Provenance(
        code=code_fingerprint(),
        git_sha=git("rev-parse", "HEAD", at=CHECKOUT) if CHECKOUT else None,
        git_dirty=is_changed(),
        lock=hashlib.sha256(lock.read_bytes()).hexdigest()[:12] if has_lock else None,
        data=data_hash,
        data_pinned=data_pinned,
        statistics=statistics_hash,
        versions=versions,
        machine=Machine(
            system=platform.system(),
            cpu=machine.name(),
            instructions=machine.instructions(),
            cores=os.cpu_count(),
            threads=threads,
            device=device,
        ),
    )
