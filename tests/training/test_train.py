"""Whole runs on real digits, through Lightning, a second each."""

import csv
import os
import pkgutil
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning.callbacks import Callback

from conftest import TINY, compose_config, numbers, places, same_bits, weights
from cutting import cut
from made_up import altered
from photos import write_folder
from rectifiers.data.datamodule import TrainDataset
from rectifiers.evaluation.evaluate import evaluate, load_scores
from rectifiers.evaluation.protocols import Crops
from rectifiers.runs import record as records
from rectifiers.runs.folder import scores_path
from rectifiers.runs.provenance import code_fingerprint
from rectifiers.runtime.errors import InputError
from rectifiers.training.checkpoints import AtomicCheckpointIO
from rectifiers.training.train import Outcome, train
from refusals import refused

CHOICES = {"activation": "prelu", "init": "he", "model": "mlp", "data": "digits"}


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("activation=dks", "logger=[csv,tensorboard]", "callbacks=early_stopping"),
        ("activation=maxout", "scheduler=cosine", "optim=adamw"),
    ],
)
def test_each_function_is_imported_once(tiny, monkeypatch, options: tuple[str, ...]) -> None:
    imported: Counter[str] = Counter()

    def resolve_name(name: str) -> object:
        imported[name] += 1
        return original(name)

    original = pkgutil.resolve_name
    monkeypatch.setattr(pkgutil, "resolve_name", resolve_name)
    config = tiny("trainer.max_epochs=1", *options)
    train(config, CHOICES)
    assert imported == Counter(target.target for target in config.targets().values())


def test_a_run_leaves_its_whole_story(tiny) -> None:
    outcome = train(tiny(), CHOICES)
    folder, record = outcome.path.parent, outcome.record
    assert outcome.fresh
    assert record == records.load(outcome.path)
    files = "config.yaml last.ckpt metrics.csv record.json statistics.pt"
    assert sorted(p.name for p in folder.iterdir()) == files.split()
    assert folder.name == record.run
    assert (record.status, record.epochs, record.drop_epochs) == ("finished", 3, [])
    assert record.choices == CHOICES
    for protocol in ("center", "ten_view"):
        result = record.protocols[protocol]
        assert result.num_images == 450
        assert result.top1_error_pct < 60  # chance is 90
    assert record.network.parameters == 64 * 32 + 32 + 32 * 32 + 32 + 32 * 10 + 10 + 64
    assert record.network.slopes == 64
    assert [entry.layer for entry in record.init_report] == ["fc_1", "fc_2", "out"]
    rows = list(csv.DictReader((folder / "metrics.csv").open()))
    assert [int(row["epoch"]) for row in rows] == [1, 2, 3]
    assert [float(row["train/loss"]) for row in rows] == record.curve("train_loss")
    assert record.history[-1]["val/top1_error_pct"] == record.protocols["center"].top1_error_pct
    assert record.codes == [code_fingerprint()]
    assert record.class_names == [str(digit) for digit in range(10)]


def test_combined_testing_averages_both_in_one_pass(tmp_path, monkeypatch):
    both = ("evaluation=[dense_multi_scale,multi_view,dense_and_multi_view]",)
    sizes = ("data.dense_scales_px=[8,11]", "data.view_scales_px=[8,10,12]")
    options = (*MINI[:3], "logger=none", "trainer.max_epochs=1", *both, *sizes, *places(tmp_path))
    passes = []

    def counted(*arguments: Any, **settings: Any) -> Any:
        passes.append(arguments[2])
        return evaluate(*arguments, **settings)

    monkeypatch.setattr("rectifiers.training.recording.evaluate", counted)
    outcome = train(compose_config(*options, "evaluation.keep_scores=true"), {})
    assert len(passes) == 2
    names = ("dense_multi_scale", "multi_view", "dense_and_multi_view")
    dense, views, mean = (load_scores(scores_path(outcome.path.parent, name)) for name in names)
    assert np.abs(dense.scores - views.scores).max() > 1e-3
    by_hand = (np.exp(dense.scores) + np.exp(views.scores)) / 2
    np.testing.assert_allclose(np.exp(mean.scores), by_hand, atol=1e-7)
    result = outcome.record.protocols["dense_and_multi_view"]
    right = (mean.scores.argmax(1) == mean.labels).sum()
    assert result.top1_correct == right
    speeds = [1 / outcome.record.protocols[name].images_per_second for name in names]
    assert speeds[2] == pytest.approx(speeds[0] + speeds[1])


@dataclass(frozen=True)
class WeightedViews(Crops):
    weights: torch.Tensor


def twice(image: torch.Tensor) -> torch.Tensor:
    return torch.stack([image, image])


