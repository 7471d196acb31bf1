"""Errors, calibration and responses, against the same by hand."""

import pytest
import torch
from torch import nn

from rectifiers.evaluation.evaluate import Result
from rectifiers.evaluation.metrics import ErrorCounter, Errors, ResponseMeter


def count(scores: list[list[float]], labels: list[int]) -> Errors:
    counter = ErrorCounter(len(scores[0]))
    counter.update(torch.tensor(scores), torch.tensor(labels))
    return counter.errors()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_top1_and_top5_by_hand(dtype: torch.dtype) -> None:
    ranks = torch.arange(9, -1, -1, dtype=dtype)
    counter = ErrorCounter(10)
    counter.update(ranks.repeat(10, 1), torch.arange(10))  # label i is ranked i-th
    assert counter.errors() == Errors(num_images=10, top1_correct=1, top5_correct=5)
    assert counter.errors().top1_error_pct == 90
    assert counter.errors().top5_error_pct == 50


def test_batches_of_any_size_add_up_to_integers() -> None:
    generator = torch.Generator().manual_seed(0)
    scores, labels = (
        torch.randn(97, 10, generator=generator),
        torch.randint(0, 10, (97,), generator=generator),
    )
    whole, parts = ErrorCounter(10), ErrorCounter(10)
    whole.update(scores, labels)
    for piece, some in zip(scores.split(16), labels.split(16), strict=True):
        parts.update(piece, some)
    assert parts.errors() == whole.errors()
    assert whole.errors().top1_correct == int((scores.argmax(1) == labels).sum())
    top5 = (scores.topk(5).indices == labels[:, None]).any(1)
    assert whole.errors().top5_correct == int(top5.sum())


def test_equal_scores_are_an_error() -> None:
    errors = count([[0.1] * 10] * 10, list(range(10)))
    assert (errors.top1_correct, errors.top5_correct) == (0, 0)


def test_scores_not_finite_are_an_error() -> None:
    nan = float("nan")
    assert (
        count(
            [[nan] * 6, [nan, 1, 0, 0, 0, 0], [1, nan, nan, nan, nan, nan]], [0, 0, 0]
        ).top1_correct
        == 0
    )
    assert count([[float("inf"), 0, 0, 0, 0, 0]], [0]).top1_correct == 0


def test_five_classes_have_no_top5_error() -> None:
    errors = count([[1.0, 0, 0, 0, 0]], [0])
    assert errors.top5_correct is None
    assert errors.as_dict()["top5_error_pct"] is None


def test_sixth_label_is_a_top5_error() -> None:
    scores = torch.linspace(0.3, 0.01, 8).expand(2, 8)
    assert Result.from_scores(scores, torch.tensor([4, 5])).errors == Errors(2, 0, 1)


def test_the_calibration_error_has_fifteen_bins() -> None:
    """Confidences of 0.61 and 0.69 would share a bin of ten; two of fifteen meet at 2/3. The second
    answer is wrong."""
    scores = torch.tensor([[0.61, 0.39], [0.69, 0.31]])
    tested = Result.from_scores(scores, torch.tensor([0, 1])).calibration
    assert tested["ece"] == pytest.approx((0.39 + 0.69) / 2)


def test_scores_rounded_above_one_are_confidences() -> None:
    scores = torch.tensor([[1.0000001, 0.0], [0.75, 0.25]])
    tested = Result.from_scores(scores, torch.tensor([0, 1])).calibration
    assert tested["ece"] == pytest.approx(0.375)


def test_units_of_tokens_are_their_channels() -> None:
    relu, tokens = nn.ReLU(), torch.ones(4, 6, 3)  # [N, T, channels]
    tokens[:, :, 1] = -1
    meter = ResponseMeter({"mlp": (relu, 3)})
    with meter.listening():
        relu(tokens)
    assert (meter.positive == 0).tolist() == [False, True, False]


def test_batches_add_up_to_the_whole() -> None:
    torch.manual_seed(0)
    conv, flat = nn.ReLU(), nn.PReLU()
    meter = ResponseMeter({"conv1": (conv, 6), "fc1": (flat, 4)})
    maps, vectors = torch.randn(50, 6, 5, 5) + 1, torch.randn(50, 4)
    maps[:, 2] = -1.0  # never positive
    vectors[:, :] -= 10
    vectors[49, 3] = 0.5  # positive once, in the last batch
    with meter.listening():
        for part in range(0, 50, 20):
            conv(maps[part : part + 20])
            flat(vectors[part : part + 20])
    conv(maps + 100)  # is not listened to
    found = meter.row()
    for name, responses in (("conv1", conv(maps)), ("fc1", flat(vectors))):
        torch.testing.assert_close(
            found[f"response_mean/{name}"], responses.double().mean().item(), rtol=1e-6, atol=0
        )
        torch.testing.assert_close(
            found[f"response_std/{name}"],
            responses.double().std(correction=0).item(),
            rtol=1e-5,
            atol=0,
        )
        assert found[f"active_share/{name}"] == (responses > 0).double().mean()
    assert (found["dead_units/conv1"], found["dead_units/fc1"]) == (1, 3)
