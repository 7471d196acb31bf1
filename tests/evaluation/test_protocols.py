import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn
from torchvision.transforms.v2 import functional as F

from conftest import compose_config
from rectifiers.data.preprocess import Preprocess
from rectifiers.data.sources import digits
from rectifiers.data.transforms import resize_shorter
from rectifiers.evaluation import protocols
from rectifiers.evaluation.protocols import (
    Crops,
    _nearest,
    center,
    dense,
    dense_and_multi_view,
    mean_window_scores,
    multi_view,
    ten_view,
    whole,
)
from rectifiers.models.network import Network, SpatialPyramid
from rectifiers.models.rows import multiply_adds
from rectifiers.training import build
from rectifiers.training.targets import import_functions
from refusals import refused


class Small(nn.Module):
    """A network of `conf/model/` with a mean image, as a run has it."""

    def __init__(self, model: str = "small14", crop_px: int = 32, size: float = 1) -> None:
        super().__init__()
        config = compose_config(
            f"model={model}", "model.width=0.0625", "data.resize_px=224", f"data.crop_px={crop_px}"
        )
        self.network: Network = build.build_network(
            config, import_functions(config), digits(), None
        )[0]
        with torch.no_grad():
            self.network.head[-1].weight.mul_(size)
        mean = torch.linspace(90, 160, crop_px**2).view(1, crop_px, crop_px)
        self.preprocess = Preprocess(mean, torch.full((1, 1, 1), 1 / 64), None, True)
        self.eval()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.network(self.preprocess(images))


def log_mean_softmax(scores: list[torch.Tensor]) -> torch.Tensor:
    p = torch.stack(scores).double().log_softmax(-1)
    return p.logsumexp(0) - math.log(len(scores))


def photo(height: int, width: int) -> torch.Tensor:
    return torch.randint(0, 256, (1, height, width), generator=torch.Generator().manual_seed(0)).to(
        torch.uint8
    )


@torch.inference_mode()
@pytest.mark.parametrize("size", [1, 1e4], ids=["usual", "saturated"])
def test_dense_scores_all_windows_and_mirrors(size: float) -> None:
    classifier, image = Small(size=size), photo(60, 90)
    protocol = dense(32, scales_px=[54])
    found = protocol.score(classifier, protocol.views(image, 54)[None])
    by_hand = []
    resized = resize_shorter(image, 54)
    for side in (resized, resized.flip(-1)):
        maps = classifier.network.trunk(classifier.preprocess(side[None]))
        assert maps.shape[2:] == (4, 6)  # windows of 2 x 2, as the map of a 32 px crop has it
        cut = [maps[:, :, y : y + 2, x : x + 2] for y in range(3) for x in range(5)]
        by_hand += [classifier.network.head(window) for window in cut]
    torch.testing.assert_close(found, log_mean_softmax(by_hand), rtol=1e-5, atol=1e-5 * size)


def test_ten_views_are_ten_hand_cut_crops() -> None:
    image = torch.arange(3 * 37 * 45).remainder(251).to(torch.uint8).view(3, 37, 45)
    top, left = (37 - 32) // 2, round((45 - 32) / 2)  # 2 and 6
    corners = [(0, 0), (0, 13), (5, 0), (5, 13), (top, left)]
    cut = [image[:, y : y + 32, x : x + 32] for y, x in corners]
    views = ten_view(32, scale_px=37).views(image, 37)
    assert views.shape == (10, 3, 32, 32)
    assert all(torch.equal(views[i], cut[i]) for i in range(5))
    assert all(torch.equal(views[5 + i], cut[i].flip(-1)) for i in range(5))
    framed = nn.functional.pad(image, (2, 2, 2, 2))
    padded = ten_view(32, scale_px=37, pad_px=2).views(image, 37)
    assert torch.equal(padded, ten_view(32, scale_px=41).views(framed, 41))


def test_center_is_one_view() -> None:
    image = torch.arange(36 * 40).remainder(251).to(torch.uint8).view(1, 36, 40)
    assert torch.equal(center(32, scale_px=36).views(image, 36), image[None, :, 2:34, 4:36])


