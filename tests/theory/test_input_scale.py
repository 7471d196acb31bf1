"""The linear layers of claims on small inputs start as far below He's std as the paper's do."""

from math import prod, sqrt

import pytest

from rectifiers.cli.composition import composed
from rectifiers.models.rows import trace


def he_stds(model: str, classes: int, **images: int) -> list[float]:
    """He's stds of a network's linear layers."""
    config = composed([*model.split(), "model.width=1.0"] if classes == 1000 else model.split())
    shapes = [s for s in trace(config.model.layers(classes), **images) if s.row.kind == "linear"]
    return [sqrt(2 / (shape.parameters / shape.channels - 1)) for shape in shapes]


def papers_shares() -> list[float]:
    stds = he_stds("model=small14", 1000, channels=3, input_px=224)
    return [given / std for given, std in zip((0.01, 0.01, 0.001), stds, strict=True)]


def test_papers_linear_layers_are_below_hes() -> None:
    assert papers_shares() == pytest.approx([0.8, 0.45, 0.045], rel=0.01)
    assert 1 / prod(papers_shares()) == pytest.approx(61, rel=0.01)


@pytest.mark.parametrize(
    ("claim", "channels", "px"),
    [("figure2", 1, 8), ("figure3", 1, 8), ("cifar_figure2", 3, 32), ("cifar_figure3", 3, 32)],
)
def test_claims_have_the_papers_shares(claim: str, channels: int, px: int) -> None:
    stds = he_stds(f"claim={claim}_pixels", 10, channels=channels, input_px=px)
    expected = [share * std for share, std in zip(papers_shares(), stds, strict=True)]
    assert composed([f"claim={claim}_pixels"]).init.fc_std == pytest.approx(expected, rel=0.02)
