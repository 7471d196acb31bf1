"""The data pipeline as a user calls it, in a clone: reproduced to the pinned bytes, checked,
shared, trained on."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from conftest import ROOT, load_script, require
from made_up import training
from rectifiers.data.imagenet.archives import Expected
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import write_text
from refusals import refused

BIN = Path(sys.executable).parent
VERIFY = load_script("verify_data")
PARTS = ("src", "conf", "scripts", "pipelines", "train.py", "dvc.yaml", "data.dvc")
PARTS += (".dvcignore", ".gitignore", "params.yaml")
MINIATURE, LOCK = "pipelines/miniature/dvc.yaml", "pipelines/miniature/dvc.lock"
PREPARE = f"{MINIATURE}:prepare"


@dataclass(frozen=True)
class Clone:
    """A checkout of its own, with its own cache and DVC's notes of it."""

    root: Path

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess:
        own = {k: v for k, v in os.environ.items() if not k.startswith(("DVC_", "GIT_"))}
        own |= {"PATH": f"{BIN}:{own['PATH']}", "PYTHONPATH": str(self.root / "src")}
        own |= {"DVC_SITE_CACHE_DIR": str(self.root / ".dvc" / "tmp" / "site"), **environment}
        return subprocess.run(command, cwd=self.root, capture_output=True, text=True, env=own)

    def good(self, *command: str, **environment: str) -> str:
        done = self.run(*command, **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def commit(self) -> None:
        self.good("git", "add", "--all", ".")
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        self.good("git", *who, "commit", "--quiet", "--message=x")


def clone(root: Path) -> Clone:
    require("git")
    root.mkdir()
    for name in PARTS:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, root / name)
    (root / ".dvc").mkdir()
    for name in ("config", ".gitignore"):
        shutil.copy(ROOT / ".dvc" / name, root / ".dvc" / name)
    made = Clone(root)
    made.good("git", "init", "--quiet")
    made.commit()
    return made


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Clone:
    """A clone in which `dvc repro` ran."""
    here = clone(tmp_path_factory.mktemp("pipeline") / "clone")
    here.good("dvc", "repro", "--quiet", MINIATURE)
    return here


@pytest.mark.process
def test_repro_gives_the_pinned_bytes_once(made: Clone) -> None:
    assert (made.root / LOCK).read_bytes() == (ROOT / LOCK).read_bytes()
    again = made.good("dvc", "repro", MINIATURE)
    assert again.count("didn't change, skipping") == 3
    assert "Running stage" not in again
    assert (made.root / "data.dvc").read_bytes() == (ROOT / "data.dvc").read_bytes()
    assert "are as pinned" in made.good("python", "scripts/verify_data.py")


@pytest.fixture(scope="module")
def whole(miniature: Expected, prepared: Path, tmp_path_factory) -> Path:
    """A project whose data lie where dvc.yaml puts them."""
    root = tmp_path_factory.mktemp("whole")
    shutil.copytree(ROOT / "pipelines", root / "pipelines")
    shutil.copytree(miniature.archives["train"].path.parent, root / "data" / "raw" / "miniature")
    shutil.copytree(prepared, root / "data" / "prepared" / "miniature")
    verified = {archive.path.name: archive.md5 for archive in miniature.archives.values()}
    write_text(root / "data" / "verified" / "miniature.json", json.dumps(verified, indent=1) + "\n")
    return root


def test_whole_project_verifies(whole: Path) -> None:
    assert list(VERIFY.find_errors(whole)) == []


