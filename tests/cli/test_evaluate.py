"""`scripts/evaluate.py` tests a finished run without training."""

import json
import lzma
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import torch
import yaml

from conftest import ROOT, compose_config, places
from rectifiers import PReLU
from rectifiers.cli import composition
from rectifiers.cli.composition import composed
from rectifiers.cli.finished import of_run
from rectifiers.data.preprocess import load_preprocess
from rectifiers.data.sources import Source
from rectifiers.evaluation.evaluate import Result, evaluate, load_scores
from rectifiers.evaluation.metrics import mean_log_scores
from rectifiers.runs import record as records
from rectifiers.runs.config import RunConfig
from rectifiers.runs.identity import run_id, science
from rectifiers.training import build
from rectifiers.training.checkpoints import load_weights
from rectifiers.training.targets import import_functions
from rectifiers.training.train import Outcome, train
from refusals import refused
from sentences import sentence as sentence_of

SIZES = ("model.width=0.0625", "model.dropout=0.5", "trainer.max_epochs=1")
SIZES += ("threads=1", "logger=none", "evaluation=center")


@pytest.fixture
def evaluate_py(call) -> Callable[..., CompletedProcess[str]]:
    return partial(call, "scripts/evaluate.py")


def trained(place: Path, *more: str) -> Outcome:
    config = compose_config(*SIZES, *places(place), *more)
    return train(config, {"data": "digits"})


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Outcome:
    return trained(tmp_path_factory.mktemp("evaluate"))


@pytest.fixture
def folder(finished: Outcome, tmp_path: Path) -> Path:
    """A copy of the run, to which a test may write."""
    return Path(shutil.copytree(finished.path.parent, tmp_path / "runs" / finished.record.run))


def test_no_other_run_is_tested(evaluate_py, finished: Outcome) -> None:
    """A name that is mistyped, in a run's folder or of a file there, is not that run's."""
    folder = finished.path.parent
    for typed in (f"run={folder}/typo", "run=typo"):
        done = evaluate_py(typed, f"runs_dir={folder.parent}", cwd=folder)
        assert done.returncode != 0
        assert "is not a finished run" in done.stderr


def test_run_is_tested_without_its_first_checkpoint(evaluate_py, tmp_path: Path) -> None:
    run = trained(tmp_path)
    run.path.unlink()
    kept = Path(shutil.copy(run.path.with_name("last.ckpt"), tmp_path / "kept.ckpt"))
    again = trained(tmp_path, f"ckpt_path={kept}")
    kept.unlink()
    done = evaluate_py(f"run={again.path.parent}", "evaluation=ten_view")
    assert done.returncode == 0, done.stderr


@pytest.mark.process
def test_a_run_is_tested_by_name_or_folder(evaluate_py, finished: Outcome, folder: Path) -> None:
    checkpoint = (folder / "last.ckpt").read_bytes()
    named = (f"run={folder.name}", f"runs_dir={folder.parent}")
    done = evaluate_py(*named, "evaluation=dense_multi_scale")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(folder / "record.json")
    found = records.load(folder / "record.json")
    assert set(found.protocols) == {"center", "dense_multi_scale"}
    # of the run's own data
    assert found.protocols["dense_multi_scale"].settings["scales_px"] == [36, 54, 68]
    assert set(found.protocols["dense_multi_scale"].by_scale) == {"36", "54", "68"}
    rest = [r.model_dump(exclude={"protocols"}) for r in (found, finished.record)]
    assert rest[0] == rest[1]
    asked = ("evaluation=dense", "evaluation.dense.scales_px=[40]", "data.num_workers=1")
    done = evaluate_py(f"run={folder}", *asked)
    assert done.returncode == 0, done.stderr
    assert records.load(folder / "record.json").protocols["dense"].settings["scales_px"] == [40]
    assert (folder / "last.ckpt").read_bytes() == checkpoint


