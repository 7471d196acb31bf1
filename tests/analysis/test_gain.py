"""Gains and their stability: known values, and what fifty layers make of them."""

from functools import partial

import pytest
from torch import nn

from rectifiers import activations as A
from rectifiers.analysis.gain import gains

# gain^2 = 1 / E[f^2] and the slope of the variance map, worked out beforehand by adaptive
# integration
KNOWN = {
    A.relu: (2.0, 1.0),
    A.prelu: (2 / 1.0625, 1.0),
    A.tanh: (2.5362, 0.461),
    A.sigmoid: (3.4086, 0.106),
    A.gelu: (2.3517, 1.144),
    A.silu: (2.8108, 1.173),
    A.elu: (1.5505, 0.891),
    A.softplus: (1.0855, 0.492),
    A.maxout: (1.0, 1.0),
    A.identity: (1.0, 1.0),
    lambda c: nn.Mish(): (2.2107, 1.076),
    lambda c: nn.Hardswish(): (3.0160, 1.224),
    lambda c: nn.Hardtanh(): (1.9378, 0.385),
}


def table(activations, **settings):
    options = {"seeds": 3, "depth": 20, "units": 128, **settings}
    return {row["activation"]: row for row in gains(activations, **options)["rows"]}


def test_gains_and_slopes_equal_known_values() -> None:
    rows = table({str(i): factory for i, factory in enumerate(KNOWN)}, seeds=0, units=8)
    for row, (gain2, slope) in zip(rows.values(), KNOWN.values(), strict=True):
        assert row["forward_gain2"] == pytest.approx(gain2, abs=6e-5)
        assert row["map_slope"] == pytest.approx(slope, abs=6e-4)
    assert [row["fixed_point"] for row in rows.values()] == [
        "neutral" if slope == 1 else "attracts" if slope < 1 else "repels"
        for _, slope in KNOWN.values()
    ]
    assert {rows[str(i)]["fixed_point"] for i in (4, 5, 10, 11)} == {"repels"}


@pytest.mark.process
def test_repelling_gains_alone_lose_the_signal() -> None:
    """20 layers of 128, 3 draws: the predicted spread is 0.38 decades for ReLU, and 0.02 for tanh;
    SiLU's first-order growth is 1.173^19 = 21 times an error of a few percent a layer."""
    rows = table({"relu": A.relu, "tanh": A.tanh, "silu": A.silu}, depth=50, seeds=4)
    for name in ("relu", "tanh"):
        row = rows[name]
        allowed = 4 * row["predicted_spread"] + 0.15
        assert abs(row["forward"]["mean"] - row["predicted_drift"]) < allowed
        assert abs(row["backward"]["mean"] - row["predicted_backward"]) < 1.2
    assert rows["tanh"]["backward"]["mean"] > 2.5  # chi = 1.18: its gradients grow
    assert rows["silu"]["predicted_spread"] is None
    assert rows["silu"]["forward"]["mean"] > 2


def test_maxout_gradients_count_its_pieces() -> None:
    """Five layers of 256: what finite width adds has a spread of 0.02 over draws; a piece too many
    is 0.48."""
    row = table({"maxout": partial(A.maxout, pieces=3)}, seeds=8, depth=5, units=256)["maxout"]
    assert row["backward"]["mean"] == pytest.approx(row["predicted_backward"], abs=0.15)
