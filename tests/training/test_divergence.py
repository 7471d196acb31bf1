from typing import Any

import pytest
import torch
from pytorch_lightning.callbacks import Callback
from torch import nn

from rectifiers.training.checkpoints import LAST, AtomicCheckpointIO
from rectifiers.training.module import Classifier, all_finite, first_bad_layer
from rectifiers.training.train import train


def chain() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


def test_first_bad_layer_is_named() -> None:
    lost, large, x = chain(), chain(), torch.ones(3, 4)
    with torch.no_grad():
        lost[4].weight[0, 0] = torch.nan
        lost[2].bias[1] = torch.inf
        large[0].weight.fill_(1e30)
        large[2].weight.fill_(1e30)  # whose outputs overflow
    assert first_bad_layer(lost, x) == first_bad_layer(large, x) == "2"
    assert first_bad_layer(chain(), torch.full((1, 4), torch.nan)) == "input"
    assert first_bad_layer(chain(), torch.ones(1, 4)) == "loss"


@pytest.mark.parametrize("bad", [[torch.nan], [torch.inf], [-torch.inf], [torch.inf, -torch.inf]])
def test_all_finite_judges_numbers_alone(bad: list[float]) -> None:
    assert all_finite(torch.randn(1000))
    assert all_finite(torch.full((1000,), 1e38))  # whose sum is not
    assert not all_finite(torch.cat([torch.randn(1000), torch.tensor(bad), torch.randn(1000)]))


def test_bad_loss_ends_its_step_before_the_update(tiny, monkeypatch) -> None:
    found: list[tuple[int, bool]] = []
    weights: list[torch.Tensor] = []
    modules: list[Classifier] = []
    inner = Classifier.training_step

    def training_step(self: Classifier, *given: object) -> torch.Tensor:
        loss = inner(self, *given)  # type: ignore[arg-type]
        found.append((self.global_step, bool(torch.isfinite(loss))))
        weights[:] = [p.detach().clone() for p in self.network.parameters()]
        modules[:] = [self]
        return loss

    monkeypatch.setattr(Classifier, "training_step", training_step)
    diverged = train(tiny("optim.lr=1e6", "activation=relu"), {}).record.diverged
    assert [step for step, _ in found] == list(range(len(found)))
    assert [is_finite for _, is_finite in found] == [True] * (len(found) - 1) + [False]
    assert diverged is not None
    assert diverged.step == len(found) - 1 > 0
    now = list(modules[0].network.parameters())
    assert all(
        torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)) for a, b in zip(now, weights, strict=True)
    )


class InfiniteLastGradient(Callback):
    """Makes the gradient of one bias infinite in the last step of the training."""

    def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
        if trainer.global_step + 1 == trainer.estimated_stepping_batches:
            bias = module.network.head.fc_1.bias
            bias.grad = torch.full_like(bias, torch.inf)
            self.step = trainer.global_step + 1


def test_last_update_may_diverge(tiny) -> None:
    """The bias becomes -inf. ReLU turns that into 0, so that all scores stay finite."""
    last = InfiniteLastGradient()
    outcome = train(tiny("trainer.max_epochs=2", "activation=relu"), {}, callbacks=[last])
    assert outcome.record.status == "diverged"
    assert outcome.record.diverged is not None
    assert outcome.record.diverged.step == last.step
    assert outcome.record.diverged.layer == "head.fc_1"
    assert outcome.record.protocols == {}
    checkpoint = AtomicCheckpointIO().load_checkpoint(outcome.path.parent / LAST)
    assert len(checkpoint["rectifiers"]["history"]) == 1  # of the epoch before
