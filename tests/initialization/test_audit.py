"""`audit` reads a start, changes nothing, and finds what is at fault with it."""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from networks import Net
from rectifiers import __main__ as program
from rectifiers import audit, dead_units, initialize
from rectifiers.initialization.audit import AuditReport
from rectifiers.initialization.flow import measure
from rectifiers.initialization.weights import Fit, Looks, look, usual
from refusals import refused


def batch(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    torch.manual_seed(0)


def zeroed(layer: nn.Module) -> nn.Module:
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer


def severities(report: AuditReport, tensor: str) -> set[str]:
    return {x.severity for x in report.findings if tensor in x.tensors}


def linear() -> nn.Linear:
    return nn.Linear(16, 16)


# other kinds of errors than those of the gallery
ERRORS = {
    "overflow": lambda m, x: (m.a(x) * 1e30) ** 2,
    "argmax": lambda m, x: m.b(F.one_hot(m.a(x).argmax(1), 16).float()),
    "tanh of large numbers": lambda m, x: m.b((1e4 * m.a(x)).tanh()),
}


@pytest.mark.parametrize("name", ERRORS)
def test_other_errors_are_found(name: str) -> None:
    model = Net(ERRORS[name], a=linear(), b=linear())
    assert "error" in severities(audit(model, batch(8, 16)), "a.weight")


def adaptive(m: Net, x: Tensor) -> Tensor:
    """adaLN-zero: a condition shifts, scales and gates a branch, and nothing of it at first."""
    shift, scale, gate = m.condition(F.silu(m.embed(x))).chunk(3, 1)
    y = x + gate * m.two(F.gelu(m.one(m.norm(x) * (1 + scale) + shift)))
    return m.head(m.norm(y))


ZEROS = {
    "last gamma": lambda: Net(
        lambda m, x: m.head((x + m.norm(m.two(m.one(x).relu()))).relu()),
        one=linear(), two=linear(), norm=zeroed(nn.BatchNorm1d(16)), head=linear(),
    ),
    "head": lambda: nn.Sequential(nn.Linear(16, 16), nn.ReLU(), zeroed(nn.Linear(16, 4))),
    "adaLN": lambda: Net(
        adaptive,
        embed=linear(), condition=zeroed(nn.Linear(16, 48)), norm=nn.LayerNorm(16),
        one=linear(), two=linear(), head=zeroed(nn.Linear(16, 4)),
    ),
    "LoRA": lambda: Net(
        lambda m, x: m.base(x) + m.b(m.a(x)),
        base=linear().requires_grad_(False), a=nn.Linear(16, 2), b=zeroed(nn.Linear(2, 16)),
    ),
    "output projection": lambda: Net(
        lambda m, x: m.head(x + m.two(m.one(x).relu())),
        one=linear(), two=zeroed(linear()), head=linear(),
    ),
    "layer scale": lambda: Net(
        lambda m, x: m.head(m.stem(x) + 1e-6 * m.two(m.one(m.stem(x)).relu())),
        stem=linear(), one=linear(), two=linear(), head=linear(),
    ),
    "a bias that is taken away": lambda: Net(
        lambda m, x: m.b(m.a(x) - m.a.bias), a=linear(), b=linear()
    ),
    "a bias before batch norm": lambda: nn.Sequential(
        linear(), nn.BatchNorm1d(16), nn.ReLU(), linear()
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ZEROS)
def test_zeros_that_are_meant_are_no_faults(name: str) -> None:
    report = audit(ZEROS[name](), batch(8, 16))
    assert not report.errors + report.warnings


def test_model_is_run_twice_and_once_a_step() -> None:
    runs = []

    def forward(m: Net, x: Tensor) -> Tensor:
        runs.append(1)
        return m.b(m.a(x))

    audit(Net(forward, a=linear(), b=linear()), batch(8, 16))
    assert len(runs) == 2
    audit(Net(forward, a=linear(), b=zeroed(linear())), batch(8, 16))
    assert len(runs) == 2 + 3


def weight(rule: Callable[[Tensor], Any], *shape: int) -> nn.Module:
    layer = nn.Conv2d(shape[1], shape[0], shape[2]) if len(shape) > 2 else nn.Linear(*shape[::-1])
    rule(layer.weight)
    return layer


RULES = {
    "he, normal": lambda w: nn.init.kaiming_normal_(w),
    "he, uniform": lambda w: nn.init.kaiming_uniform_(w),
    "he (fan_out), normal": lambda w: nn.init.kaiming_normal_(w, mode="fan_out"),
    "xavier, uniform": nn.init.xavier_uniform_,
    "lecun, normal": lambda w: nn.init.normal_(w, std=1 / math.sqrt(w[0].numel())),
    "torch default, uniform": lambda w: None,
    "orthogonal": nn.init.orthogonal_,
    "zeros": nn.init.zeros_,
    "std 0.02, normal": lambda w: nn.init.normal_(w, std=0.02),
    "std 0.02 x 0.88, truncated normal": lambda w: nn.init.trunc_normal_(w, 0, 0.02, -0.04, 0.04),
    "std 0.05, uniform": lambda w: nn.init.uniform_(w, -0.05 * 3**0.5, 0.05 * 3**0.5),
    "sparse, 90 % zeros": lambda w: nn.init.sparse_(w.flatten(1).T, 0.9),
}


@pytest.mark.parametrize("shape", [(200, 120), (48, 32, 3)], ids=["linear", "conv"])
@pytest.mark.parametrize("rule", RULES)
def test_rules_are_recognised(rule: str, shape: tuple[int, ...]) -> None:
    model = weight(RULES[rule], *shape)
    example = (4, 32, 8, 8) if len(shape) > 2 else (4, 120)
    assert audit(model, example).tensors[0].looks.rule == rule


def test_rule_that_fits_more_layers_is_named() -> None:
    near, far = Fit("std 0.1", "", 1.0, 0.001), Fit("he", "", 1.0, 0.002)
    looks = [Looks(0.1, "normal", fits=fits) for fits in ((near, far), (far,), (far,))]
    assert [x.rule for x in usual(looks)] == ["he, normal"] * 3


def test_std_that_the_signal_needs_is_that_of_initialize() -> None:
    def two_branches(m: Net, x: Tensor) -> Tensor:
        x = m.first(x)
        x = x + m.two(m.one(x).relu())
        return m.head(x + m.four(m.three(x).relu()))

    names = ("first", "one", "two", "three", "four", "head")
    model = Net(two_branches, **{name: nn.Linear(256, 256) for name in names})
    report = initialize(model, batch(64, 256))
    assert report.layers[2].share == 0.5
    audited = audit(model, batch(64, 256))
    stds = [row.std for row in report.layers]
    assert [row.needed for row in audited.tensors] == pytest.approx(stds, rel=0.1)
    measured = [row.measured for row in report.layers]
    assert [row.second for row in audited.tensors] == pytest.approx(measured, rel=1e-4)


@pytest.mark.parametrize("has_run", [False, True])
def test_moved_statistics_need_fewer_trained_weights(*, has_run: bool) -> None:
    """One of three layers has a singular value that no independent numbers have."""
    layers = [nn.Linear(32, 32) for _ in range(3)]
    layers[0].weight.detach().add_(torch.ones(32, 32))
    norm = nn.BatchNorm1d(32)
    norm.num_batches_tracked += has_run
    report = audit(nn.Sequential(layers[0], norm, *layers[1:]), batch(8, 32))
    assert any("look trained" in x.sentence for x in report.findings) is has_run


def test_dead_units_need_one_step_to_be_known(monkeypatch) -> None:
    flows = []
    module = sys.modules["rectifiers.initialization.steps"]
    monkeypatch.setattr(module, "measure", lambda *a: flows.append(measure(*a)) or flows[-1])
    model = nn.Sequential(linear(), nn.ReLU(), linear(), nn.ReLU(), linear())
    nn.init.constant_(model[0].bias, -1000.0)
    assert audit(model, batch(8, 16)).errors
    assert len(flows) == 1


def test_drawn_matrices_of_any_shape_look_drawn() -> None:
    for shape in ((16, 16), (16, 600), (400, 30), (64, 3, 3, 3), (512, 512)):
        for rule in (nn.init.kaiming_normal_, nn.init.xavier_uniform_):
            assert not look(rule(torch.empty(shape)), None).is_structured


def test_single_numbers_far_out_are_a_note() -> None:
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))
    nn.init.normal_(model[0].weight, std=0.02)
    model[0].weight.detach()[0, 0] = 2.0
    report = audit(model, batch(8, 256))
    assert [x.sentence for x in report.findings if "0.weight" in x.tensors if "far out" in str(x)]
    assert not report.tensors[0].looks.is_structured


