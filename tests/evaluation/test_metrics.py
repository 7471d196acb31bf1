"""Errors, calibration and responses, against the same by hand."""

import math

import pytest
import torch
from torch import nn

from rectifiers.evaluation.evaluate import Result
from rectifiers.evaluation.metrics import (
    ErrorCounter,
    Errors,
    ResponseMeter,
    log_probabilities,
)


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


def ece(confidences: list[float], answers: list[bool]) -> float:
    """The calibration error of two-class answers with these confidences, right or not."""
    p = torch.tensor(confidences, dtype=torch.float64)
    scores = torch.stack([p, (1 - p).clamp(min=1e-300)], dim=1).log()
    found = Result.from_scores(scores, torch.tensor([int(not right) for right in answers]))
    return found.calibration["ece"] or 0.0


def test_calibration_error_has_fifteen_bins() -> None:
    """0.61 and 0.69 would share a bin of ten, and 0.53 and 0.535 are in two of 15, which meet at
    8 / 15, but in one of 14 or 16."""
    assert ece([0.61, 0.69], [True, False]) == pytest.approx((0.39 + 0.69) / 2)
    assert ece([0.53, 0.535], [True, False]) == pytest.approx((0.47 + 0.535) / 2)


def test_last_bin_of_calibration_includes_one() -> None:
    """500 answers at 0.94, all right, and 500 at 1, of which 90 are wrong, are one bin."""
    answers = [True] * 500 + [False] * 90 + [True] * 410
    assert ece([0.94] * 500 + [1.0] * 500, answers) == pytest.approx(0.06)
    assert ece([0.97, 1.0], [False, True]) == pytest.approx((0.97 + 0) / 2)


def test_bins_of_calibration_include_their_lower_ends() -> None:
    end = 14 / 15
    assert ece([end, 0.98], [True, False]) == pytest.approx(abs(1 - end - 0.98) / 2)
    assert ece([end - 1e-9, 0.98], [True, False]) == pytest.approx((1 - end + 0.98) / 2)
    # a confidence near 0, which the highest of many classes may have
    even = torch.full((20, 1000), 1e-3, dtype=torch.float64).log()
    even[:, 0] += 1e-6
    found = Result.from_scores(even, torch.ones(20, dtype=torch.int64)).calibration
    assert found["ece"] == pytest.approx(1e-3, rel=1e-4)


def test_scores_rounded_above_one_are_confidences() -> None:
    scores = torch.tensor([[1e-16, -900.0], [math.log(0.75), math.log(0.25)]])
    tested = Result.from_scores(scores, torch.tensor([0, 1])).calibration
    assert tested["ece"] == pytest.approx(0.375)


def test_far_scores_keep_their_ranks_and_likelihood() -> None:
    scores = torch.tensor([[200.0, 90, 80, 70, 60, 50, 0, 0, 0, 0]]).log_softmax(1)
    tested = Result.from_scores(scores, torch.tensor([3]))
    assert tested.errors.top5_error_pct == 0
    assert tested.calibration["nll"] == pytest.approx(130)
    assert tested.calibration["brier"] == pytest.approx(2)
    close = torch.tensor([[3e4, 1 + 6e-5, 1 + 5e-5, 1 + 4e-5, 1 + 3e-5, 1 + 2e-5, 1 + 1e-5, 1]])
    tested = Result.from_scores(log_probabilities(close), torch.tensor([4]))
    assert tested.errors.top5_correct == 1


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
