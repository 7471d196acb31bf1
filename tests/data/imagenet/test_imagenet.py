"""From prepared shards to a run: what is not pinned is refused, or said in the record."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from conftest import compose_config
from rectifiers.data.imagenet import source as source
from rectifiers.data.imagenet.source import imagenet
from rectifiers.runtime.errors import InputError
from rectifiers.training.build import open_source
from rectifiers.training.train import train

SHRUNK = (
    "data=imagenet",
    "data.val_per_class=2",
    "model=mlp",
    "model.depth=2",
    "model.hidden=16",
    "data.resize_px=20",
    "data.crop_px=16",
    "preprocess.scale=unit_rms",
    "init.fc_std=null",
    "trainer.max_epochs=2",
    "data.batch_size=12",
    "evaluation=center",
    "threads=1",
)


@pytest.fixture
def unpinned(prepared: Path, tmp_path: Path) -> Path:
    """The same data with a manifest of other bytes."""
    root = Path(shutil.copytree(prepared, tmp_path / "unpinned"))
    (root / "manifest.json").write_text(
        json.dumps(json.loads((root / "manifest.json").read_text()))
    )
    return root


@pytest.mark.process
def test_a_run_trains_on_the_prepared_miniature(
    prepared: Path, unpinned: Path, tmp_path: Path
) -> None:
    folders = (f"runs_dir={tmp_path}/runs", f"cache_dir={tmp_path}/cache")
    outcome = train(compose_config(*SHRUNK, f"data.root={prepared}", *folders), {})
    assert outcome.record.status == "finished"
    assert outcome.record.images.model_dump() == {"train": 60, "val": 12, "test": 24}
    assert outcome.record.protocols["center"].num_images == 24
    provenance = outcome.record.provenance
    assert (provenance.data, provenance.data_pinned) == (imagenet(str(prepared)).digest, True)
    with pytest.raises(
        InputError,
        match=r"data\.root=.*unpinned has a manifest that no committed dvc\.lock names, "
        r".*data\.allow_",
    ):
        train(compose_config(*SHRUNK, f"data.root={unpinned}", *folders), {})
    again = train(
        compose_config(*SHRUNK, f"data.root={unpinned}", "data.allow_unpinned=true", *folders), {}
    )
    assert again.fresh
    assert again.record.provenance.data_pinned is False
    assert again.record.history[-1]["train_loss"] == outcome.record.history[-1]["train_loss"]


@pytest.mark.process
def test_a_run_on_unpinned_data_never_passes_for_one_on_pinned_data(
    prepared: Path, unpinned: Path, tmp_path: Path
) -> None:
    """Not its record, not its preprocessing, and no protocol that is added later: the manifest may
    claim any hash."""
    folders = (f"runs_dir={tmp_path}/runs", f"cache_dir={tmp_path}/cache")
    loose = (*SHRUNK, f"data.root={unpinned}", "data.allow_unpinned=true", *folders)
    first = train(compose_config(*loose), {})
    assert first.record.provenance.data == f"unpinned-{imagenet(str(prepared)).digest}"
    assert not train(compose_config(*loose), {}).fresh
    with pytest.raises(InputError, match=r"data\.allow_unpinned=true"):
        train(compose_config(*SHRUNK, f"data.root={unpinned}", *folders), {})
    second = train(compose_config(*SHRUNK, f"data.root={prepared}", *folders), {})
    assert second.fresh
    assert second.path != first.path
    assert second.record.provenance.data_pinned is True
    hashes = [outcome.record.provenance.statistics for outcome in (first, second)]
    assert hashes[0] != hashes[1]
    mixed = (*loose, f"data.content={second.record.provenance.data}", "evaluation=ten_view")
    with pytest.raises(
        InputError, match=r"data\.content=\w+ is not the hash of the data, which is unpinned-"
    ):
        train(compose_config(*mixed), {})


def test_changed_labels_are_refused(prepared: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(prepared, tmp_path / "changed"))
    index = np.load(root / "train" / "index.npy")
    index["label"] = 0
    np.save(root / "train" / "index.npy", index)
    with pytest.raises(
        InputError, match=r"train/index\.npy is not what was written there; pull the data again"
    ):
        imagenet(str(root))


def test_missing_prepared_data_is_reported_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"has no manifest\.json; prepare the archives first \(dvc repro pipelines"
    ):
        open_source(compose_config("data=imagenet", f"data.root={tmp_path}"))


def test_a_project_without_locks_pins_nothing(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "CHECKOUT", tmp_path)
    assert imagenet(str(prepared)).pinned is False
