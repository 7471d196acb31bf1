"""What was typed is kept, as far as others can type it, and what activations learned."""

import csv
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from rectifiers.runs import record as records
from rectifiers.training.recording import without_places
from rectifiers.training.train import train


class Swish(nn.Module):
    """y sigmoid(beta y), with a beta for each channel, as a user would write it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.beta = nn.Parameter(torch.ones(channels))

    def forward(self, y: Tensor) -> Tensor:
        return y * (self.beta * y).sigmoid()


def scaled_prelu(channels: int) -> nn.Module:
    """A module of the user's in which PReLU is a part."""
    return nn.Sequential(nn.Tanh(), nn.PReLU(init=0.5))


def test_record_keeps_the_typed_overrides(tiny) -> None:
    first = train(tiny("evaluation=center"), {}, ["evaluation=center", "seed=0"])
    assert first.record.command == "python train.py evaluation=center seed=0"
    assert (
        train(tiny("evaluation=ten_view"), {}, ["evaluation=ten_view"]).record.overrides
        == first.record.overrides
    )
    assert train(tiny("seed=1"), {}).record.command is None


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("activation=prelu", ["activation=prelu"]),
        ("runs_dir=/home/somebody/runs", []),
        ("logger.project=secret", []),
        ("hydra/launcher=submitit_slurm", []),
        ("data.root=/home/somebody/images", ["data.root=FOLDER"]),
        ("++data.root=/home/somebody/images", ["data.root=FOLDER"]),
        ("++logger.mine.token=secret", []),
        ("ckpt_path=/home/somebody/last.ckpt", []),
        ("init.from_weights=/home/somebody/net.pt", ["init.from_weights=RUN_OR_FILE"]),
        ("callbacks.model_checkpoint.dirpath=/home/somebody", []),
        ("+callbacks.mine={_target_: a.B, dirpath: /home/somebody}", []),
        ("+optim.dampening=0.5", ["+optim.dampening=0.5"]),
    ],
)
def test_no_place_of_this_machine_is_kept(typed: str, kept: list[str]) -> None:
    assert without_places([typed]) == kept


@pytest.mark.parametrize(
    ("activation", "learned", "values"),
    [
        ("activation=xielu", ["positive", "negative"], 1),
        ("activation._target_=test_recording.Swish", ["beta"], 32),
        ("activation._target_=test_recording.scaled_prelu", ["1.weight"], 1),
    ],
)
def test_learned_parameters_stand_in_history_and_record(
    tiny, monkeypatch, activation: str, learned: list[str], values: int
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    base = () if activation == "activation=xielu" else ("activation=relu",)
    outcome = train(tiny(*base, activation, "evaluation=center", "logger=csv"), {})
    record = records.load_training(outcome.path)
    names = [f"{layer}/{name}" for layer in ("fc_1", "fc_2") for name in learned]
    assert list(record.activation_parameters) == names
    assert record.slopes == {}
    (*_, logged) = csv.DictReader((outcome.path.parent / "metrics.csv").open())
    for name in names:
        spread = record.activation_parameters[name]
        means = record.curve(f"activation/{name}")
        assert means[-1] == spread.mean == float(logged[f"activation/{name}"])
        assert len(set(means)) == record.epochs  # it learns
        assert spread.channels == values
        assert (f"activation_std/{name}" in record.history[0]) == (values > 1)
        if values > 1:
            assert record.curve(f"activation_std/{name}")[-1] == spread.std > 0


def test_slopes_of_prelu_stand_under_slopes_alone(tiny) -> None:
    record = train(tiny("evaluation=center", "logger=none"), {}).record
    assert list(record.slopes) == ["fc_1", "fc_2"]
    assert record.activation_parameters == {}
    assert not [key for key in record.history[-1] if key.startswith("activation")]