def weighted_views(crop_px: int) -> WeightedViews:
    return WeightedViews(twice, 2, crop_px, (crop_px, crop_px), torch.ones(2))


def test_protocols_of_the_users_need_not_be_comparable(tiny) -> None:
    two = (f"+evaluation.{name}._target_={__name__}.weighted_views" for name in "ab")
    record = train(tiny("trainer.max_epochs=1", *two), CHOICES).record
    assert record.protocols["a"].top1_errors == record.protocols["b"].top1_errors


def test_terminal_shows_no_bar_unasked(tiny, monkeypatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    tiny_config = tiny("trainer.max_epochs=1", "trainer.enable_progress_bar=false")
    assert train(tiny_config, CHOICES).record.status == "finished"


@pytest.mark.parametrize("key", ["limit_train_batches", "overfit_batches"])
def test_less_than_a_batch_is_refused(tiny, key: str) -> None:
    with refused(rf"^trainer\.{key}=0\.001 .* trainer\.{key}=1$"):
        train(tiny(f"trainer.{key}=0.001"), CHOICES)


def test_what_lightning_refuses_is_bad_input(tiny) -> None:
    mode = ("callbacks=early_stopping", "callbacks.early_stopping.mode=most")
    with refused(r"most"):
        train(tiny(*mode), CHOICES)


def test_one_batch_over_and_over_is_learned(tiny) -> None:
    overfit = ("debug=overfit", "trainer.max_epochs=80", "optim.lr=0.05", "model.dropout=0")
    record = train(tiny(*overfit), CHOICES).record
    assert record.curve("train_loss")[-1] < 0.05 < record.curve("train_loss")[0]


def test_held_out_images_test_a_finished_run(tiny) -> None:
    record = train(tiny("data.protocol=held_out"), CHOICES).record
    assert record.images.model_dump() == {"train": 1077, "val": 270, "test": 450}
    tested = {(result.split, result.num_images) for result in record.protocols.values()}
    assert tested == {("test", 450)}
    wrong = [row["val/top1_error_pct"] * 270 / 100 for row in record.history]
    assert wrong == pytest.approx([round(each) for each in wrong])
    papers = train(tiny(), CHOICES).record
    assert papers.images.model_dump() == {"train": 1347, "val": 450, "test": None}
    assert {result.split for result in papers.protocols.values()} == {"val"}
    assert papers.provenance.data == record.provenance.data
    assert papers.provenance.statistics != record.provenance.statistics


def test_a_run_names_the_module_given_by_target(tiny) -> None:
    config = tiny("activation=relu", "trainer.max_epochs=1")
    own = config.replaced({"activation._target_": "torch.nn.LeakyReLU"})
    record = train(own, {**CHOICES, "activation": "relu"}).record
    leaky = "LeakyReLU(negative_slope=0.01)"
    assert record.choices["activation"] == record.network.activation == leaky


def test_rerun_archives_the_old_run_with_equal_bits(tiny) -> None:
    first = train(tiny(), CHOICES)
    kept = weights(first)
    second = train(tiny("rerun=true"), CHOICES)
    assert second.fresh
    assert second.path == first.path
    old = first.path.parent.parent / "replaced" / f"{first.record.run}-1"
    assert records.load(old / "record.json") == first.record
    assert all(torch.equal(kept[name], value) for name, value in weights(second).items())
    train(tiny("rerun=true"), CHOICES)
    names = [f"{first.record.run}-{number}" for number in (1, 2)]
    assert sorted(path.name for path in old.parent.iterdir()) == names


def test_an_added_protocol_leaves_the_training_facts(tiny) -> None:
    first = train(tiny("evaluation=[center]"), CHOICES)

    def files() -> dict[str, bytes]:
        paths = {path.name: path for path in first.path.parent.iterdir()}
        del paths["record.json"], paths["metrics.csv"]  # which have the results
        return {name: path.read_bytes() for name, path in paths.items()}

    before = files()
    elsewhere = altered(first.record, {"provenance.machine.cpu": "another machine"})
    records.write(first.path, elsewhere)
    second = train(tiny("evaluation=[ten_view]", "data.num_workers=2"), CHOICES)
    kept = [r.model_dump(exclude={"protocols"}) for r in (second.record, elsewhere)]
    assert kept[0] == kept[1]
    assert files() == before
    assert second.record.protocols.keys() == {"center", "ten_view"}
    whole = train(tiny("runs_dir=" + str(first.path.parents[2] / "whole")), CHOICES)
    assert numbers(whole.record)["protocols"] == numbers(second.record)["protocols"]
    (first.path.parent / "last.ckpt").unlink()
    again = "+evaluation.twice={_target_:rectifiers.evaluation.protocols.center,scale_px:10}"
    with refused(r"evaluation=\[twice\] needs .*last\.ckpt"):
        train(tiny("evaluation=[]", again), CHOICES)
    assert records.load(first.path) == second.record


def test_a_rerun_that_was_killed_goes_on(tiny, monkeypatch) -> None:
    first = train(tiny(), CHOICES)

    def kill(*_: object, **__: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as killed:
        killed.setattr("rectifiers.training.recording.evaluate", kill)
        with pytest.raises(RuntimeError, match="killed"):
            train(tiny("rerun=true"), CHOICES)
    stamp = (first.path.parent / "last.ckpt").stat().st_mtime_ns
    again = train(tiny("rerun=true"), CHOICES)
    # nothing was trained again
    assert (first.path.parent / "last.ckpt").stat().st_mtime_ns == stamp
    assert numbers(again.record) == numbers(first.record)
    (replaced,) = (first.path.parent.parent / "replaced").iterdir()
    assert replaced.name == f"{first.record.run}-1"


def test_a_rerun_that_cannot_be_built_moves_nothing(tiny, monkeypatch) -> None:
    first = train(tiny(), CHOICES)

    def refuse(*_: object) -> None:
        raise InputError("no such network")

    monkeypatch.setattr("rectifiers.training.build.build_network", refuse)
    with refused("no such network"):
        train(tiny("rerun=true"), CHOICES)
    assert first.path.exists()


def test_an_unusable_checkpoint_is_refused_and_kept(tiny) -> None:
    first = train(tiny(), CHOICES)
    last = first.path.parent / "last.ckpt"
    whole = torch.load(last, weights_only=True)
    first.path.unlink()
    last.write_bytes(last.read_bytes()[:1000])
    with refused(r"last\.ckpt cannot be read.*remove it"):
        train(tiny(), CHOICES)
    assert last.stat().st_size == 1000
    AtomicCheckpointIO().save_checkpoint({**whole, "state_dict": {}}, last)
    (last.parent / "previous.ckpt").unlink(missing_ok=True)
    with refused("the weights are of another network"):
        train(tiny(), CHOICES)


DROPS = (*TINY, "scheduler.patience=1", "scheduler.warmup_epochs=2", "optim.lr=1.0")
DROPS += ("trainer.max_epochs=7", "model.norm=batch", "evaluation=[center]")


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Outcome:
    """A run that nothing interrupts, whose rate drops."""
    place = tmp_path_factory.mktemp("whole")
    config = compose_config(*DROPS, *places(place))
    outcome = train(config, CHOICES)
    assert outcome.record.drop_epochs
    assert len({row["lr"] for row in outcome.record.history}) > 2
    return outcome


@pytest.mark.parametrize(
    ("step", "workers"), [(10, 0), (50, 0), pytest.param(20, 2, marks=pytest.mark.process)]
)
def test_a_resumed_run_has_equal_bits(tiny, whole, step: int, workers: int) -> None:
    """Cut between two of its epochs of ten steps: in its warm-up, at its end, and later."""
    config = tiny(*DROPS, f"data.num_workers={workers}")
    cut(config, step)
    assert not list(config.runs_dir.glob("*/record.json"))
    continued = train(config, CHOICES)
    assert same_bits(weights(whole), weights(continued))
    assert numbers(whole.record) == numbers(continued.record)


DAMAGES = {
    "no schedule": lambda content: content["rectifiers"].pop("schedule"),
    "no codes": lambda content: content["rectifiers"].update(codes=None),
    "numbers as history": lambda content: content["rectifiers"].update(history=[1]),
    "a number as epoch": lambda content: content["rectifiers"].update(epoch_so_far=[3]),
    "numbers as weights": lambda content: content["state_dict"].update(
        dict.fromkeys(content["state_dict"], 3)
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_checkpoint_of_other_content_is_refused(tiny, damage: str) -> None:
    config = tiny("checkpoint.every_n_steps=1")
    cut(config, 2)
    last = next(config.runs_dir.glob("*/last.ckpt"))
    content = torch.load(last, weights_only=True)
    DAMAGES[damage](content)
    torch.save(content, last)
    with refused(r"the run's checkpoint cannot be read \(.*\); remove it"):
        train(config, CHOICES)


def test_run_stopped_within_an_epoch_has_whole_loss(tiny, whole) -> None:
    config = tiny(*DROPS, "checkpoint.every_n_steps=1")
    cut(config, 2)
    assert numbers(train(config, CHOICES).record) == numbers(whole.record)


@pytest.mark.parametrize(
    "option", ["seed=1", "init.first_layer_linear=true", "optim.momentum=0.5", "optim.lr=0.02"]
)
def test_an_option_reaches_the_weights(tiny, option: str) -> None:
    """What is drawn for the seed and the first layer, and what a step does with the momentum and
    the rate."""
    one = train(tiny("trainer.max_epochs=1"), CHOICES)
    other = train(tiny("trainer.max_epochs=1", option), CHOICES)
    assert not same_bits(weights(one), weights(other))
    drawn = [[entry.std_drawn for entry in outcome.record.init_report] for outcome in (one, other)]
    assert (drawn[0] == drawn[1]) == option.startswith("optim")


def test_a_record_names_the_code_of_both_parts(tiny) -> None:
    first = train(tiny(), CHOICES)
    first.path.unlink()
    last = first.path.parent / "last.ckpt"
    checkpoint = torch.load(last, weights_only=True)
    checkpoint["rectifiers"]["codes"] = ["000000000000"]
    AtomicCheckpointIO().save_checkpoint(checkpoint, last)
    (last.parent / "previous.ckpt").unlink()
    assert train(tiny(), CHOICES).record.codes == ["000000000000", code_fingerprint()]


@pytest.mark.parametrize(
    ("precision", "dtype"), [("64-true", torch.float64), ("bf16-mixed", torch.float32)]
)
def test_a_run_trains_at_any_precision(tiny, precision: str, dtype: torch.dtype) -> None:
    outcome = train(tiny(f"trainer.precision={precision}"), CHOICES)
    assert outcome.record.protocols["center"].top1_error_pct < 60
    assert weights(outcome)["network.head.fc_1.weight"].dtype == dtype


def test_data_with_another_hash_are_refused(tiny, tmp_path: Path) -> None:
    write_folder(tmp_path / "photos")
    options = ("data=folder", f"data.root={tmp_path}/photos", "data.batch_size=4")
    first = train(tiny(*options), CHOICES)
    pin = first.record.science["data"]["content"]
    assert not train(tiny(*options, f"data.content={pin}"), CHOICES).fresh
    shutil.copy(tmp_path / "photos/train/b/1.jpg", tmp_path / "photos/train/a/0.jpg")
    with refused(rf"data\.content={pin} is not the hash of the data,"):
        train(tiny(*options, f"data.content={pin}", "seed=1"), CHOICES)
    changed = train(tiny(*options), CHOICES)
    assert changed.fresh
    assert changed.record.run != first.record.run


@pytest.mark.process
def test_a_vector_preprocess_needs_a_vector_network(tiny, tmp_path: Path) -> None:
    reduced = train(tiny("preprocess=pca_reduce", "preprocess.k=20"), CHOICES)
    assert reduced.record.init_report[0].fan_in == 20
    with refused(r"conv1 needs an image.*choose model=mlp"):
        train(compose_config("preprocess=pca", f"cache_dir={tmp_path}"), CHOICES)


def process_state() -> dict:
    return {
        "environment": dict(os.environ),
        "threads": {t.name for t in threading.enumerate()},
        "torch threads": torch.get_num_threads(),
        "torch random": torch.get_rng_state().tolist(),
        "default dtype": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "tf32": (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32),
        "process group": torch.distributed.is_initialized(),
        "signals": [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)],
        "gradients": torch.is_grad_enabled(),
    }


@pytest.mark.parametrize("logger", ["csv", pytest.param("wandb", marks=pytest.mark.process)])
def test_run_leaves_the_process_as_before(tiny, logger: str) -> None:
    # what is imported and started once stays, and is not the run's
    train(tiny("trainer.max_epochs=1", "seed=9"), CHOICES)
    before = process_state()
    other = ("data.num_workers=2", "trainer.precision=64-true", "threads=2", "trainer.max_epochs=1")
    train(tiny(f"logger={logger}", *other), CHOICES)
    assert process_state() == before
    if logger == "wandb":
        import wandb

        assert wandb.run is None


def test_a_hanging_loader_ends_the_run(tiny, monkeypatch) -> None:
    monkeypatch.setattr(TrainDataset, "__getitems__", lambda self, items: time.sleep(60))
    with refused(r"timeout_s=1 went by .* the same command goes on"):
        train(tiny("data.num_workers=1", "timeout_s=1"), CHOICES)


MINI = ("model=mini", "data=digits8", "optim=plain", "evaluation=[center]", "logger=none")


class Built(Callback):
    """Looks at what a configuration has become."""

    def on_train_start(self, trainer: Any, module: Any) -> None:
        self.fused = [group["fused"] for group in trainer.optimizers[0].param_groups]


@pytest.mark.parametrize("fused", [False, True])
def test_step_is_fused_on_request(tiny, fused: bool) -> None:
    built = Built()
    options = ("trainer.max_epochs=1", f"optim.fused={str(fused).lower()}")
    train(tiny(*options), CHOICES, callbacks=[built])
    assert set(built.fused) == {True if fused else None}
