import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from rectifiers.data.imagenet import imagenet
from rectifiers.data.preprocess import Preprocess
from rectifiers.data.sources import ArraySplit, digits
from rectifiers.data.transforms import resize_shorter
from rectifiers.evaluation.evaluate import (
    Result,
    Scores,
    evaluate,
    load_scores,
    mean_result,
    same_shape_batches,
    save_scores,
)
from rectifiers.evaluation.metrics import ErrorCounter, Errors, is_correct
from rectifiers.evaluation.protocols import center, dense, ten_view
from rectifiers.models.network import Network
from rectifiers.models.rows import expand
from rectifiers.runs.folder import scores_path
from rectifiers.runtime.distributed import World
from refusals import refused

MODULE = "rectifiers.evaluation.evaluate"
CPU = torch.device("cpu")


class PixelScores(nn.Module):
    """Scores that are a fixed linear map of the pixels."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.register_buffer(
            "weight", torch.randn(inputs, classes, generator=torch.Generator().manual_seed(0))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.float().flatten(1) @ self.weight / 255


class Convolved(nn.Module):
    """A conv layer, a pyramid and scores, for images of any size and three channels."""

    def __init__(self) -> None:
        super().__init__()
        rows = [
            {"name": "conv", "conv": 8, "kernel": 5, "stride": 4},
            {"name": "spp", "pyramid": [2, 1]},
            {"name": "out", "linear": "classes"},
        ]
        torch.manual_seed(0)
        self.network = Network(
            expand(rows, width=1, classes=6), lambda _: nn.ReLU(), channels=3, input_px=32
        )
        self.preprocess = Preprocess(
            torch.full((1, 1, 1), 128.0), torch.full((1, 1, 1), 1 / 64), None, True
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.network(self.preprocess(images))


class Given(nn.Module):
    """The same scores for every batch."""

    def __init__(self, scores: torch.Tensor) -> None:
        super().__init__()
        self.scores = scores

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scores[: len(x)]


@pytest.mark.parametrize("classes", [10, 1000])
@pytest.mark.parametrize("std", [1, 50, 500, 5000])
def test_tests_rank_like_validation(std: float, classes: int) -> None:
    """On the same view, with scores in which a softmax of single precision is 0 or 1."""
    generator = torch.Generator().manual_seed(classes)
    scores = std * torch.randn(512, classes, generator=generator)
    # labels of each rank from 1 to 8, so that top-5 has something to tell
    ranks = torch.arange(512) % 8
    labels = scores.argsort(1, descending=True).gather(1, ranks[:, None])[:, 0]
    split = ArraySplit(torch.zeros(512, 1, 8, 8, dtype=torch.uint8), labels.tolist())
    tested = evaluate(Given(scores), split, center(8, scale_px=8), classes=classes, device=CPU)
    val = ErrorCounter(classes)
    val.update(scores, labels)
    assert tested.errors == val.errors() == Errors(512, 64, 5 * 64)
    assert torch.equal(tested.correct, ranks == 0)
    assert torch.equal(is_correct(tested.scores, labels, top_k=5), ranks < 5)
    by_hand = nn.functional.cross_entropy(scores.double(), labels)
    assert tested.calibration["nll"] == pytest.approx(float(by_hand))


@pytest.mark.parametrize("scale", [1, 30, 3000])
def test_split_views_are_no_tie(scale: float) -> None:
    """Five views say class 2 and five say class 1, with more doubt: the mean softmax of class 2 is
    higher, in exact arithmetic."""
    sure, unsure = torch.tensor([0.0, 1.0, 4.0]), torch.tensor([0.0, 3.0, 1.0])
    scores = scale * torch.stack([sure, unsure]).repeat(5, 1)
    split = ArraySplit(torch.zeros(1, 1, 8, 8, dtype=torch.uint8), [2])
    tested = evaluate(Given(scores), split, ten_view(8, scale_px=8), classes=3, device=CPU)
    assert tested.correct.tolist() == [True]
    together = mean_result([kept(*row) for row in scores[:2, None].expand(2, 2, 3).tolist()])
    assert together.scores.argmax(1).tolist() == [2, 2]


@pytest.mark.parametrize("workers", [0, 2])
def test_ten_view_errors_equal_an_evaluation_by_hand(workers: int) -> None:
    network, split, protocol = PixelScores(64, 10), digits().val, ten_view(8, scale_px=11)
    batch_sizes: list[int] = []
    tested = evaluate(
        network,
        split,
        protocol,
        classes=10,
        device=CPU,
        workers=workers,
        on_batch=batch_sizes.append,
    )
    correct, scores = [], []
    for i, label in enumerate(split.labels):
        views = protocol.views(split.image(i), 11)
        scores.append(torch.stack([network(view[None])[0].softmax(0) for view in views]).mean(0))
        correct.append(int(scores[-1].argmax() == label))
    assert tested.errors.top1_correct == sum(correct)
    assert tested.errors.num_images == sum(batch_sizes) == 450
    assert torch.allclose(tested.scores.exp().float(), torch.stack(scores), atol=1e-6)
    bits = bin(int(tested.as_dict()["correct_mask"], 16))[2:].zfill(452)
    assert [int(bit) for bit in bits[:450]] == correct
    assert tested.as_dict()["by_scale"] == {}


def test_images_of_many_shapes_are_counted_once(prepared: Path) -> None:
    """Batched by shape, every image gets the scores that it gets alone; scales are averaged with
    equal weight."""
    split, scored = imagenet(str(prepared)).val, Convolved().eval()
    protocol = dense(32, scales_px=[36, 48])
    batches = list(same_shape_batches(split, protocol))
    assert sorted(index for batch in batches for index in batch) == list(range(24))
    assert all(len({split.shape(index) for index in batch}) == 1 for batch in batches)
    assert len({split.shape(index) for index in range(24)}) > 10
    tested = evaluate(scored, split, protocol, classes=6, device=CPU)
    assert tested.errors.num_images == 24
    right = {36: 0, 48: 0}
    with torch.inference_mode():
        for i, label in enumerate(split.labels):
            each = {}
            for px in (36, 48):
                resized = resize_shorter(split.image(i), px)
                assert (
                    abs(
                        max(resized.shape) / min(resized.shape[1:])
                        - max(split.shape(i)) / min(split.shape(i))
                    )
                    < 0.05
                )
                each[px] = protocol.score(scored, protocol.views(split.image(i), px)[None])
                right[px] += int(each[px].argmax() == label)
            mean = (each[36].exp() + each[48].exp())[0] / 2
            assert torch.allclose(tested.scores[i].exp(), mean, atol=1e-6)
    by_scale = tested.as_dict()["by_scale"]
    assert {px: by_scale[str(px)]["top1_correct"] for px in right} == right


class Noted(ArraySplit):
    """A split that notes which shapes and which images it is asked for, in order."""

    def __init__(self, images: torch.Tensor, labels: list[int]) -> None:
        super().__init__(images, labels)
        object.__setattr__(self, "asked", [])

    def shape(self, index: int) -> tuple[int, int]:
        self.asked.append(("shape", index))  # type: ignore[attr-defined]
        return super().shape(index)

    def image(self, index: int) -> torch.Tensor:
        self.asked.append(("image", index))  # type: ignore[attr-defined]
        return super().image(index)


def noted(number: int) -> Noted:
    return Noted(torch.zeros(number, 3, 40, 48, dtype=torch.uint8), [0] * number)


def test_no_image_is_read_only_for_its_size() -> None:
    """Whole images are batched by the sizes in their headers, and crops without any."""
    for protocol, headers in ((ten_view(32, scale_px=36), 0), (dense(32, scales_px=[36]), 7)):
        split = noted(7)
        evaluate(Convolved(), split, protocol, classes=6, device=CPU)
        asked = [*(("shape", i) for i in range(headers)), *(("image", i) for i in range(7))]
        assert split.asked == asked  # type: ignore[attr-defined]


def test_crops_of_many_sizes_share_batches(prepared: Path) -> None:
    split, scored = imagenet(str(prepared)).val, Convolved().eval()
    protocol = center(32, scale_px=36)
    assert [len(batch) for batch in same_shape_batches(split, protocol)] == [24]
    tested = evaluate(scored, split, protocol, classes=6, device=CPU)
    with torch.inference_mode():
        views = [protocol.views(split.image(i), 36)[None] for i in range(24)]
        alone = torch.cat([protocol.score(scored, view) for view in views])
    torch.testing.assert_close(tested.scores, alone, rtol=0, atol=1e-5)


def test_calibration_by_hand() -> None:
    """Two answers at confidence 0.75, one of them right: |0.5 - 0.75|; four pixels are the
    logarithms of the scores."""

    scores = torch.tensor([[0.75, 0.25]]).log().expand(2, 2)
    split = ArraySplit(torch.zeros(2, 1, 8, 8, dtype=torch.uint8), [0, 1])
    tested = evaluate(Given(scores), split, center(8, scale_px=8), classes=2, device=CPU).as_dict()
    assert tested["ece"] == pytest.approx(0.25, abs=1e-6)
    expected = -(torch.tensor([0.75, 0.25]).log().mean().item())
    assert tested["nll"] == pytest.approx(expected, abs=1e-6)
    assert tested["brier"] == pytest.approx((2 * 0.25**2 + 2 * 0.75**2) / 2, abs=1e-6)
    assert tested["correct_mask"] == "8"  # right, wrong


def test_nan_scores_have_no_calibration() -> None:
    tested = Result.from_scores(torch.full((2, 2), torch.nan), torch.tensor([0, 1])).as_dict()
    assert [tested[name] for name in ("nll", "brier", "ece", "top1_correct")] == [None] * 3 + [0]


def test_evaluation_switches_dropout_and_gradients_off() -> None:
    class Watch(PixelScores):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert not self.training
            assert not torch.is_grad_enabled()
            return super().forward(x)

    split = ArraySplit(torch.zeros(3, 1, 8, 8, dtype=torch.uint8), [0, 1, 2])
    evaluate(Watch(64, 10).train(), split, center(8, scale_px=8), classes=10, device=CPU)


def test_uncounted_image_is_an_error(monkeypatch) -> None:
    split = ArraySplit(torch.zeros(3, 1, 8, 8, dtype=torch.uint8), [0, 1, 2])
    monkeypatch.setattr(f"{MODULE}.same_shape_batches", lambda *_: [[0]])
    with pytest.raises(RuntimeError, match="counted 1 images of a split of 3"):
        evaluate(PixelScores(64, 10), split, center(8, scale_px=8), classes=10, device=CPU)


def kept(*rows: list[float]) -> Scores:
    return Scores(np.array(rows, np.float64), np.array([0, 1]), "abc", "{}")


def test_the_ensemble_weighs_all_members_equally() -> None:
    sure = kept(*np.log([[0.9, 0.08, 0.02], [0.02, 0.38, 0.6]]).tolist())
    unsure = kept(*np.log([[0.3, 0.4, 0.3], [0.2, 0.4, 0.4]]).tolist())
    found = mean_result([sure, unsure])
    expected = torch.tensor([[0.6, 0.24, 0.16], [0.11, 0.39, 0.5]])
    assert torch.allclose(found.scores.exp().float(), expected)
    assert found.correct.tolist() == [True, False]
    assert (found.errors.num_images, found.errors.top1_correct) == (2, 1)
    three = mean_result([sure, sure, unsure])
    assert torch.allclose(three.scores[0].exp().float(), torch.tensor([2.1, 0.56, 0.34]) / 3)


def test_scores_of_other_images_or_settings_are_refused() -> None:
    one = kept([1, 0], [0, 1])
    for other in (replace(one, data="other"), replace(one, settings="other")):
        with refused(r"the runs were tested on data .* and on .*other"):
            mean_result([one, other])


def test_digest_is_of_every_field() -> None:
    one = kept([0, -1], [-2, -3])
    others = [
        replace(one, scores=one.scores - 1),
        replace(one, labels=one.labels[::-1].copy()),
        replace(one, data="other"),
        replace(one, settings="other"),
    ]
    assert len({scores.digest() for scores in (one, *others)}) == 5


KEPT = Scores(
    np.array([[-1.4, -0.3], [0, -900]], np.float64), np.array([1, 0]), "abc", '{"scale_px":36}'
)


def test_scores_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = scores_path(tmp_path, "ten_view")
    save_scores(path, KEPT)
    found = load_scores(path)
    assert np.array_equal(found.scores, KEPT.scores)
    assert np.array_equal(found.labels, KEPT.labels)
    assert (found.data, found.settings) == (KEPT.data, KEPT.settings)
    assert [p.name for p in path.parent.iterdir()] == ["ten_view.npz"]


def resave(path: Path, save: Callable = np.savez, **parts: object) -> None:
    save(path, **{**vars(KEPT), **parts})


HUGE = b"'shape': (2222222222, 2222222), }"
DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:300]),
    "pickle": lambda path: resave(path, scores=np.array([{}], dtype=object)),
    "of the softmax itself": lambda path: resave(path, scores=KEPT.scores.astype(np.float32)),
    "other shape": lambda path: resave(path, labels=np.zeros(3, int)),
    "compressed": lambda path: resave(path, np.savez_compressed),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "terabytes": lambda path: path.write_bytes(
        path.read_bytes().replace(b"'shape': (2, 2), }" + b" " * 15, HUGE)
    ),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_scores_are_refused(damage: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "ten_view.npz"
    save_scores(path, KEPT)
    damage(path)
    with refused(r"ten_view\.npz cannot be read .*remove"):
        load_scores(path)


@pytest.mark.filterwarnings("error:The ``compute`` method")
def test_a_process_without_a_share_does_not_warn(monkeypatch) -> None:
    monkeypatch.setattr(f"{MODULE}.world", lambda: World(rank=7, size=8))
    val = digits().val
    few = ArraySplit(val.images[:3], val.labels[:3])
    with pytest.raises(RuntimeError, match="counted 0 images of a split of 3"):
        evaluate(PixelScores(64, 10), few, center(8, scale_px=8), classes=10, device=CPU)
