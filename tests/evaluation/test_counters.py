import pytest
import torch

from rectifiers.evaluation.counters import ErrorCounter, Errors


def count(scores: list[list[float]], labels: list[int]) -> Errors:
    counter = ErrorCounter(len(scores[0]))
    counter.update(torch.tensor(scores), torch.tensor(labels))
    return counter.errors()


def test_top1_and_top5_by_hand() -> None:
    ranks = torch.tensor([9.0, 8, 7, 6, 5, 4, 3, 2, 1, 0])
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


def test_equal_scores_for_all_classes_are_always_an_error() -> None:
    errors = count([[0.1] * 10] * 10, list(range(10)))
    assert (errors.top1_correct, errors.top5_correct) == (0, 0)


def test_a_score_that_is_nan_or_infinite_is_an_error() -> None:
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


def test_reset_starts_a_new_count() -> None:
    counter = ErrorCounter(10)
    counter.update(torch.eye(10), torch.arange(10))
    counter.reset()
    counter.update(torch.eye(10)[:3], torch.arange(3))
    assert counter.errors() == Errors(3, 3, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_scores_of_any_precision_are_counted(dtype: torch.dtype) -> None:
    counter = ErrorCounter(10)
    counter.update(torch.eye(10, dtype=dtype), torch.arange(10))
    assert counter.errors().top1_correct == 10
