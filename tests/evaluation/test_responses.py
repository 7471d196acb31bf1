"""Means, spreads and dead units, against the same computed from all responses at once."""

import torch
from torch import nn

from rectifiers.evaluation.responses import ResponseMeter


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
    found = meter.by_layer()
    for name, responses in (("conv1", conv(maps)), ("fc1", flat(vectors))):
        torch.testing.assert_close(
            found[name].mean, responses.double().mean().item(), rtol=1e-6, atol=0
        )
        torch.testing.assert_close(
            found[name].std, responses.double().std(correction=0).item(), rtol=1e-5, atol=0
        )
        assert found[name].active == (responses > 0).double().mean()
    assert (found["conv1"].dead, found["conv1"].units) == (1, 6)
    assert (found["fc1"].dead, found["fc1"].units) == (3, 4)


def test_forward_passes_outside_the_context_are_not_measured() -> None:
    activation = nn.ReLU()
    meter = ResponseMeter({"fc1": (activation, 3)})
    with meter.listening():
        activation(torch.ones(2, 3))
    activation(torch.full((2, 3), 100.0))
    assert meter.by_layer()["fc1"].mean == 1.0
    assert not activation._forward_hooks


def test_the_meter_has_no_parameters_of_its_own() -> None:
    assert not list(ResponseMeter({"fc1": (nn.PReLU(3), 3)}).parameters())


def test_a_network_without_activations_has_no_responses() -> None:
    assert ResponseMeter({}).by_layer() == {}