def test_report_raises_and_prints() -> None:
    good, dead = (nn.Sequential(linear(), nn.ReLU(), linear()) for _ in range(2))
    report = audit(good, batch(8, 16))
    assert report.check(strict=True) is report
    assert "| 2.weight | 16x16 | ReLU() of 0.weight |" in report.to_markdown()
    assert repr(report) == str(report)
    nn.init.constant_(dead[0].bias, -1e3)
    with refused(r"0\.weight"):
        audit(dead, batch(8, 16)).check()
    sigmoids = nn.Sequential(*(m for _ in range(30) for m in (linear(), nn.Sigmoid())), linear())
    initialize(sigmoids, (8, 16))
    warned = audit(sigmoids, batch(8, 16))
    assert warned.check() is warned
    with refused("the gradient vanishes"):
        warned.check(strict=True)


def test_parameters_that_the_run_does_not_read_are_a_note() -> None:
    model = Net(lambda m, x: m.a(x.to(m.unread.weight.dtype)), a=linear(), unread=linear())
    report = audit(model, batch(8, 16))
    assert not report.errors
    assert severities(report, "unread.weight") == {"note"}


def test_dictionaries_and_objects_are_read() -> None:
    class Output(dict):
        __getattr__ = dict.__getitem__

    class Language(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.head = nn.Embedding(20, 16), linear()

        def forward(self, *, input_ids: Tensor, labels: Tensor | None = None) -> Output:
            return Output(loss=None, logits=self.head(self.token(input_ids)))

    report = audit(Language(), {"input_ids": torch.arange(20).view(4, 5)})
    assert not report.errors
    assert [row.tensor for row in report.tensors] == ["head.weight", "token.weight"]


def test_complex_parameters_beside_layers_are_read() -> None:
    class Spectral(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = linear()
            self.scale = nn.Parameter(torch.randn(2, 9, dtype=torch.complex64))

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.fft.irfft(torch.fft.rfft(x) * self.scale.sum(0)))

    report = audit(Spectral(), batch(8, 16))
    assert not report.findings
    assert [row.tensor for row in report.tensors] == ["head.weight", "scale"]
    with refused(r"weight is of torch.complex64"):
        audit(nn.Linear(16, 16, dtype=torch.complex64), batch(8, 16).to(torch.complex64))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.LazyLinear(4)), "lazy layers"),
        (nn.Linear(16, 4, device="meta"), "on device meta"),
        (nn.Linear, "is a class"),
        (batch(8, 16), "is no module"),
        (Net(lambda m, x: m.a(x, x), a=linear()), "cannot be run"),
    ],
)
def test_models_that_cannot_be_run_are_one_sentence(model: Any, message: str) -> None:
    with refused(message):
        audit(model, batch(8, 16))


