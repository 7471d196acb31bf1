"""A network with our PReLU is exported and quantised as one with torch's, and what comes out needs
torch alone."""

import copy
import io
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rectifiers.prelu import PReLU, SquaredPReLU, cpu, swap_prelu
from rectifiers.prelu.operator import MIN_NUMBERS

X = torch.randn(4, 3, 40, 40, generator=torch.Generator().manual_seed(0))


class Residual(nn.Module):
    """One PReLU in two places, and one behind a fully connected layer."""

    def __init__(self, act: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, padding=1)
        self.act, self.last, self.head = act(8), act(1), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.first(x))
        x = x + self.act(self.second(x))
        return self.last(self.head(x.mean((2, 3))))


def chain(act: Callable[[int], nn.Module]) -> nn.Module:
    convs = (nn.Conv2d(3, 8, 3), act(8), nn.Conv2d(8, 4, 3, bias=False), act(1))
    return nn.Sequential(*convs, nn.Flatten(), nn.Linear(4 * 36 * 36, 5))


def build(kind: Callable[..., nn.Module], act: Callable[[int], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    network = kind(act)
    for module in network.modules():
        if isinstance(module, nn.PReLU):
            nn.init.uniform_(module.weight, 0.1, 0.6)
    return network


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "a swapped residual network": lambda: swap_prelu(build(Residual, nn.PReLU)),
    "a chain of ours": lambda: build(chain, PReLU),
    "a residual network with ReLU": lambda: swap_prelu(
        build(Residual, lambda _: nn.ReLU()), relu=True
    ),
}


@pytest.fixture(params=NETWORKS)
def network(request) -> nn.Module:
    """In training mode, and with responses that are not too few for our operation."""
    return NETWORKS[request.param]()


@pytest.mark.skipif(cpu.unavailable_reason() is not None, reason="needs the C library")
def test_eager_training_uses_our_operation(network: nn.Module) -> None:
    heard: list[str] = []
    for module in network.modules():
        if isinstance(module, nn.PReLU):
            module.register_forward_hook(lambda _, x, y: heard.append(type(y.grad_fn).__name__))
    network(X)
    assert X.numel() > MIN_NUMBERS
    assert heard[:2] == ["_PReLUBackward"] * 2


def test_scripted_network_is_torchs_alone(network: nn.Module) -> None:
    scripted = torch.jit.script(network)
    assert torch.equal(scripted(X), network(X))
    assert "aten::prelu" in str(scripted.inlined_graph)
    assert "rectifiers::" not in str(scripted.inlined_graph)


def test_traced_network_is_torchs_alone(network: nn.Module) -> None:
    traced = torch.jit.trace(network, X)
    assert torch.equal(traced(X), network(X))
    assert "aten::prelu" in str(traced.inlined_graph)
    assert "rectifiers::" not in str(traced.inlined_graph)


@pytest.mark.parametrize("strict", [False, True])
def test_exported_network_is_torchs_alone(network: nn.Module, strict: bool) -> None:
    program = torch.export.export(network, (X,), strict=strict)
    operations = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert "aten.prelu.default" in operations
    assert not [name for name in operations if "rectifiers" in name]
    assert torch.equal(program.module()(X), network(X))


def test_layer_alone_is_scripted_and_traced() -> None:
    layer = swap_prelu(nn.PReLU(3))
    for made in (torch.jit.script(layer), torch.jit.trace(layer, X)):
        assert torch.equal(made(X), layer(X))


def test_squares_are_exported_as_torchs_alone() -> None:
    network = build(chain, SquaredPReLU)
    exported = torch.export.export(network, (X,)).module()
    for made in (torch.jit.script(network), torch.jit.trace(network, X), exported):
        assert torch.equal(made(X), network(X))
        assert "rectifiers::" not in str(getattr(made, "inlined_graph", getattr(made, "graph", "")))


@pytest.mark.parametrize("dynamo", [False, True])
def test_both_onnx_exporters_write_prelu(network: nn.Module, dynamo: bool) -> None:
    onnx = pytest.importorskip("onnx", reason="needs onnx, of the extra dev")
    reference = pytest.importorskip("onnx.reference", reason="needs onnx, of the extra dev")
    if dynamo:
        pytest.importorskip("onnxscript", reason="needs onnxscript, of the extra dev")
    network.eval()
    file = io.BytesIO()
    torch.onnx.export(network, (X,), file, dynamo=dynamo)
    model = onnx.load_model_from_string(file.getvalue())
    assert {node.domain for node in model.graph.node} == {""}
    assert sum(node.op_type == "PRelu" for node in model.graph.node) >= 2
    reader = reference.ReferenceEvaluator(model)
    (y,) = reader.run(None, {reader.input_names[0]: X.numpy()})
    torch.testing.assert_close(torch.from_numpy(y), network(X).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")  # torch moves quantisation to torchao
@pytest.mark.parametrize("kind", [chain, Residual])
@pytest.mark.parametrize("of_ours", [False, True])
def test_quantised_network_equals_torchs(kind: Callable[..., nn.Module], of_ours: bool) -> None:
    fx = pytest.importorskip("torch.ao.quantization.quantize_fx", reason="torch gave it up")
    settings = torch.ao.quantization.get_default_qconfig_mapping("fbgemm")
    found = []
    for network in (swap_prelu(build(kind, PReLU if of_ours else nn.PReLU)), build(kind, nn.PReLU)):
        prepared = fx.prepare_fx(network.eval(), settings, (X,))
        prepared(X)
        quantised = fx.convert_fx(prepared)
        kinds = [type(module) for module in list(quantised.modules())[1:]]
        found.append((kinds, quantised(X)))
    (kinds, y), (expected_kinds, expected) = found
    assert kinds == expected_kinds
    assert torch.ao.nn.quantized.PReLU in kinds
    assert torch.equal(y, expected)


def test_copies_compute_with_their_own_slopes() -> None:
    layer = swap_prelu(nn.PReLU(3))
    copied = copy.deepcopy(layer)
    nn.init.constant_(copied.weight, 2.0)
    assert torch.equal(copied(X), torch.prelu(X, copied.weight))
    assert torch.equal(layer(X), torch.prelu(X, layer.weight))


def test_pickled_layers_are_torchs_again() -> None:
    layer = swap_prelu(nn.PReLU(3))
    content = pickle.dumps(layer)
    assert b"rectifiers" not in content
    assert type(pickle.loads(content)(X).grad_fn).__name__ == "PreluKernelBackward0"


def test_layer_follows_its_input_to_another_device() -> None:
    """As in a replica of `nn.DataParallel`, which shares the forward method of its original."""
    assert swap_prelu(nn.PReLU(3))(X.to("meta")).device.type == "meta"


def test_keyword_of_the_input_is_torchs() -> None:
    for layer in (PReLU(3), swap_prelu(nn.PReLU(3)), nn.PReLU(3)):
        assert torch.equal(layer(input=X), torch.prelu(X, layer.weight))


ELSEWHERE = """
import sys
sys.modules["rectifiers"] = None  # an import of it fails
import torch
x, y = torch.load("numbers.pt")
networks = {
    "scripted": torch.jit.load("scripted.pt"),
    "traced": torch.jit.load("traced.pt"),
    "exported": torch.export.load("exported.pt2").module(),
    "pickled": torch.load("pickled.pt", weights_only=False),
}
print([name for name, network in networks.items() if torch.equal(network(x), y)])
assert not hasattr(torch.ops.rectifiers, "prelu")
"""


@pytest.mark.process
def test_files_load_where_this_library_is_unknown(tmp_path: Path) -> None:
    network = swap_prelu(build(chain, nn.PReLU))
    torch.save((X, network(X).detach()), tmp_path / "numbers.pt")
    torch.jit.script(network).save(tmp_path / "scripted.pt")
    torch.jit.trace(network, X).save(tmp_path / "traced.pt")
    torch.export.save(torch.export.export(network, (X,)), tmp_path / "exported.pt2")
    torch.save(network, tmp_path / "pickled.pt")
    done: Any = subprocess.run(
        [sys.executable, "-I", "-c", ELSEWHERE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['scripted', 'traced', 'exported', 'pickled']"
