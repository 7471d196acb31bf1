from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from rectifiers.evaluation import windows
from rectifiers.evaluation.windows import mean_window_scores
from rectifiers.models.network import SpatialPyramid


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
def test_dense_scores_are_those_of_every_window_cut_out(
    levels: Sequence[int], window: int, size: tuple
) -> None:
    network = head(SpatialPyramid(levels), 8 * sum(n * n for n in levels))
    maps = torch.randn(3, 8, *size, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(
        mean_window_scores(network, maps, window),
        scores_by_cutting(network, maps, window),
        atol=1e-6,
        rtol=0,
    )


@torch.inference_mode()
def test_a_head_without_a_pyramid_scores_every_window_too() -> None:
    network = head(nn.Flatten(), 4 * 49)
    maps = torch.randn(2, 4, 9, 12, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(
        mean_window_scores(network, maps, 7), scores_by_cutting(network, maps, 7), atol=1e-6, rtol=0
    )


@torch.inference_mode()
def test_memory_is_bounded_by_chunks_that_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    network = head(SpatialPyramid((3, 1)), 80)
    maps = torch.randn(2, 8, 20, 9, generator=torch.Generator().manual_seed(1))
    whole = mean_window_scores(network, maps, 6)
    rows: list[int] = []
    network[1].register_forward_pre_hook(lambda _, given: rows.append(len(given[0])))
    monkeypatch.setattr(
        windows, "CHUNK_BYTES", 3 * 2 * 4 * 80 * 4
    )  # three rows of four windows for two images
    assert torch.allclose(mean_window_scores(network, maps, 6), whole, atol=1e-6, rtol=0)
    assert rows == [24, 24, 24, 24, 24]
    monkeypatch.setattr(windows, "CHUNK_BYTES", 1)
    assert torch.allclose(mean_window_scores(network, maps, 6), whole, atol=1e-6, rtol=0)


@torch.inference_mode()
def test_model_c_on_a_wide_image_stays_within_the_chunk() -> None:
    """480 x 720 gives 17 x 32 windows of 56,448 features, 123 MB together; no more than 64 MiB
    stand at once."""
    network = nn.Sequential(SpatialPyramid((7, 3, 2, 1)), nn.Linear(63 * 896, 4)).eval()
    sizes: list[int] = []
    network[1].register_forward_pre_hook(lambda _, given: sizes.append(given[0].numel() * 4))
    mean_window_scores(network, torch.zeros(1, 896, 30, 45), 14)
    assert max(sizes) <= windows.CHUNK_BYTES
    assert sum(sizes) == 17 * 32 * 56448 * 4