def test_dead_units_are_counted_over_all_batches() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
    nn.init.constant_(model[0].bias, -100.0)
    model[0].bias.detach()[0] = 100.0
    x = batch(8, 1, 4, 4)
    assert dead_units(model, [x])["0.weight"] == 0.75
    assert dead_units(model, [x, torch.full_like(x, 1e6), [-x, torch.zeros(8)]]) != {}
    lively = torch.cat([-1e6 * torch.eye(16)[:8], 1e6 * torch.eye(16)[8:]]).view(16, 1, 4, 4)
    assert dead_units(model, [x, lively])["0.weight"] == 0.0
    smooth = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 2))
    assert set(dead_units(smooth, [batch(4, 8)]).values()) == {0.0}
    with refused("no batch"):
        dead_units(model, [])
    with refused(r"cannot be run on example_input of shape \(8, 1, 9, 9\)"):
        dead_units(model, [x, batch(8, 1, 9, 9)])


@pytest.mark.filterwarnings("ignore:Initializing zero-element")
def test_layers_without_numbers_are_not_judged() -> None:
    empty = {"narrow": nn.Linear(16, 0), "wide": nn.Linear(0, 16)}
    model = Net(lambda m, x: m.head(m.wide(m.narrow(x)) + x), **empty, head=linear())
    assert not audit(model, batch(8, 16)).findings
    assert set(dead_units(model, [batch(8, 16)])) == {"head.weight"}


