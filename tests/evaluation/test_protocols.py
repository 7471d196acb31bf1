import pytest
import torch
from torch import nn

from rectifiers.data.sources import ArraySplit, digits
from rectifiers.evaluation.protocols import ViewDataset, evaluate, mean_softmax
from rectifiers.evaluation.views import center, ten_view


class PixelScores(nn.Module):
    """Scores that are a fixed linear map of the pixels."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(inputs, classes, generator=torch.Generator().manual_seed(0)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.float().flatten(1) @ self.weight / 255


def test_scores_are_averaged_after_the_softmax() -> None:
    class Fixed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tensor([[9.0, 0, 0], [0, 1.0, 0], [0, 1.0, 0]])

    # before the softmax class 0 would win by (9, 2, 0) / 3; after it the sure view counts no more than the others
    mean = mean_softmax(Fixed(), torch.zeros(1, 3, 1, 2, 2))
    expected = torch.stack([torch.tensor(v).softmax(0) for v in ([9.0, 0, 0], [0, 1.0, 0], [0, 1.0, 0])]).mean(0)
    assert torch.allclose(mean, expected[None])


@pytest.mark.parametrize("workers", [0, 2])
def test_ten_view_errors_equal_an_evaluation_by_hand(workers: int) -> None:
    network, split = PixelScores(64, 10), digits().val
    dataset = ViewDataset(split, ten_view, resize_px=11, crop_px=8)
    seen: list[int] = []
    errors = evaluate(network, dataset, classes=10, device=torch.device("cpu"), workers=workers, on_batch=seen.append)
    right = 0
    for i, label in enumerate(split.labels):
        scores = torch.stack([network(view[None])[0].softmax(0) for view in dataset[i][0]]).mean(0)
        right += int(scores.argmax() == label)
    assert errors.top1_correct == right
    assert errors.seen == sum(seen) == 450


def test_evaluation_switches_dropout_off_and_gradients_too() -> None:
    class Watch(PixelScores):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert not self.training
            assert not torch.is_grad_enabled()
            return super().forward(x)

    split = ArraySplit(torch.zeros(3, 1, 8, 8, dtype=torch.uint8), [0, 1, 2])
    evaluate(Watch(64, 10).train(), ViewDataset(split, center, 8, 8), classes=10, device=torch.device("cpu"))


def test_an_image_that_was_not_counted_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    split = ArraySplit(torch.zeros(3, 1, 8, 8, dtype=torch.uint8), [0, 1, 2])
    dataset = ViewDataset(split, center, 8, 8)
    monkeypatch.setattr(
        "rectifiers.evaluation.protocols.DataLoader", lambda d, **_: [(torch.stack([d[0][0]]), torch.tensor([0]))]
    )
    with pytest.raises(RuntimeError, match="counted 1 images of a split of 3"):
        evaluate(PixelScores(64, 10), dataset, classes=10, device=torch.device("cpu"))
