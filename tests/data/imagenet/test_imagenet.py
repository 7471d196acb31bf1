"""From prepared shards to a run: what is not pinned is refused, or said in the record."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from conftest import compose_config, places, require
from rectifiers.data.imagenet import imagenet, is_pinned, locked_outs
from rectifiers.training.train import train
from refusals import refused

OVERRIDES = """
data=imagenet data.val_per_class=2 model=mlp model.depth=2 model.hidden=16
data.resize_px=20 data.crop_px=16 preprocess.scale=unit_rms init.fc_std=null
trainer.max_epochs=2 data.batch_size=12 evaluation=center threads=1
"""
SHRUNK = tuple(OVERRIDES.split())


@pytest.fixture
def unpinned(prepared: Path, tmp_path: Path) -> Path:
    """The same data with a manifest of other bytes."""
    root = Path(shutil.copytree(prepared, tmp_path / "unpinned"))
    (root / "manifest.json").write_text(
        json.dumps(json.loads((root / "manifest.json").read_text()))
    )
    return root


@pytest.mark.process
def test_unpinned_data_never_pass_for_pinned(prepared, unpinned, tmp_path) -> None:
    """Not its record, not its preprocessing, and no protocol that is added later: the manifest may
    claim any hash."""
    loose = (*SHRUNK, f"data.root={unpinned}", "data.allow_unpinned=true", *places(tmp_path))
    first = train(compose_config(*loose), {})
    assert first.record.provenance.data == f"unpinned-{imagenet(str(prepared)).digest}"
    assert not train(compose_config(*loose), {}).fresh
    with refused(r"data\.allow_unpinned=true"):
        train(compose_config(*SHRUNK, f"data.root={unpinned}", *places(tmp_path)), {})
    second = train(compose_config(*SHRUNK, f"data.root={prepared}", *places(tmp_path)), {})
    assert second.fresh
    assert second.path != first.path
    assert second.record.provenance.data_pinned is True
    assert second.record.images.model_dump() == {"train": 60, "val": 12, "test": 24}
    assert second.record.history[-1]["train_loss"] == first.record.history[-1]["train_loss"]
    hashes = [outcome.record.provenance.statistics for outcome in (first, second)]
    assert hashes[0] != hashes[1]
    mixed = (*loose, f"data.content={second.record.provenance.data}", "evaluation=ten_view")
    with refused(r"data\.content=\w+ is not the hash of the data, which"):
        train(compose_config(*mixed), {})


def test_changed_labels_are_refused(prepared: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(prepared, tmp_path / "changed"))
    index = np.load(root / "train" / "index.npy")
    index["label"] = 0
    np.save(root / "train" / "index.npy", index)
    with refused(r"train/index\.npy is not what was.*pull the data again"):
        imagenet(str(root))


# ---- what counts as pinned: what is committed, never what was just written ----

BODY = b"a manifest"


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

    def git(self, *arguments: str) -> None:
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        subprocess.run(["git", *who, *arguments], cwd=self.root, check=True, capture_output=True)

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=x")

    def pins(self, body: bytes = BODY) -> bool:
        return is_pinned(body, self.root)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    require("git")
    made = Project(tmp_path)
    made.git("init", "--quiet")
    return made


@pytest.mark.process
def test_a_committed_lock_pins_what_it_names(project: Project) -> None:
    project.top.write_text(lock(BODY))
    assert not project.pins()  # nobody has committed it
    project.big.write_text(lock(b"{}"))
    project.commit()
    assert project.pins()
    assert project.pins(b"{}")
    project.top.write_text(lock(b"other"))  # what `dvc repro` wrote now
    assert project.pins()
    assert not project.pins(b"other")
    project.top.write_text(lock(BODY, "train"))  # the same md5 under another name is no manifest
    project.commit()
    assert not project.pins()


def test_without_git_the_present_lock_counts(tmp_path: Path) -> None:
    project = Project(tmp_path)
    assert not project.pins()
    project.top.write_text(lock(BODY))
    assert project.pins()
    assert not project.pins(b"{}")


def test_an_unreadable_lock_is_reported_in_one_sentence(tmp_path: Path) -> None:
    for text in ("stages: 3", "{", "- 1", "stages: {a: {outs: [{path: x}]}}"):
        (tmp_path / "dvc.lock").write_text(text)
        with refused(r"dvc\.lock cannot be read .*restore it from git"):
            locked_outs(tmp_path / "dvc.lock")
