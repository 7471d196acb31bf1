"""What counts as pinned: what is committed, or was made of archives whose hashes are. Never what
was just written."""

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from conftest import require
from rectifiers.data.imagenet.pins import is_pinned, locked_outs
from rectifiers.runtime.errors import InputError

MD5 = {"train": "1" * 32, "val": "2" * 32, "devkit": "3" * 32}
FACTS = {role: {"file": f"{role}.tar", "md5": md5, "bytes": None} for role, md5 in MD5.items()}
COUNTS = {
    "classes": 1,
    "train_images": 1,
    "val_images": 1,
    "class_images": [1, 1],
    "class_val_images": 1,
}
ARCHIVES = json.dumps({"folder": "raw", **FACTS, **COUNTS})
MADE = {"archives": {f"{role}.tar": {"md5": md5} for role, md5 in MD5.items()}}
BODY = json.dumps(MADE).encode()


def lock(body: bytes, name: str = "manifest.json") -> str:
    out = {"path": f"prepared/{name}", "md5": hashlib.md5(body).hexdigest()}
    return json.dumps(
        {"schema": "2.0", "stages": {"prepare": {"cmd": "x", "outs": [out]}, "other": {"cmd": "y"}}}
    )


class Project:
    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "pipelines" / "big").mkdir(parents=True)
        self.top, self.big = root / "dvc.lock", root / "pipelines" / "big" / "dvc.lock"
        self.archives = self.big.with_name("archives.yaml")

    def git(self, *arguments: str) -> None:
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        subprocess.run(["git", *who, *arguments], cwd=self.root, check=True, capture_output=True)

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=x")

    def pins(self, body: bytes = BODY) -> bool:
        return is_pinned(body, json.loads(body), self.root)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    require("git")
    made = Project(tmp_path)
    made.git("init", "--quiet")
    made.archives.write_text(ARCHIVES)
    made.commit()
    return made


@pytest.mark.process
def test_any_committed_lock_pins(project: Project) -> None:
    assert not project.pins()
    other = json.dumps({"archives": {}}).encode()
    project.top.write_text(lock(other))
    project.big.write_text(lock(BODY))
    project.commit()
    assert project.pins()
    assert project.pins(other)
    assert not project.pins(b"{}")
    project.big.write_text(lock(BODY, "train"))  # the same md5 under another name is no manifest
    project.commit()
    assert not project.pins()


@pytest.mark.process
def test_a_rewritten_lock_pins_what_its_committed_version_names(project: Project) -> None:
    project.top.write_text(lock(b"{}"))
    project.commit()
    project.top.write_text(lock(BODY))
    assert not project.pins()
    assert project.pins(b"{}")
    project.git("checkout", "dvc.lock")
    project.big.write_text(lock(b"{}"))
    project.commit()
    project.big.write_text(
        lock(BODY)
    )  # of the official archives, but somebody has said what comes of them
    assert not project.pins()


@pytest.mark.process
def test_a_lock_that_was_never_committed_pins_data_made_from_the_official_archives(
    project: Project,
) -> None:
    project.big.write_text(lock(BODY))
    assert project.pins()
    other = BODY.replace(b"1111", b"9999", 1)
    project.big.write_text(lock(other))
    assert not project.pins(other)
    project.archives.write_text(
        ARCHIVES.replace("1111", "9999", 1)
    )  # what is official is committed too
    assert not project.pins(other)
    project.big.unlink()
    project.top.write_text(lock(BODY))  # beside which no archives are listed
    assert not project.pins()


def test_without_git_the_present_lock_counts(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.top.write_text(lock(BODY))
    assert project.pins()
    assert not project.pins(b"{}")


def test_an_unreadable_lock_is_reported_in_one_sentence(tmp_path: Path) -> None:
    for text in ("stages: 3", "{", "- 1", "stages: {a: {outs: [{path: x}]}}"):
        (tmp_path / "dvc.lock").write_text(text)
        with pytest.raises(
            InputError, match=r"dvc\.lock cannot be read as a lock of DVC .*; restore it from git"
        ):
            locked_outs(tmp_path / "dvc.lock")