VICTIMS = [
    "data/raw/miniature/ILSVRC2012_img_train.tar",
    "data/prepared/miniature/train/shard-00002.bin",
]


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_flipped_byte_is_found_and_named(victim: str, whole: Path) -> None:
    path = whole / victim
    before, times = path.read_bytes(), path.stat()
    flipped = bytearray(before)
    flipped[len(flipped) // 2] ^= 1
    path.write_bytes(flipped)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    sentences = list(VERIFY.find_errors(whole))
    path.write_bytes(before)
    assert sentences[0].startswith(f"{victim} differs from its ")
    assert f"-samefile {victim} names" in sentences[0]
    assert all(victim in sentence for sentence in sentences)


@pytest.mark.slow
def test_a_fresh_clone_trains_on_pulled_shards(made: Clone, tmp_path: Path) -> None:
    store = tmp_path / "store"
    made.good("dvc", "remote", "add", "--default", "store", str(store))
    made.good("dvc", "push", "--quiet", PREPARE)
    there = clone(tmp_path / "there")
    shutil.copy(made.root / ".dvc" / "config", there.root / ".dvc" / "config")
    there.good("dvc", "pull", "--quiet", PREPARE)
    options = """data=imagenet data.root=data/prepared/miniature data.val_per_class=2 model=mlp
        model.depth=2 model.hidden=16 data.resize_px=20 data.crop_px=16 trainer.max_epochs=1
        init.fc_std=null preprocess.scale=unit_rms data.batch_size=12 evaluation=center"""
    there.good("python", "train.py", *options.split())
    (record,) = (there.root / "runs").glob("[0-9a-f]*/record.json")
    assert json.loads(record.read_text())["provenance"]["data_pinned"] is True


@pytest.mark.slow
def test_imagenets_stages_run_on_the_miniature(miniature, tmp_path) -> None:
    """The stages of pipelines/imagenet with the miniature's archives and pins where ImageNet's
    would be."""
    here = clone(tmp_path / "clone")
    pins = here.root / "pipelines" / "imagenet" / "archives.yaml"
    small = (here.root / "pipelines" / "miniature" / "archives.yaml").read_text()
    pins.write_text(small.replace("data/raw/miniature", "data/raw"))
    text = (here.root / "data.dvc").read_text()
    official = [line.split()[1] for line in text.splitlines() if line.strip().startswith("md5")]
    for md5, archive in zip(official, miniature.archives.values(), strict=True):
        text = text.replace(md5, archive.md5)
    (here.root / "data.dvc").write_text(text)
    here.commit()
    (here.root / "data" / "raw").mkdir(parents=True)
    repro = ("dvc", "repro", "pipelines/imagenet/dvc.yaml")

    missing = here.run(*repro)
    assert missing.returncode != 0
    assert "ILSVRC2012_img_train.tar is missing; put the archive" in missing.stderr

    for archive in miniature.archives.values():
        (here.root / "data" / "raw" / archive.path.name).symlink_to(archive.path)
    wrong = here.root / "data" / "raw" / miniature.archives["val"].path.name
    wrong.unlink()
    body = bytearray(miniature.archives["val"].path.read_bytes())
    body[-1] ^= 1
    wrong.write_bytes(body)
    refused = here.run(*repro)
    assert refused.returncode != 0
    assert "ILSVRC2012_img_val.tar has the md5" in refused.stderr
    assert (here.root / "data.dvc").read_text() == text  # the pin was not rewritten
    assert not (here.root / "data" / "prepared").exists()

    shutil.copy(miniature.archives["val"].path, wrong)
    here.good(*repro)
    assert here.run("dvc", "status", "--quiet", "data.dvc").returncode == 0
    again = here.good(*repro)
    assert again.count("didn't change, skipping") == 1  # verify runs always, and costs nothing
    place = here.root / "data" / "prepared" / "imagenet" / "manifest.json"
    manifest = json.loads(place.read_text())
    assert manifest["splits"]["train"]["images"] == 72
    opened = "from rectifiers.data.imagenet import imagenet; print(imagenet().pinned)"
    assert here.good("python", "-c", opened).strip() == "False"  # nobody has committed the lock yet
    here.commit()
    assert here.good("python", "-c", opened).strip() == "True"
    body[0] ^= 1
    wrong.write_bytes(body)
    assert here.run(*repro).returncode != 0
    assert (here.root / "data.dvc").read_text() == text


@pytest.mark.process
def test_training_stage_feeds_metrics_and_plots(tmp_path: Path) -> None:
    """An experiment with its own choices, beside the metrics that git keeps."""
    here = clone(tmp_path / "clone")
    (here.root / "results" / "dvc").mkdir(parents=True)
    for name in ("metrics.json", "epochs.csv"):
        shutil.copy(ROOT / "results" / "dvc" / name, here.root / "results" / "dvc" / name)
    here.commit()
    small = ["data=digits8", "model=mini", "activation=relu", "trainer.max_epochs=1"]
    changes = [part for setting in small for part in ("-S", setting)]
    # DVC sees no change in a machine's defaults, whose numbers would be taken for those of params
    defaults = "# @package _global_\ndata: {batch_size: 64}\n"
    write_text(here.root / "conf" / "local" / "default.yaml", defaults)
    here.good("dvc", "exp", "run", *changes, RECTIFIERS_LOCAL="")
    (row,) = (here.root / "runs").glob("[0-9a-f]*/record.json")
    assert json.loads(row.read_text())["science"]["data"]["batch_size"] == 128
    assert (here.root / "data" / "trained" / "last.ckpt").is_file()
    metrics = json.loads(here.good("dvc", "metrics", "diff", "--json"))
    assert "test.center.error_top1" in metrics["results/dvc/metrics.json"]
    params = json.loads(here.good("dvc", "params", "diff", "--json"))
    assert params["params.yaml"]["activation"] == {"old": "prelu", "new": "relu"}
    assert "failed to load" not in here.run("dvc", "plots", "diff").stderr
    changed = {line.split()[1] for line in here.good("git", "status", "--short").splitlines()}
    shown = {f"results/dvc/{name}" for name in ("metrics.json", "epochs.csv")}
    assert changed == {"params.yaml", "dvc.lock", *shown}


def test_second_rank_writes_nothing(tmp_path: Path, monkeypatch) -> None:
    stage = load_script("train_stage")
    (tmp_path / "params.yaml").write_text("data: digits8\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stage, "run_job", lambda *_: training())
    monkeypatch.setattr(stage, "world", lambda: SimpleNamespace(rank=1))
    stage.main()
    assert [path.name for path in tmp_path.iterdir()] == ["params.yaml"]


@pytest.mark.process
def test_queued_training_uses_its_own_sources(tmp_path: Path) -> None:
    """In the copy that DVC makes for it, although another checkout may be installed."""
    here = clone(tmp_path / "clone")
    script = here.root / "scripts" / "train_stage.py"
    script.write_text("import rectifiers\nprint('of', rectifiers.__file__)\nraise SystemExit(3)\n")
    here.commit()
    done = here.run("dvc", "exp", "run", "--temp", "-S", "seed=1")
    assert str(here.root / ".dvc" / "tmp" / "exps") in done.stdout.partition("of ")[2]


@pytest.mark.parametrize("text", ["", "3", "[relu]", "activation: ["])
def test_params_that_are_no_mapping_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(text)
    stage = load_script("train_stage")
    with refused(r"params\.yaml .*; give a mapping"):
        stage.overrides_of(tmp_path / "params.yaml")


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("model: {dropout: 0.3}", "-S ++overrides.model.dropout=0.3"),
        ("evaluation: {keep_scores: true}", "-S ++overrides.evaluation.keep_scores=True"),
        ("trainer: gpu", "-S ++overrides.trainer=gpu"),
        ("overrides: {init: he}", "-S ++init=he"),
        ("overrides: {optim: {momentum: 0.8}}", "-S ++optim.momentum=0.8"),
        ("overrides: 3", "-S ++overrides."),
    ],
)
def test_param_that_would_replace_another_is_refused(
    text: str, remedy: str, tmp_path: Path
) -> None:
    (tmp_path / "params.yaml").write_text(text)
    with pytest.raises(InputError) as refused:
        load_script("train_stage").overrides_of(tmp_path / "params.yaml")
    assert remedy in str(refused.value)


def test_params_give_names_beside_keys(tmp_path: Path) -> None:
    text = "model: mini\ntrainer: {max_epochs: 2}\n"
    text += "overrides: {model: {dropout: 0.3}, trainer: gpu}\n"
    (tmp_path / "params.yaml").write_text(text)
    overrides = load_script("train_stage").overrides_of(tmp_path / "params.yaml")
    assert overrides == ["model=mini", "trainer.max_epochs=2", "model.dropout=0.3", "trainer=gpu"]


def test_params_are_written_as_hydra_reads_them(tmp_path: Path) -> None:
    text = "ckpt_path: /a/ü b\noptim: {lr: 1e-3}\ncallbacks: null\ntags: [a, b c]\nfast: true\n"
    (tmp_path / "params.yaml").write_text(text, encoding="utf-8")
    overrides = load_script("train_stage").overrides_of(tmp_path / "params.yaml")
    assert overrides == [
        "ckpt_path='/a/ü b'",
        "optim.lr=1e-3",
        "callbacks=null",
        "tags=[a, b c]",
        "fast=true",
    ]