def test_nested_or_linked_run_is_found(finished: Outcome, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    nested = shutil.copytree(
        finished.path.parent, runs / "searches" / "older" / finished.record.run
    )
    for name in (nested.name, nested.name[:6], str(nested)):
        assert of_run(name, {"runs_dir": str(runs)})[0].runs_dir == nested.parent
    outer = shutil.copytree(nested, runs / nested.name)
    assert of_run(outer.name[:6], {"runs_dir": str(runs)})[0].runs_dir == runs
    latest = finished.path.parent.parent / "latest"
    assert of_run(str(latest), {})[0].runs_dir == latest.parent


@pytest.mark.process
def test_several_runs_are_an_ensemble(evaluate_py, tmp_path: Path) -> None:
    """From kept scores it says what the networks say together, by every protocol and through the
    command line."""
    parts = [trained(tmp_path, f"seed={seed}") for seed in (0, 1, 2)]
    ids = [part.path.parent.name for part in parts]
    asked = (f"runs_dir={tmp_path}/runs", "evaluation=[center,dense]", "threads=1")
    done = evaluate_py(f"run=[{','.join(ids)}]", *asked)
    assert done.returncode == 0, done.stderr
    whole = records.load(Path(done.stdout.splitlines()[-1]))
    assert whole.science == {"members": sorted(ids)}
    config = compose_config(*SIZES, "evaluation=[center,dense]")
    functions = import_functions(config)
    source = build.open_source(config, functions)
    for name in ("center", "dense"):
        protocol = functions[f"evaluation.{name}"](32)
        members = []
        for part in sorted(parts, key=lambda part: part.record.run):
            scored = Scored(config, part.path.parent)
            tested = evaluate(scored, source.val, protocol, classes=10, device=torch.device("cpu"))
            members.append(tested.scores)
        labels = torch.tensor(source.val.labels)
        together = mean_log_scores(torch.stack(members))
        expected = Result.from_scores(together, labels).as_dict()
        found = whole.protocols[name]
        assert found.model_dump(include=set(expected)) == expected
        assert found.top1_correct != parts[0].record.protocols["center"].top1_correct
    assert whole.protocols["center"].top1_correct
    nested = evaluate_py(f"run={whole.run}", f"runs_dir={tmp_path}/runs", "evaluation=center")
    assert "is an ensemble's record and not a training's" in sentence_of(nested.stderr)


def own_weights(folder: Path) -> dict[str, torch.Tensor]:
    state = torch.load(folder / "last.ckpt", weights_only=True)["state_dict"]
    return {n.removeprefix("network."): w for n, w in state.items() if n.startswith("network.")}


class Scored(torch.nn.Module):
    """A run's network read back from its files, without the code that tests runs."""

    def __init__(self, config: RunConfig, folder: Path) -> None:
        super().__init__()
        functions = import_functions(config)
        source = build.open_source(config, functions)
        self.network = build.build_network(config, functions, source, None)[0]
        self.preprocess = load_preprocess(folder / "statistics.pt")
        self.network.load_state_dict(own_weights(folder))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.network(self.preprocess(images))


def test_kept_scores_are_of_the_same_test(evaluate_py, finished: Outcome, folder: Path) -> None:
    kept = folder / "scores" / "center.npz"
    assert not kept.exists()
    keep = (f"run={folder}", "evaluation=center", "evaluation.keep_scores=true")
    assert evaluate_py(*keep).returncode == 0
    first = kept.stat().st_mtime_ns
    found = load_scores(kept)
    assert found.scores.shape == (450, 10)
    assert found.data == finished.record.provenance.data
    right = int((found.scores.argmax(1) == found.labels).sum())
    assert right == finished.record.protocols["center"].top1_correct
    assert evaluate_py(*keep).returncode == 0
    assert kept.stat().st_mtime_ns == first  # they were there: nothing was tested
    assert evaluate_py(*keep[:2], "evaluation.center.scale_px=40").returncode == 0
    assert not kept.exists()  # they would be of the other scale


def test_a_plain_state_dict_is_tested(evaluate_py, finished: Outcome, tmp_path: Path) -> None:
    torch.save(own_weights(finished.path.parent), tmp_path / "net.pt")
    known = ("model.width=0.0625", f"cache_dir={tmp_path}", "threads=1")
    known += ("evaluation=[center,ten_view]",)
    done = evaluate_py(f"run={tmp_path}/net.pt", *known, "data=digits")
    assert done.returncode == 0, done.stderr
    error = finished.record.protocols["center"].top1_error_pct
    assert f"{error:.2f}" in next(line for line in done.stdout.splitlines() if "center" in line)
    assert {p.name for p in tmp_path.iterdir()} == {"net.pt", "statistics"}
    with refused(r"it is the checkpoint of a run, give run=<its folder>"):
        load_weights(finished.path.parent / "last.ckpt")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "run="),
        (("run=0123456789ab",), "run=0123456789ab is not a finished run"),
        (("run=net.pt", "model=small14"), "run=net.pt is not a finished run"),
        (("run=nowhere/weights", "activation=relu"), "no file nowhere/weights of weights"),
    ],
)
def test_what_cannot_be_tested_is_named(evaluate_py, arguments, named) -> None:
    done = evaluate_py(*arguments)
    assert done.returncode == 1
    assert named in sentence_of(done.stderr)


def test_testing_cannot_change_a_runs_keys(evaluate_py, finished: Outcome) -> None:
    done = evaluate_py(f"run={finished.path.parent}", "trainer.precision=64-true")
    assert "trainer.precision belongs to the run" in sentence_of(done.stderr)