@pytest.mark.parametrize("judge", [audit, lambda model, x: dead_units(model, [x])])
def test_outputs_without_numbers_are_refused(judge: Callable[..., Any]) -> None:
    with refused("the outputs of Net hold no numbers"):
        judge(Net(lambda m, x: m.a(x)[:0], a=linear()), batch(8, 16))


def test_steps_for_a_large_table_wake_no_dead_unit() -> None:
    """Few rows of a table have a gradient; a step moves them no farther than other weights."""
    dead = linear()
    nn.init.constant_(dead.bias, -2.0)
    model = Net(
        lambda m, x: m.head(m.table(x) + m.end(m.dead(m.table(x)).relu())),
        table=nn.Embedding(100_000, 16), dead=dead, end=linear(), head=linear(),
    )  # fmt: skip
    assert "error" in severities(audit(model, torch.arange(8)), "dead.weight")


MODULE = """
import torch
from torch import nn

def good(): return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
def pair(): return good(), torch.randn(4, 8)
def two(): return nn.Bilinear(8, 6, 4)
def number(): return 3
def dead():
    model = good()
    nn.init.constant_(model[0].bias, -100.0)
    return model
def sigmoids():
    return nn.Sequential(*(m for _ in range(40) for m in (nn.Linear(8, 8), nn.Sigmoid())))
"""


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["good", "--shape", "4,8"], 0, "| 0.weight |"),
        (["pair"], 0, "| 0.weight |"),
        (["two", "--shape", "4,8", "--shape", "4,6"], 0, "| weight |"),
        (["dead", "--shape", "4,8"], 1, "error: 0.weight"),
        (["sigmoids", "--shape", "4,8"], 0, "warning: "),
        (["sigmoids", "--shape", "4,8", "--strict"], 1, "warning: "),
        (["absent", "--shape", "4,8"], 1, "no model (AttributeError"),
        (["number", "--shape", "4,8"], 1, "is no module"),
        (["good", "--shape", "4,x"], 1, "not whole numbers"),
        (["good", "--shape", "4,7"], 1, "cannot be run"),
        (["good", "--shape", f"{2**40},{2**40}"], 1, "cannot be drawn"),
        (["good", "--shape", f"{2**70},8"], 1, "cannot be drawn"),
        (["good"], 1, "give --shape"),
    ],
)
def test_command_prints_an_audit(
    arguments: list[str], status: int, words: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    (tmp_path / "audited_models.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "audited_models", raising=False)
    name, *rest = arguments
    monkeypatch.setattr("sys.argv", ["rectifiers", "audit", f"audited_models:{name}", *rest])
    assert program.main() == status
    printed = capsys.readouterr()
    assert words in printed.out + printed.err
    assert not printed.err or printed.err.count("\n") == 1


def test_caches_of_a_run_are_not_taken_for_weights() -> None:
    """Some models keep in evaluation what they compute of parameters, as LeViT does."""

    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.scale, self.kept = linear(), nn.Parameter(torch.ones(16)), None

        def forward(self, x: Tensor) -> Tensor:
            if self.kept is None:
                self.kept = self.scale * 2
            return self.fc(x) * self.kept

    model = Cached()
    assert not audit(model, batch(8, 16)).findings
    assert model.kept is None
