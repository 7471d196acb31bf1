from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from conftest import compose_config
from rectifiers.data.module import Batch
from rectifiers.data.preprocess import Preprocess
from rectifiers.nn import activations as A
from rectifiers.nn.networks.network import Network
from rectifiers.nn.networks.rows import expand
from rectifiers.training.module import Classifier


def classifier(seed: int) -> Classifier:
    rows = expand(
        [{"name": "fc", "linear": 64, "dropout": 0.5}, {"name": "out", "linear": "classes"}],
        width=1,
        classes=10,
    )
    preprocess = Preprocess(torch.zeros(1, 1, 1), torch.ones(1, 1, 1), None, True)
    optim = compose_config("optim.lr=0.1", "optim.bias_lr_factor=2.0").optim
    network = Network(rows, A.prelu, channels=1, input_px=4)
    return Classifier(
        network, preprocess, optim, fused=False, classes=10, seed=seed, run="", code=""
    )


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


def test_biases_have_their_own_learning_rate() -> None:
    module = classifier(0)
    rates = {
        id(p): group["lr"]
        for group in module.configure_optimizers().param_groups
        for p in group["params"]
    }
    assert {
        rates[id(p)] for name, p in module.network.named_parameters() if name.endswith("bias")
    } == {0.2}
    others = {
        name: rates[id(p)]
        for name, p in module.network.named_parameters()
        if not name.endswith("bias")
    }
    assert set(others.values()) == {0.1}
    assert "head.fc_act.weight" in others


def test_a_step_reads_no_number_between_its_forward_pass_and_its_update() -> None:
    """For each read a GPU has to finish what it was given; the slopes are read once, before the
    forward pass."""
    found: list[Any] = []

    class Calls(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            found.append(func)
            return func(*args, **(kwargs or {}))

    module = classifier(0)
    type(module).global_step = property(lambda _: 0)  # type: ignore[assignment]
    batch = Batch(
        torch.zeros(3, 1, 4, 4, dtype=torch.uint8), torch.zeros(3, dtype=torch.long), None, []
    )
    try:
        with Calls():
            module.training_step(batch, 0).backward()
        assert torch.ops.aten.addmm.default in found
        assert torch.ops.aten._local_scalar_dense.default not in found
        with Calls():
            module.on_before_optimizer_step(module.configure_optimizers())
        assert torch.ops.aten._local_scalar_dense.default in found
    finally:
        del type(module).global_step