def test_costs_are_counted_in_multiply_adds() -> None:
    small = Small()
    network = small.network
    once = sum(shape.multiply_adds for shape in network.shapes)
    assert center(32, scale_px=36).multiply_adds(network, 36, 36) == once
    assert ten_view(32, scale_px=36).multiply_adds(network, 36, 50) == 10 * once
    assert dense(32, scales_px=[32], mirror=False).multiply_adds(network, 32, 32) == once
    trunk, head = multiply_adds(network.shapes, 54, 81)
    assert dense(32, scales_px=[54]).multiply_adds(network, 60, 90) == 2 * (trunk + 3 * 5 * head)

    counted = 0  # by hand: every conv's weights at every position of its map

    def count(layer: nn.Conv2d, _: object, out: torch.Tensor) -> None:
        nonlocal counted
        counted += layer.weight.numel() * out.shape[-1] * out.shape[-2]

    for layer in network.trunk:
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(count)
    network.trunk(torch.zeros(1, 1, 54, 81))
    assert counted == trunk


@pytest.mark.parametrize("scales", [[], [31], [36, 36], ["a"], 36, [10**6], [36.5]])
def test_unusable_scales_are_refused(scales: object) -> None:
    with refused(r"not usable.*give different whole"):
        dense(32, scales_px=scales)  # type: ignore[arg-type]


def test_whole_is_for_signals() -> None:
    signal = torch.zeros(1, 1, 40, dtype=torch.uint8)
    assert whole(40).views(signal, 1).shape == (1, 1, 1, 40)
    with refused("evaluation=whole is for signals"):
        whole(32).views(photo(32, 32), 1)


def test_dense_needs_maps_and_a_warpable_mean() -> None:
    classifier, protocol = Small("mlp"), dense(32, scales_px=[36])
    with refused(r"this network has no conv layers .*; choose evaluation"):
        protocol.score(classifier, protocol.views(photo(36, 36), 36)[None])
    classifier = Small()
    classifier.preprocess.matrix = torch.eye(1024)
    with refused(r"rotates images of 32 x 32 px and has no meaning for"):
        protocol.score(classifier, protocol.views(photo(36, 36), 36)[None])


@torch.inference_mode()
@pytest.mark.parametrize("size", [1, 1e4], ids=["usual", "saturated"])
def test_multi_view_cuts_from_both_maps(size: float) -> None:
    """Centre, corners and middles: at 68 x 102 px of a stride of 12 the map is 6 x 9, windows are 2
    x 2."""
    classifier, image = Small(size=size), photo(60, 90)
    protocol = multi_view(32, scales_px=[68])
    found = protocol.score(classifier, protocol.views(image, 68)[None])
    resized = resize_shorter(image, 68)
    by_hand = []
    maps = classifier.network.trunk(classifier.preprocess(resized[None]))
    mirrored = classifier.network.trunk(classifier.preprocess(resized.flip(-1)[None]))
    rows = (0, 2, 3)  # 0, 18 and 36 px; nearest multiples of 12, halves up
    for y in rows:
        for x in (0, 3, 6):  # 0, 35 and 70 px, and as far from the other end
            for side, left in ((maps, x), (mirrored, 6 - x)):
                window = side[:, :, y : y + 2, left : left + 2]
                by_hand.append(classifier.network.head(window))
    assert len(by_hand) == 18
    torch.testing.assert_close(found, log_mean_softmax(by_hand), rtol=1e-5, atol=1e-5 * size)


def test_six_scales_have_96_views() -> None:
    scales = [224, 256, 300, 360, 448, 560]
    weights = multi_view(224, scales_px=scales).scales_px
    assert [round(96 * weights[px]) for px in scales] == [6, 18, 18, 18, 18, 18]
    assert sum(weights.values()) == pytest.approx(1)


def test_windows_are_those_whose_centres_are_covered() -> None:
    """SPP-net's rule. Position i of a stride of 16 has its centre at 16 i + 7 (7 x 7 / 2 and two of
    three pools)."""
    for left in range(300):
        covered = [i for i in range(60) if left - 0.5 < 16 * i + 7 < left + 223.5]
        assert len(covered) == 14
        assert _nearest(left, 16, 60) == covered[0]


def test_odd_margins_leave_the_rest_on_the_right() -> None:
    protocol = multi_view(32, scales_px=[37])
    assert protocol._margins(37) == [(0, 5), (2, 3), (5, 0)]
    assert protocol._margins(32) == [(0, 0)]


