"""What was typed is kept, as far as others can type it."""

import pytest

from rectifiers.training.recording import without_places
from rectifiers.training.train import train


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
        ("cache_dir='a b'", []),
        ("logger=wandb", []),
        ("logger.project=secret", []),
        ("hydra/launcher=submitit_slurm", []),
        ("hydra.sweep.dir=/home/somebody", []),
        ("data.root=/home/somebody/images", ["data.root=FOLDER"]),
        ("++data.root=/home/somebody/images", ["data.root=FOLDER"]),
        ("++logger.mine.token=secret", []),
        ("+runs_dir=/home/somebody/runs", []),
        ("ckpt_path=/home/somebody/last.ckpt", []),
        ("weights=/home/somebody/net.pt", ["weights=FILE"]),
        ("callbacks.model_checkpoint.dirpath=/home/somebody", []),
        ("+callbacks.mine={_target_: a.B, dirpath: /home/somebody}", []),
        ("+optim.dampening=0.5", ["+optim.dampening=0.5"]),
    ],
)
def test_no_place_of_this_machine_is_kept(typed: str, kept: list[str]) -> None:
    assert without_places([typed]) == kept
