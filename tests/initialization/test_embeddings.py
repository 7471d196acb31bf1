"""Tables of embeddings: filled on request, and always in the report."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rectifiers import initialize
from refusals import refused


class Words(nn.Module):
    """Tokens with padding, places of a bare parameter, a bag, and a head that may be tied."""

    def __init__(self, *, tied: bool) -> None:
        super().__init__()
        self.token = nn.Embedding(40, 64, padding_idx=3)
        self.place, self.bag = nn.Parameter(torch.ones(6, 64)), nn.EmbeddingBag(40, 64)
        self.body, self.head = nn.Linear(64, 64), nn.Linear(64, 40)
        if tied:
            self.head.weight = self.token.weight

    def forward(self, tokens: Tensor) -> Tensor:
        places = F.embedding(torch.arange(tokens.shape[1]), self.place)
        x = self.token(tokens) + places + self.bag(tokens)[:, None]
        return self.head(F.layer_norm(self.body(x).relu(), (64,)))


TOKENS = torch.arange(96).view(16, 6) % 40
NAMES = ("token.weight", "place", "bag.weight")


def given(model: Words) -> dict[str, float]:
    outputs = (model.token(TOKENS), model.place, model.bag(TOKENS))
    return {n: float(x.detach().square().mean()) for n, x in zip(NAMES, outputs, strict=True)}


@pytest.mark.parametrize("std", [0.02, 1])
@pytest.mark.parametrize("tied", [False, True])
def test_tables_are_filled_on_request(tied: bool, std: float) -> None:
    model = Words(tied=tied)
    report = initialize(model, TOKENS, embeddings=std)
    for name in NAMES:
        table = model.get_parameter(name).detach()
        rows = table[torch.arange(len(table)) != 3] if name == "token.weight" else table
        assert float(rows.std()) == pytest.approx(std, rel=0.15)
        assert f"N(0, {std:g}²)" in report.others[name]
        assert f"E[x²] = {given(model)[name]:.3g}" in report.others[name]
    assert not model.token.weight[3].any()
    assert not report.left
    assert ("a layer's weight" in report.others["token.weight"]) is tied
    head = report.layers[-1]
    assert head.std == pytest.approx(std if tied else 1 / 8, rel=0.1)
    again = Words(tied=tied)
    initialize(again, TOKENS, embeddings=std)
    assert all(map(torch.equal, model.parameters(), again.parameters()))


@pytest.mark.parametrize("init", ["he", "orthogonal"])
@pytest.mark.parametrize("tied", [False, True])
def test_report_names_embeddings_that_are_left(tied: bool, init: str) -> None:
    model = Words(tied=tied)
    before = [model.place.clone(), model.bag.weight.clone()]
    report = initialize(model, TOKENS, init)
    assert torch.equal(model.place, before[0])
    assert torch.equal(model.bag.weight, before[1])
    assert report.left.keys() == set(NAMES[tied:])
    sentences = report.left | report.others
    for name, second in given(model).items():
        assert f"E[x²] = {second:.3g}" in sentences[name]
        assert name in str(report)
    assert report.others.keys() == ({"token.weight"} if tied else set())


@pytest.mark.parametrize("embeddings", [0, -1.0, math.nan, math.inf, True, "small"])
def test_unusable_stds_are_refused(embeddings: Any) -> None:
    with refused(f"embeddings={embeddings} is not usable; give a std"):
        initialize(Words(tied=False), TOKENS, embeddings=embeddings)


def test_network_without_embeddings_refuses_their_std() -> None:
    with refused(r"embeddings=0\.02: the run reads no embedding"):
        initialize(nn.Linear(4, 4), (8, 4), embeddings=0.02)
