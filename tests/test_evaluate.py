"""`scripts/evaluate.py` tests a finished run without training."""

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, compose_config
from rectifiers.runs import record as records
from rectifiers.training.run import Outcome, train

SIZES = (
    "model.width=0.0625", "model.dropout=0.5", "optim.epochs=1", "compute.threads=1", "logger=none",
    "evaluation=center",
)  # fmt: skip


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "scripts/evaluate.py", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    place = tmp_path_factory.mktemp("evaluate")
    return train(compose_config(*SIZES, f"runs_dir={place}/runs", f"cache_dir={place}/cache"), {"data": "digits"})


def test_a_finished_run_is_tested_by_its_name_or_its_folder(finished: Outcome) -> None:
    folder = finished.path.parent
    checkpoint = (folder / "last.ckpt").read_bytes()
    done = call(f"run={folder.name}", f"runs_dir={folder.parent}", "evaluation=dense_multi_scale")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(finished.path)
    found = records.load(finished.path)
    assert set(found["protocols"]) == {"center", "dense_multi_scale"}
    assert found["protocols"]["dense_multi_scale"]["settings"]["scales_px"] == [36, 54, 68]  # of the run's own data
    assert set(found["protocols"]["dense_multi_scale"]["by_scale"]) == {"36", "54", "68"}
    assert {**found, "protocols": 0} == {**finished.record, "protocols": 0}
    done = call(f"run={folder}", "evaluation=dense", "evaluation.dense.scales_px=[40]", "compute.workers=1")
    assert done.returncode == 0, done.stderr
    assert records.load(finished.path)["protocols"]["dense"]["settings"]["scales_px"] == [40]
    assert (folder / "last.ckpt").read_bytes() == checkpoint


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "error: no run is given; call scripts/evaluate.py run="),
        (
            ("run=0123456789ab",),
            "error: run=0123456789ab is no finished run: there is no runs/0123456789ab/record.json",
        ),
        (("run=x", "activation=relu"), "error: activation belongs to the run and cannot be changed in a test"),
        (("run=x", "compute.precision=64-true"), "error: compute.precision belongs to the run"),
    ],
)
def test_what_cannot_be_tested_is_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    done = call(*arguments)
    assert done.returncode == 1
    assert done.stderr.startswith(sentence)
    assert len(done.stderr.splitlines()) == 1


def test_a_damaged_checkpoint_is_one_sentence(finished: Outcome, tmp_path: Path) -> None:
    folder = finished.path.parent
    content = (folder / "last.ckpt").read_bytes()
    try:
        (folder / "last.ckpt").write_bytes(content[: len(content) // 2])
        done = call(f"run={folder}", "evaluation=ten_view")
    finally:
        (folder / "last.ckpt").write_bytes(content)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"error: {folder / 'last.ckpt'} cannot be read as a checkpoint")
    assert "Traceback" not in done.stderr