CLAIM = (
    "claim=mean_response",
    "activation=relu",
    "trainer.max_epochs=1",
    "scheduler.milestones=[]",
    "threads=1",
    "logger=none",
)


@pytest.mark.parametrize(
    ("typed", "choices"),
    [
        (SIZES, {}),  # from Python
        (CLAIM, {"claim": "mean_response", "data": "digits8", "activation": "relu"}),
        ((*SIZES, "data=digits8", "model=mini"), {"data": "a word"}),
    ],
)
def test_a_run_of_any_origin_is_tested_anywhere(
    evaluate_py, tmp_path: Path, typed: tuple[str, ...], choices: dict[str, str]
) -> None:
    run = train(compose_config(*typed, "evaluation=center", *places(tmp_path)), choices)
    elsewhere = Path(shutil.copytree(run.path.parent, tmp_path / "copied" / run.record.run))
    shutil.rmtree(tmp_path / "runs")
    done = evaluate_py(f"run={elsewhere}", "evaluation=ten_view", f"cache_dir={tmp_path}/cache")
    assert done.returncode == 0, done.stderr
    found = records.load(elsewhere / "record.json")
    assert set(found.protocols) == {"center", "ten_view"}
    assert found.protocols["ten_view"].settings["scale_px"] == found.science["data"]["resize_px"]


def with_config(outcome: Outcome, place: Path, **of_data: object) -> str:
    """A copy of a run, whose config.yaml says this of the data."""
    folder = Path(shutil.copytree(outcome.path.parent, place / outcome.record.run))
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["data"] |= of_data
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return str(folder)


def test_a_run_is_tested_at_its_own_scales(finished: Outcome, tmp_path: Path) -> None:
    folder = with_config(finished, tmp_path, dense_scales_px=[40], view_scales_px=[44, 48])
    asked = {"evaluation": "[dense_multi_scale,multi_view]"}
    for typed, dense in (({}, [40]), ({"data.dense_scales_px": "[52]"}, [52])):
        protocols = of_run(folder, asked | typed)[0].evaluation.protocols
        scales = {name: list(test.options["scales_px"]) for name, test in protocols.items()}
        assert scales == {"dense_multi_scale": dense, "multi_view": [44, 48]}


BAD_SCALES = [{"a": 1}, ["${oc.env:HOME}"], [40] * 1000, [[40]], ["wide"], -3]


@pytest.mark.parametrize("scales", BAD_SCALES)
def test_scales_that_are_none_are_refused(finished: Outcome, tmp_path: Path, scales) -> None:
    folder = with_config(finished, tmp_path, dense_scales_px=scales)
    with refused("dense_scales_px"):
        of_run(folder, {"evaluation": "dense_multi_scale"})


def test_changed_conf_leaves_a_run_unchanged(
    finished: Outcome, tmp_path: Path, monkeypatch
) -> None:
    conf = Path(shutil.copytree(composition.CONF, tmp_path / "conf"))
    for name, before, after in (
        ("optim/paper.yaml", "momentum: 0.9", "momentum: 0.5"),
        ("data/digits.yaml", "resize_px: 36", "resize_px: 40"),
        ("train.yaml", "pad_px: 0", "pad_px: 3"),  # which a record does not hold
        ("train.yaml", "timeout_s: 600", "timeout_s: 60"),
    ):
        text = (conf / name).read_text()
        assert before in text
        (conf / name).write_text(text.replace(before, after))
    monkeypatch.setattr(composition, "CONF", conf)
    config, _, _ = of_run(str(finished.path.parent), {"evaluation": "ten_view"})
    assert science(config) == finished.record.science
    settings = config.evaluation.protocols["ten_view"].options
    assert (settings["scale_px"], settings["pad_px"]) == (36, 0)
    assert config.timeout_s == 60  # how it is computed, conf/ says


# the first run of layout 4, kept as it was
OLDER = ROOT / "tests" / "support" / "older_run" / "18c58690eaaf"


def test_a_checkpoint_of_an_older_commit_is_tested(evaluate_py, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(OLDER, tmp_path / OLDER.name))
    content = json.loads((folder / "record.json").read_text())
    before = content["protocols"].pop("center")
    (folder / "record.json").write_text(json.dumps(content))
    done = evaluate_py(f"run={folder}", "evaluation=center", f"cache_dir={tmp_path}/cache")
    assert done.returncode == 0, done.stderr
    after = records.load(folder / "record.json").protocols["center"]
    assert (after.top1_correct, after.correct_mask) == (
        before["top1_correct"],
        before["correct_mask"],
    )
    assert after.nll == pytest.approx(before["nll"])


