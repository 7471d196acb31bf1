"""An intervention does what it says, once, and a run that is interrupted ends with the same
bits."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from conftest import numbers, same_bits, weights
from cutting import cut
from rectifiers import activations as A
from rectifiers.data.datamodule import EpochLoader
from rectifiers.initializers import he, lecun
from rectifiers.models.chains import initialize_chain
from rectifiers.models.network import Network
from rectifiers.models.rows import expand
from rectifiers.training.diagnostics import ZigzagMeasure
from rectifiers.training.interventions import Greedy, RedrawLayers, ReviveDead, dead_units
from rectifiers.training.train import train
from refusals import refused

RELU = ("activation=relu", "model.dropout=0", "optim.weight_decay=0.01", "evaluation=[center]")


REVIVE = ("callbacks=revive_dead", "callbacks.revive_dead.after_epoch=1")
FROZEN = (*REVIVE, "callbacks.revive_dead.freeze_rest=true")


def parts(rule: Any = he) -> tuple[Any, Any]:
    """Return a perceptron as a callback gets it, and the trainer with its data."""
    rows = [{"name": "fc", "linear": 8, "repeat": 3}, {"name": "out", "linear": "classes"}]
    network = Network(expand(rows, width=1, classes=10), A.relu, channels=1, input_px=4)
    initialize_chain(network.sites(), rule, seed=0, name="rule")
    images = torch.rand(40, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    data = SimpleNamespace(statistics_batches=lambda where: iter(images.split(16)))
    module = SimpleNamespace(
        network=network, preprocess=lambda x: x, device=torch.device("cpu"), seed=0
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    optimizer.state[network.head.fc_1.weight] = {"momentum_buffer": torch.ones(1)}
    return module, SimpleNamespace(datamodule=data, optimizers=[optimizer], images=images)


def test_revived_units_change_no_score_at_first() -> None:
    module, trainer = parts()
    head = module.network.head
    with torch.no_grad():
        head.fc_1.bias[2] = head.fc_2.bias[5] = -1000.0
    before = {name: p.detach().clone() for name, p in module.network.named_parameters()}
    scores = module.network(trainer.images)
    dead = dead_units(module, trainer.datamodule)
    assert dead["fc_1"][2]
    assert dead["fc_2"][5]
    with torch.no_grad():
        ReviveDead(1, freeze_rest=False).intervene(trainer, module)
    assert torch.equal(module.network(trainer.images), scores)
    for name in ("fc_1", "fc_2", "fc_3"):
        own = getattr(head, name)
        same = (own.weight == before[f"head.{name}.weight"]).all(1)
        same &= own.bias == before[f"head.{name}.bias"]
        assert not same[dead[name]].any()  # every dead unit was drawn, and its bias is 0
        assert (own.bias[dead[name]] == 0).all()
    untouched = ~dead["fc_1"]
    assert torch.equal(head.fc_1.weight[untouched], before["head.fc_1.weight"][untouched])
    assert (head.fc_2.weight[:, dead["fc_1"]] == 0).sum() >= 8 - 1  # row 5 was drawn before
    assert not trainer.optimizers[0].state
    fresh = dead_units(module, trainer.datamodule)
    assert not fresh["fc_1"][2]


def test_units_of_several_channels_are_refused(tiny) -> None:
    with refused("revive_dead is for units of one channel"):
        train(tiny(*REVIVE, "activation=maxout", "evaluation=center"), {})


def test_wrongly_scaled_layers_alone_are_redrawn() -> None:
    module, trainer = parts()
    head = module.network.head
    with torch.no_grad():
        head.fc_2.weight.mul_(0.01)
        head.fc_2.bias.fill_(3.0)
        head.fc_3.weight.mul_(10)
    before = {name: p.detach().clone() for name, p in module.network.named_parameters()}
    with torch.no_grad():
        RedrawLayers(1, 2.0).intervene(trainer, module)
    changed = {n for n, p in module.network.named_parameters() if not torch.equal(p, before[n])}
    assert changed == {"head.fc_2.weight", "head.fc_2.bias", "head.fc_3.weight"}
    # 64 draws: the std is within 40 % in all but one of 10^5 cases
    for layer in (head.fc_2, head.fc_3):
        std = float(layer.weight.detach().square().mean()) ** 0.5
        assert std == pytest.approx(math.sqrt(2 / 8), rel=0.4)
    assert (head.fc_2.bias == 0).all()
    assert not trainer.optimizers[0].state


def test_xavier_is_within_twice_he() -> None:
    module, trainer = parts(lecun)
    before = {name: p.detach().clone() for name, p in module.network.named_parameters()}
    with torch.no_grad():
        RedrawLayers(1, 2.0).intervene(trainer, module)
    assert all(torch.equal(p, before[n]) for n, p in module.network.named_parameters())


@pytest.mark.process
def test_revive_dead_revives_a_dead_network(tiny) -> None:
    dead = train(tiny(*RELU, "init.bias=-1000"), {}).record.history
    assert [row["dead_units/fc_1"] for row in dead] == [32, 32, 32]
    revived = train(tiny(*RELU, "init.bias=-1000", *REVIVE), {})
    rows = revived.record.history
    assert rows[0]["dead_units/fc_1"] == 32
    assert rows[1]["dead_units/fc_1"] < 10
    assert rows[2]["train_loss"] < dead[2]["train_loss"] - 0.05
    assert revived.record.science["callbacks"]["revive_dead"]["after_epoch"] == 1


def test_freeze_rest_keeps_all_other_weights(tiny) -> None:
    asked = (*RELU, "init.bias=-4")
    first = weights(train(tiny(*asked, "trainer.max_epochs=1"), {}))
    frozen = train(tiny(*asked, *FROZEN), {})
    dead = frozen.record.history[0]["dead_units/fc_1"]
    last = weights(frozen)
    moved = (last["network.head.fc_1.weight"] != first["network.head.fc_1.weight"]).any(1)
    assert 0 < moved.sum() < 32
    assert abs(int(moved.sum()) - dead) <= 3  # dead on test images, and on training images
    kept = ~moved
    columns = last["network.head.fc_2.weight"] != first["network.head.fc_2.weight"]
    rows = (columns[:, kept]).any(1)
    one, other = (state["network.head.fc_2.weight"][~rows][:, kept] for state in (first, last))
    assert torch.equal(one, other)
    # zeros at first: what leads out is trained too
    assert last["network.head.out.weight"][:, rows].any()
    assert torch.equal(last["network.head.out.bias"], first["network.head.out.bias"])


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_greedy_trains_one_hidden_layer_after_the_other(tiny, epoch: int) -> None:
    greedy = ("callbacks=greedy", "callbacks.greedy.epochs_a_layer=1")
    whole = train(tiny(*RELU, "model.depth=3", "model.hidden=64", *greedy), {})
    assert whole.record.status == "finished"
    rows = whole.record.history
    # a layer that is passed by answers what the one before it does
    for later in range(epoch + 1, 4):
        row = rows[epoch - 1]
        assert row[f"response_mean/fc_{later}"] == row[f"response_mean/fc_{epoch}"]
    if epoch > 1:  # the first is fixed once it had its turn
        assert rows[epoch - 1]["response_mean/fc_1"] == rows[0]["response_mean/fc_1"]
        assert rows[epoch - 1]["response_mean/fc_2"] != rows[0]["response_mean/fc_2"]
    assert whole.record.protocols["center"].top1_error_pct == rows[-1]["val/top1_error_pct"]


@pytest.mark.process
@pytest.mark.parametrize(
    "given",
    [
        (*FROZEN, "optim.lr=1.0"),
        ("callbacks=greedy", "callbacks.greedy.epochs_a_layer=1", "model.hidden=64"),
    ],
)
@pytest.mark.parametrize("after", [12, 25])
def test_interrupted_interventions_end_with_equal_bits(
    tiny, tmp_path: Path, given: tuple[str, ...], after: int
) -> None:
    asked = (*RELU, *given, "checkpoint.every_n_steps=4")
    whole = train(tiny(*asked, f"runs_dir={tmp_path}/whole"), {})
    cut(tiny(*asked), after)
    continued = train(tiny(*asked), {})
    assert numbers(continued.record) == numbers(whole.record)
    assert same_bits(weights(continued), weights(whole))


@pytest.mark.parametrize(
    ("part", "state"),
    [(ReviveDead, {"kept": {}}), (ReviveDead, 3), (EpochLoader, {}), (ZigzagMeasure, 3)],
)
def test_state_of_another_version_is_refused(part: Any, state: Any) -> None:
    with refused(r"the run's checkpoint cannot be read \("):
        part.load_state_dict(SimpleNamespace(), state)


def test_greedy_refuses_several_processes() -> None:
    with refused(r"callbacks=greedy changes .*; start one process"):
        Greedy(1).on_fit_start(SimpleNamespace(world_size=2, max_epochs=9), parts()[0])