def test_multi_view_costs_heads_and_trunks() -> None:
    network = Small().network
    trunk, head = multiply_adds(network.shapes, 54, 81)
    assert multi_view(32, scales_px=[54]).multiply_adds(network, 60, 90) == 2 * trunk + 18 * head
    trunk, head = multiply_adds(network.shapes, 32, 48)
    assert multi_view(32, scales_px=[32]).multiply_adds(network, 60, 90) == 2 * trunk + 6 * head


def test_combined_testing_costs_as_much_as_both() -> None:
    classifier = Small()
    parts = dense(32, scales_px=[36, 48]), multi_view(32, scales_px=[32, 48, 64])
    both = dense_and_multi_view(32, dense_scales_px=[36, 48], view_scales_px=[32, 48, 64])
    assert both.parts == parts
    costs = [protocol.multiply_adds(classifier.network, 40, 52) for protocol in (both, *parts)]
    assert costs[0] == costs[1] + costs[2]


def test_crops_must_make_their_views() -> None:
    image = photo(48, 40)
    for crop in (lambda one: F.center_crop(one, [32])[None], lambda one: F.center_crop(one, [32])):
        with refused(r"a protocol of 2 views makes \[1, .*must return \[2, 1, 32, 32\]"):
            Crops(crop, 2, 40, view_size=(32, 32)).views(image, 40)
    tall = Crops(lambda one: F.center_crop(one, [32])[None], 1, 40, view_size=(32, 30))
    with refused(r"makes \[1, 1, 32, 32\] .*must return \[1, 1, 32, 30\]"):
        tall.views(image, 40)


def scores_by_cutting(head: nn.Module, maps: Tensor, window: int) -> Tensor:
    """The same by cutting every window out, pooling it and scoring it."""
    scores = [
        head(maps[:, :, top : top + window, left : left + window]).softmax(1)
        for top in range(maps.shape[2] - window + 1)
        for left in range(maps.shape[3] - window + 1)
    ]
    return torch.stack(scores).mean(0)


def head(first: nn.Module, features: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(first, nn.Linear(features, 32), nn.PReLU(32), nn.Linear(32, 10)).eval()


@pytest.mark.parametrize("levels", [(7, 3, 2, 1), (6, 3, 2, 1), (5,)])
@pytest.mark.parametrize(
    ("window", "size"), [(14, (16, 21)), (14, (14, 14)), (18, (19, 18)), (2, (5, 4)), (1, (3, 3))]
)
@torch.inference_mode()
def test_dense_scores_are_the_windows(levels: Sequence[int], window: int, size: tuple) -> None:
    network = head(SpatialPyramid(levels), 8 * sum(n * n for n in levels))
    maps = torch.randn(3, 8, *size, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(
        mean_window_scores(network, maps, window).exp().float(),
        scores_by_cutting(network, maps, window),
        atol=1e-6,
        rtol=0,
    )


@torch.inference_mode()
def test_head_without_pyramid_scores_every_window() -> None:
    network = head(nn.Flatten(), 4 * 49)
    maps = torch.randn(2, 4, 9, 12, generator=torch.Generator().manual_seed(1))
    found = mean_window_scores(network, maps, 7).exp().float()
    assert torch.allclose(found, scores_by_cutting(network, maps, 7), atol=1e-6, rtol=0)


@torch.inference_mode()
def test_memory_is_bounded_by_chunks_that_change_nothing(monkeypatch) -> None:
    network = head(SpatialPyramid((3, 1)), 80)
    maps = torch.randn(2, 8, 20, 9, generator=torch.Generator().manual_seed(1))
    whole = mean_window_scores(network, maps, 6)
    rows: list[int] = []
    network[1].register_forward_pre_hook(lambda _, given: rows.append(len(given[0])))
    # three rows of four windows for two images
    monkeypatch.setattr(protocols, "CHUNK_BYTES", 3 * 2 * 4 * 80 * 4)
    assert torch.allclose(mean_window_scores(network, maps, 6), whole, atol=1e-6, rtol=0)
    assert rows == [24, 24, 24, 24, 24]
    monkeypatch.setattr(protocols, "CHUNK_BYTES", 1)
    assert torch.allclose(mean_window_scores(network, maps, 6), whole, atol=1e-6, rtol=0)