def test_older_record_is_refused_in_one_line(
    evaluate_py, finished: Outcome, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(finished.path.parent, tmp_path / finished.record.run))
    text = (folder / "record.json").read_text()
    (folder / "record.json").write_text(text.replace('"schema_version": 4', '"schema_version": 3'))
    done = evaluate_py(f"run={folder}")
    assert done.returncode == 1
    assert "schema_version=3 is of an older version" in sentence_of(done.stderr)


@pytest.mark.process
def test_committed_records_are_configurations(tmp_path: Path) -> None:
    """One of each claim, and those of the tables."""
    results = ROOT / "results"
    texts = [path.read_bytes() for path in sorted((results / "records").glob("*.json"))]
    for path in sorted((results / "claims").rglob("*.jsonl.xz")):
        with lzma.open(path) as lines:
            texts.append(next(iter(lines)))
    for text in texts:
        record = records.parse(text)
        if isinstance(record, records.EnsembleRecord) or record.status == "diverged":
            continue
        folder = tmp_path / record.run
        folder.mkdir()
        (folder / "record.json").write_bytes(text)
        assert run_id(science(of_run(str(folder), {})[0])) == record.run


MY_FILE = """
from torch import nn
from rectifiers.data.preprocess import scalar_mean
from rectifiers.data.sources import digits

def net(activation, classes, channels, input_px, hidden: int = 4):
    convolution, norm = nn.Conv2d(channels, hidden, 3), nn.BatchNorm2d(hidden)
    pool = nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(convolution, norm, activation(hidden), *pool, nn.Linear(hidden, classes))

def mean(moments):
    return scalar_mean(moments)

def source():
    return digits()
"""
OWN = "model=my_own.net preprocess=my_own.mean data=my_own.source data.resize_px=8 data.crop_px=8"


@pytest.fixture
def own(tmp_path: Path, monkeypatch) -> tuple[str, ...]:
    """The overrides of a network, a preprocessing and data of the user's own."""
    (tmp_path / "my_own.py").write_text(MY_FILE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_own", raising=False)
    return (*OWN.split(), f"cache_dir={tmp_path}/cache", "evaluation=center", "threads=1")


def own_state(hidden: int = 4) -> dict[str, torch.Tensor]:
    import my_own

    torch.manual_seed(0)
    return my_own.net(lambda channels: PReLU(channels), 10, 1, 8, hidden).state_dict()


def test_functions_of_ones_own_need_no_further_keys(own) -> None:
    config = composed(own)
    names = (config.model.target, config.preprocess.target, config.data.target)
    assert names == ("my_own.net", "my_own.mean", "my_own.source")
    assert composed(["preprocess=my_own.mean"]).preprocess.scale == 1
    assert composed(["data=my_own.source"]).data.crop_px == 224
    assert composed(["model=my_own.net", "model.hidden=3"]).model.builder().options == {"hidden": 3}


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.module.", "network."])
def test_plain_weights_of_ones_own_network_fit(own, prefix, tmp_path, evaluate_py) -> None:
    state = {f"{prefix}{name}": weight for name, weight in own_state().items()}
    torch.save(state, tmp_path / "net.pt")
    done = evaluate_py(f"run={tmp_path}/net.pt", *own)
    assert done.returncode == 0, done.stderr
    assert "450 of test" in done.stdout


def test_training_starts_from_plain_weights(own, tmp_path: Path) -> None:
    torch.save(own_state(), tmp_path / "net.pt")
    start = f"init.from_weights={tmp_path}/net.pt"
    typed = (*own, f"runs_dir={tmp_path}/runs", start, "logger=none")
    config = composed([*typed, "trainer.max_epochs=1", "optim.lr=1e-20", "optim.weight_decay=0"])
    run = train(config, {})
    trained = torch.load(run.path.with_name("last.ckpt"), weights_only=True)["state_dict"]
    for name in ("0.weight", "2.weight", "5.bias"):
        assert torch.equal(trained[f"network.module.{name}"], own_state()[name])
    assert {entry.rule for entry in run.record.init_report} == {"weights"}


def test_other_weights_are_refused_before_images(own, call, tmp_path, monkeypatch) -> None:
    torch.save(own_state(hidden=5), tmp_path / "net.pt")
    monkeypatch.setattr(Source, "inspected", lambda *_, **__: pytest.fail("images are read"))
    network = (*own, f"runs_dir={tmp_path}/runs")
    done = call("scripts/evaluate.py", f"run={tmp_path}/net.pt", *network)
    assert done.returncode == 1
    assert sentence_of(done.stderr).startswith("the weights are of another network: 0.bias is (5,)")
    done = call("train.py", f"init.from_weights={tmp_path}/net.pt", *network)
    assert done.returncode == 1
    assert "no layer of this network fits by name and shape" in sentence_of(done.stderr)
    assert not (tmp_path / "runs").exists()
