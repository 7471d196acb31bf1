"""Layers without numbers, default types and devices, and inputs of integers."""

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rectifiers import audit, initialize

EMPTY = "it holds no numbers"


def batch(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


class Optional(nn.Module):
    """A layer beside another one, which reads more features, often none."""

    def __init__(self, *extra: nn.Module, count: int) -> None:
        super().__init__()
        self.main, self.extra, self.head = nn.Linear(8, 16), nn.Sequential(*extra), nn.Linear(16, 4)
        self.count = count

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.main(x) + self.extra(x[..., : self.count])))


class Product(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.empty(0, 16))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.matrix


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize(
    "make",
    [
        lambda: Optional(nn.Linear(0, 16), count=0),
        lambda: Optional(nn.Linear(0, 16, bias=False), nn.ReLU(), nn.Dropout(), count=0),
        lambda: Optional(nn.Linear(8, 0), nn.ReLU(), nn.Linear(0, 16), count=8),
        lambda: Optional(Product(), count=0),
    ],
    ids=["linear", "before functions", "through nothing", "product"],
)
def test_layers_without_numbers_are_left_and_named(make: Callable[[], Optional]) -> None:
    model = make()
    before = [p.clone() for p in model.extra.parameters()]
    for mode in ("forward", "backward", "empirical"):
        report = initialize(model, batch(32, 8), mode=mode).check()
        assert [row.layer for row in report.layers] == ["main.weight", "head.weight"]
        assert set(report.left.values()) == {EMPTY}
        assert all(name.startswith("extra") for name in report.left)
    assert all(map(torch.equal, before, model.extra.parameters()))
    audit(model, batch(32, 8))


@pytest.fixture
def defaults() -> Iterator[None]:
    yield
    torch.set_default_device(None)
    torch.set_default_dtype(torch.float32)


RULES = ("he", "he_uniform", "sparse", "orthogonal", "delta_orthogonal", "lsuv", "sinusoidal")


@pytest.mark.usefixtures("defaults")
@pytest.mark.parametrize("settings", [*({"init": rule} for rule in RULES), {"mode": "empirical"}])
@pytest.mark.parametrize("default", ["float64", "bfloat16", "meta"])
def test_defaults_of_torch_change_no_weights(settings: dict[str, str], default: str) -> None:
    def network() -> nn.Sequential:
        convs = (nn.Conv2d(3, 8, 3, padding=1), nn.SiLU(), nn.Conv2d(8, 8, 3), nn.GELU())
        return nn.Sequential(*convs, nn.Flatten(), nn.Linear(8 * 36, 10))

    models = [network() for _ in range(2)]
    initialize(models[0], (8, 3, 8, 8), bias="torch_default", **settings)
    if default == "meta":
        torch.set_default_device(default)
    else:
        torch.set_default_dtype(getattr(torch, default))
    initialize(models[1], (8, 3, 8, 8), bias="torch_default", **settings)
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        assert torch.equal(one, other)


@pytest.mark.usefixtures("defaults")
def test_default_type_of_the_model_draws_the_same() -> None:
    usual = nn.Linear(16, 8)
    initialize(usual, (4, 16))
    torch.set_default_dtype(torch.float64)
    double = nn.Linear(16, 8)
    initialize(double, (4, 16))
    assert double.weight.dtype == torch.float64
    assert torch.equal(usual.weight.double(), double.weight)


class Reads(nn.Module):
    def __init__(self, function: Callable[..., Tensor], inputs: int = 6) -> None:
        super().__init__()
        self.function, self.layer = function, nn.Linear(inputs, 4)
        self.register_buffer("table", torch.randn(9, 6))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.function(self, x))


@pytest.mark.parametrize(
    ("function", "inputs", "kind"),
    [
        (lambda m, x: x / 255, 6, "integers"),
        (lambda m, x: x.float().sub(4).relu(), 6, "integers"),
        (lambda m, x: F.one_hot(x.long(), 9).float().flatten(1), 54, "integers"),
        (lambda m, x: x.float().chunk(2, 1)[1], 3, "integers"),
        (lambda m, x: m.table[x[:, 0].long()], 6, None),
    ],
)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
def test_integers_are_named_where_read(
    function: Callable[..., Tensor], inputs: int, kind: str | None, dtype: torch.dtype
) -> None:
    x = torch.randint(9, (64, 6), generator=torch.Generator().manual_seed(0)).to(dtype)
    (row,) = initialize(Reads(function, inputs), x).layers
    expected = f"{kind} of the input (measured)" if kind else "numbers without a layer before"
    assert row.reads.startswith(expected)
    (mask,) = initialize(Reads(lambda m, x: x.float()), x > 4).layers
    assert mask.reads == "booleans of the input (measured)"
