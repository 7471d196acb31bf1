import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from conftest import compose_config
from rectifiers import activations as A
from rectifiers.data.datamodule import Batch
from rectifiers.data.preprocess import Preprocess
from rectifiers.models.network import Network
from rectifiers.models.rows import expand
from rectifiers.training.module import Classifier
from rectifiers.training.optim import build_schedule, configured_optimizer
from rectifiers.training.targets import import_functions


def classifier(seed: int) -> Classifier:
    rows = [{"name": "fc", "linear": 64, "dropout": 0.5}, {"name": "out", "linear": "classes"}]
    preprocess = Preprocess(torch.zeros(1, 1, 1), torch.ones(1, 1, 1), None, True)
    config = compose_config("optim.lr=0.1", "optim.bias_lr_factor=2.0", "optim.fused=false")
    functions = import_functions(config)
    network = Network(expand(rows, width=1, classes=10), A.prelu, channels=1, input_px=4)
    parts = (
        network,
        preprocess,
        partial(configured_optimizer, config, functions),
        build_schedule(config, functions),
    )
    return Classifier(*parts, classes=10, seed=seed, run="", code="", config="", channels=1)


def mask(seed: int, monkey_step: int) -> torch.Tensor:
    module = classifier(seed)
    type(module).global_step = property(lambda _: monkey_step)  # type: ignore[assignment]
    try:
        module.on_train_batch_start(None, 0)
    finally:
        del type(module).global_step
    return nn.functional.dropout(torch.ones(256), 0.5)


def test_dropout_is_a_function_of_seed_and_step() -> None:
    assert torch.equal(mask(0, 3), mask(0, 3))
    assert not torch.equal(mask(0, 3), mask(1, 3))
    assert not torch.equal(mask(0, 3), mask(0, 4))


def test_step_reads_no_number_before_its_update() -> None:
    """For each read a GPU would have to finish what it was given."""
    found: list[Any] = []

    class Calls(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            found.append(func)
            return func(*args, **(kwargs or {}))

    module = classifier(0)
    type(module).global_step = property(lambda _: 0)  # type: ignore[assignment]
    try:
        with Calls():
            module.training_step(batch_of([0, 0, 0]), 0).backward()
        assert torch.ops.aten.addmm.default in found
        assert torch.ops.aten._local_scalar_dense.default not in found
        with Calls():
            module.on_before_optimizer_step(module.configure_optimizers())
        assert torch.ops.aten._local_scalar_dense.default in found
    finally:
        del type(module).global_step


def begun() -> Classifier:
    """A module whose training has begun, with scores (ln 9, 0, ..., 0) for every image.

    The loss of an image is ln 2 where its label is 0, and ln 18 elsewhere."""
    module = classifier(0)
    with torch.no_grad():
        module.network.head.out.weight.zero_()
        module.network.head.out.bias.zero_()
        module.network.head.out.bias[0] = math.log(9)
    optimizers = [module.configure_optimizers()]
    module.log_dict = lambda *_, **__: None  # type: ignore[method-assign]
    facts = {"current_epoch": 0, "global_step": 0, "global_rank": 0, "world_size": 1}
    module.trainer = SimpleNamespace(  # type: ignore[assignment]
        optimizers=optimizers, callback_metrics={}, **facts
    )
    module.on_train_epoch_start()
    return module


def batch_of(labels: list[int]) -> Batch:
    images = torch.zeros(len(labels), 1, 4, 4, dtype=torch.uint8)
    return Batch(images, torch.tensor(labels), None)


def take_step(module: Classifier, batch: Batch) -> None:
    """All of a training step but its update."""
    module.training_step(batch, 0).backward()
    module.on_before_optimizer_step(module.trainer.optimizers[0])


def test_losses_are_means_over_images_not_batches() -> None:
    module = begun()
    take_step(module, batch_of([0, 0]))
    take_step(module, batch_of([0, 1]))
    module.on_validation_start()
    module.validation_step(batch_of([0, 0, 0]), 0)
    module.validation_step(batch_of([1]), 1)
    module.on_train_epoch_end()
    (row,) = module.history
    assert row["train_loss"] == pytest.approx((3 * math.log(2) + math.log(18)) / 4)
    assert row["val/loss"] == pytest.approx((3 * math.log(2) + math.log(18)) / 4)
    assert row["val/top1_error_pct"] == 25


def test_validation_metrics_start_anew_in_each_epoch() -> None:
    module = begun()
    for labels in ([0, 0], [1]):
        module.on_train_epoch_start()
        take_step(module, batch_of(labels))
        module.on_validation_start()
        module.validation_step(batch_of(labels), 0)
        module.on_train_epoch_end()
    for key in ("train_loss", "val/loss"):
        assert [row[key] for row in module.history] == pytest.approx([math.log(2), math.log(18)])
    assert [row["val/top1_error_pct"] for row in module.history] == [0, 100]


def test_other_ranks_begin_an_epochs_mean_anew() -> None:
    module = begun()
    state = {"loss": {"mean_value": 3.0, "weight": 3.0}, "seen": 12, "train_s": 0.5}
    module._restore_epoch([state, state])
    take_step(module, batch_of([0] * 8))
    assert float(module.train_loss.compute()) == pytest.approx(math.log(2))
    assert module._num_images == 8
