"""An example of any usual form becomes the arguments of a forward pass."""

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rectifiers.initialization.example import arguments
from rectifiers.initialization.initialize import initialize
from refusals import refused


class Named(nn.Module):
    """A model that is called by keywords, as those of Hugging Face are."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.head = nn.Embedding(20, 16), nn.Linear(16, 16)

    def forward(self, *, input_ids: Tensor, scale: Tensor | None = None) -> dict[str, Tensor]:
        y = self.head(self.token(input_ids))
        return {"logits": y if scale is None else y * scale}


class OfDict(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return self.fc(batch["x"])


class AnyArguments(nn.Module):
    def forward(self, *args: Any, **kwargs: Any) -> None: ...


class Pair(nn.Module):
    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor: ...


X, Y = torch.ones(2, 4), torch.ones(2)


@pytest.mark.parametrize(
    ("model", "example", "expected"),
    [
        (Pair(), X, ((X,), {})),
        (Pair(), (X, Y), ((X, Y), {})),
        (Pair(), [X, Y], ((X, Y), {})),
        (nn.Linear(4, 4), [X], ((X,), {})),
        (nn.Linear(4, 4), [X, Y], ((X,), {})),  # the labels of a DataLoader
        (nn.Linear(4, 4), (X, Y), ((X,), {})),
        (Pair(), {"x": X}, ((), {"x": X})),
        (Pair(), {"y": Y, "x": X}, ((), {"y": Y, "x": X})),
        (Pair(), {"image": X}, (({"image": X},), {})),
        (OfDict(), {"x": X}, (({"x": X},), {})),
        (AnyArguments(), {"x": X}, ((), {"x": X})),
        (AnyArguments(), (X, Y, X), ((X, Y, X), {})),
    ],
)
def test_example_becomes_arguments(model: nn.Module, example: Any, expected: Any) -> None:
    args, kwargs = arguments(model, example)
    wanted, named = expected
    assert [x is y for x, y in zip(args, wanted, strict=True)] == [True] * len(args) or (
        args == wanted
    )
    assert kwargs.keys() == named.keys()
    assert all(kwargs[name] is named[name] for name in named)


def test_shapes_are_normal_numbers_that_stay_the_same() -> None:
    (x, y), _ = arguments(Pair(), ((64, 32), (64, 8)))
    assert (x.shape, y.shape) == ((64, 32), (64, 8))
    assert float(x.std()) == pytest.approx(1, abs=0.1)
    _, named = arguments(Pair(), {"x": (64, 32)})
    assert torch.equal(named["x"], x)
    for shape in ((64, 32), torch.Size((64, 32))):
        (one,), _ = arguments(nn.Linear(32, 4), shape)
        assert torch.equal(one, x)


def test_keywords_reach_the_model() -> None:
    model, example = Named(), {"input_ids": torch.arange(20).view(4, 5), "scale": torch.tensor(2.0)}
    (layer,) = initialize(model, example).layers
    assert layer.measured == pytest.approx(1, abs=0.5)
    assert [row.layer for row in initialize(OfDict(), {"x": X}).layers] == ["fc.weight"]


@pytest.mark.parametrize(
    ("model", "example", "message"),
    [
        (Named(), {"ids": X.long()}, "names ids, which Named does not take; choose .* input_ids"),
        (Pair(), {"x": X, "z": X}, "names z, which Pair does not take"),
        (Named(), {"scale": X}, "cannot be run .* input_ids"),
    ],
)
def test_wrong_dictionaries_are_one_sentence(model: nn.Module, example: Any, message: str) -> None:
    with refused(message):
        initialize(model, example)


class Sharded(nn.Parameter):
    """Stands for DTensor, which needs a process group: it has the method that gathers the parts."""

    def full_tensor(self) -> Tensor: ...


def of_integers() -> nn.Module:
    model = nn.Linear(4, 4)
    model.weight = nn.Parameter(torch.ones(4, 4, dtype=torch.int8), requires_grad=False)
    return model


def sharded() -> nn.Module:
    model = nn.Linear(4, 4)
    model.weight = Sharded(torch.ones(4, 4))
    return model


def quantised() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)))


@pytest.mark.parametrize(
    ("make", "message"),
    [(of_integers, "quantised"), (quantised, "quantised"), (sharded, "sharded weights")],
)
def test_weights_that_cannot_be_read_are_refused(make: Any, message: str) -> None:
    model = make()
    before = copy.deepcopy(model.state_dict()) if make is of_integers else None
    with refused(message):
        initialize(model, X)
    assert before is None or torch.equal(model.weight, before["weight"])
