"""The explorer's page: its theory is the library's, its networks are torch's, and its presets say
their words."""

import html
import json
import math
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rectifiers import activations, explore, gain, initializers, moments, stability
from rectifiers.initialization import report
from rectifiers.theory import mean_field
from rectifiers.theory.mean_field import SMALLEST
from rectifiers.theory.moments import NEUTRAL, moments_at

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH, DEPTH, SCALE = 64, 12, 1.3
NAMES = "relu leaky_relu prelu relu6 squared_relu squared_leaky_relu squared_prelu elu celu selu"
NAMES += " gelu silu learned_swish mish softplus hardswish snake golu telu smooth_leaky_relu xielu"
NAMES += " tanh hardtanh softsign sigmoid identity tat_leaky_relu dks"
ACTIVATIONS: dict[str, dict[str, Any]] = {name: {} for name in NAMES.split()}  # with settings
ACTIVATIONS["leaky_relu"], ACTIVATIONS["prelu"] = {"slope": 0.01}, {"initial_slope": 0.25}
ACTIVATIONS["elu"], ACTIVATIONS["snake"] = {"alpha": 1.0}, {"a": 1.0}
ACTIVATIONS["smooth_leaky_relu"] = {"slope": 0.1}
ACTIVATIONS["tat_leaky_relu"] = ACTIVATIONS["dks"] = {"depth": DEPTH - 1}
INITIALISERS = (
    *("he", "xavier", "lecun", "gaussian", "uniform", "truncated_normal", "looks_linear"),
    *("torch_default", "orthogonal"),
)
# so near a line at small responses that rounding decides where the variance settles
NEARLY_LINEAR = ("relu6, looks_linear", "hardtanh, xavier", "hardtanh, lecun")
WORDS = {
    "Xavier, 30 layers": "vanishes",
    "He": "trains",
    "PReLU’s slope": "trains",
    "Why GELU drifts": "drifts",
    "PyTorch’s default": "vanishes",
    "Batch normalisation": "trains",
}
# Numbers that JSON lacks travel as strings.
TO_JSON = "(x) => JSON.stringify(x, (_, v) => typeof v === 'number' && !Number.isFinite(v) ? String(v) : ArrayBuffer.isView(v) ? [...v] : v)"  # noqa: E501

Run = Callable[[str], Any]


def in_browser(browser: str, expression: str, folder: Path) -> Any:
    """The value of `expression` in the whole page; an error of the page fails."""
    watch = "<script>const errors = []; addEventListener('error', (e) => errors.push(e.message));"
    watch += "console.error = console.warn = (...words) => errors.push(words.join(' '));</script>"
    answer = f"""<script>addEventListener('load', () => {{
        const value = ({TO_JSON})([{expression}, errors]);
        document.body.replaceChildren(Object.assign(document.createElement('pre'), {{id: 'answer', textContent: value}}));
    }});</script>"""  # noqa: E501
    path = folder / "page.html"
    path.write_text(watch + explore.PAGE.read_text().replace("</body>", f"{answer}</body>"))
    command = [browser, "--headless", "--disable-gpu", "--dump-dom", path.as_uri()]
    command += [f"--user-data-dir={folder / 'profile'}"]
    command += ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium has none for root
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    found = re.search(r'<pre id="answer">(.*?)</pre>', done.stdout, flags=re.DOTALL)
    assert found, done.stdout[-2000:] + done.stderr
    value, errors = json.loads(html.unescape(found[1]))
    assert errors == []
    return value


@pytest.fixture
def double() -> Iterator[None]:
    """Learned factors in double precision, as a page computes: some chains multiply errors."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A function from a JavaScript expression to its value."""
    browser = next(filter(shutil.which, BROWSERS), None)
    if browser is None:
        pytest.skip(f"needs one of {', '.join(BROWSERS)}, and none is installed")
    return lambda expression: in_browser(browser, expression, tmp_path)


def close(value: Any, expected: float | None) -> bool:
    """Whether two numbers agree to 1e-6; a string is a number that JSON lacks."""
    if value is None or expected is None:
        return value is None and expected is None
    return float(value) == pytest.approx(expected, rel=1e-6, abs=1e-300, nan_ok=True)


class Mirrored(nn.Module):
    """f(y) - f(-y), which looks_linear makes of the parts f(y) and f(-y)."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        return self.activation(y) - self.activation(-y)


def variances(init: str, activation: nn.Module) -> tuple[float, float, float]:
    """n Var[w] of the first layer and of the others, and Var[b], by the library's rules."""

    def variance(forward_gain: float) -> float:
        layer = initializers.Layer(
            "layer", WIDTH, WIDTH, lambda: forward_gain, lambda: forward_gain
        )
        weight, generator = torch.empty(WIDTH, WIDTH), torch.Generator().manual_seed(0)
        return WIDTH * getattr(initializers, init)(weight, layer, generator) ** 2

    bias = 1 / (3 * WIDTH) if init == "torch_default" else 0.0
    return variance(1.0), variance(gain(activation)), bias


def settings(**changes: Any) -> str:
    start = {"width": WIDTH, "depth": DEPTH, "scale": SCALE, **changes}
    return f"{{...Core.START, ...{json.dumps(start)}}}"


@pytest.mark.process
@pytest.mark.usefixtures("double")
def test_theory_equals_the_library(run: Run) -> None:
    names = [(name, init) for name in ACTIVATIONS for init in INITIALISERS]
    shown = run(
        f"""[Object.keys(Core.ACTIVATIONS), Object.keys(Core.INITIALISERS), {json.dumps(names)}.map(([activation, init]) => {{
            const s = {{...{settings()}, activation, init}}, act = Core.activation(s), theory = Core.chain(s, act);
            const field = Core.meanField(s, act, theory), level = Core.chain({{...s, scale: 1}}, act);
            return {{moments: act.moments, gains: Core.gains(act), fluctuation: act.fluctuation, theory,
                     width: level.band.at(-1), field, map: field && [0, 0.3, 0.9].map(field.map)}};
        }})]"""  # noqa: E501
    )
    assert shown[0] == [*ACTIVATIONS, "formula"]
    assert shown[1] == list(INITIALISERS)
    for (name, init), page in zip(names, shown[2], strict=True):
        activation = getattr(activations, name)(1, **ACTIVATIONS[name])
        if init == "looks_linear":
            activation = Mirrored(activation)
        known, fate = moments(activation), stability(activation, DEPTH, units=WIDTH)
        label = f"{name}, {init}"
        assert close(page["moments"]["second"], known.second), label
        assert close(page["moments"]["derivativeSecond"], known.derivative_second), label
        assert close(page["moments"]["mapSlope"], known.map_slope), label
        assert close(page["gains"]["forward"], gain(activation)), label
        assert close(page["gains"]["backward"], gain(activation, mode="backward")), label
        assert close(page["fluctuation"], fate.fluctuation), label
        assert close(page["theory"]["errorGrowth"], fate.error_growth), label
        if init == "he":  # at a variance of 1, as `stability` has it
            assert (page["width"] is None) == (fate.width is None), label
            if fate.width:
                assert close(page["width"]["drift"], fate.width.drift), label
                assert close(page["width"]["spread"], fate.width.spread), label
        check_chain(page["theory"], activation, init, label)
        if label not in NEARLY_LINEAR:
            check_mean_field(page, activation, init, label)


def check_chain(theory: dict[str, Any], activation: nn.Module, init: str, label: str) -> None:
    first, weight, bias = variances(init, activation)
    signal, factors = [first * SCALE**2 + bias], []
    for _ in range(DEPTH - 1):
        at = moments_at(activation, signal[-1])
        signal.append(weight * at.second + bias)
        factors.append(weight * at.derivative_second)
    gradient = [math.prod(factors[i:]) for i in range(DEPTH)]
    for numbers, expected in ((theory["signal"], signal), (theory["gradient"], gradient)):
        assert len(numbers) == DEPTH
        for value, number in zip(numbers, expected, strict=True):
            if 1e-100 < number < 1e100:  # beyond, squares of it overflow or vanish
                assert close(value, number), label


def check_mean_field(page: dict[str, Any], activation: nn.Module, init: str, label: str) -> None:
    """The fixed points by their definition, and the slopes there by the depth scales."""
    first, weight, bias = variances(init, activation)
    both = {"weight_variance": weight, "bias_variance": bias}
    field, start = page["field"], first * SCALE**2 + bias
    q = float(field["q"]) if field else math.inf
    place = max(q, SMALLEST)

    def growth(second: float) -> float:
        return mean_field.variance_map(activation, second, **both) / second - 1

    if q != start:  # and all the way to it the variance moves towards it
        way = math.log(min(place, 1e6) / start)
        steps = [growth(start * math.exp(way * part / 8)) for part in range(8)]
        assert all(step * way > 0 for step in steps), label
    if field is None:
        return
    if q:
        assert growth(q) == pytest.approx(0, abs=1e-9), label

    at = moments_at(activation, place)
    chi, slope = weight * at.derivative_second, weight * at.second * at.map_slope / place
    assert close(field["chi"], chi), label
    phase = "ordered" if chi < 1 else "chaotic"
    assert field["phase"] == ("critical" if abs(chi - 1) <= NEUTRAL else phase), label
    assert slope_of(field["scales"]["variance"]) == pytest.approx(min(slope, 1), abs=1e-9), label

    def mapped(c: float) -> float:
        return mean_field.correlations(activation, c, q, layers=1, **both)[-1]

    for value, c in zip(page["map"], (0, 0.3, 0.9), strict=True):
        assert value == pytest.approx(mapped(c), abs=1e-6), label
    if abs(chi - 1) > 1e-9 and abs(slope - 1) > 1e-3:  # at 1 rounding decides
        c = field["c"]
        assert mapped(c) == pytest.approx(c, abs=1e-8), label
        assert (c < 1) is (chi > 1), label  # the map is convex: one fixed point is below 1, or none
        h = (1 - c) / 1000
        slope = (mapped(c + h) - mapped(c - h)) / (2 * h) if h else chi
        assert slope_of(field["scales"]["correlation"]) == pytest.approx(slope, abs=1e-6), label


def slope_of(scale: float | str) -> float:
    """The slope whose powers fall to 1/e in `scale` steps."""
    return math.exp(-1 / float(scale)) if float(scale) else 0.0


@pytest.mark.process
@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize(
    "init", ["torch_default", "orthogonal", "looks_linear", "uniform", "truncated_normal"]
)
def test_sampled_network_equals_torch(run: Run, batch_norm: bool, init: str) -> None:
    chosen = settings(activation="elu", init=init, width=16, depth=4, batchNorm=batch_norm)
    page = run(
        f"(() => {{ const it = Core.sample({chosen}, 3, {{batch: 8, keep: true}}); "
        "for (;;) { const step = it.next(); if (step.done) return step.value; } })()"
    )
    x = torch.tensor(page["inputs"], dtype=torch.float64).view(8, 16).requires_grad_()
    responses = []
    for layer in page["layers"]:
        weight, bias = (torch.tensor(layer[key], dtype=torch.float64) for key in ("weight", "bias"))
        y = F.linear(x, weight.view(16, 16), bias)
        y = F.batch_norm(y, None, None, training=True) if batch_norm else y
        responses.append(y)
        x = F.elu(y) - F.elu(-y) if init == "looks_linear" else F.elu(y)
        if init == "uniform":
            assert 0.04 < float(weight.abs().max()) <= 0.05
        if init == "truncated_normal":
            std = (gain("elu") if len(responses) > 1 else 1.0) / math.sqrt(16)
            assert float(weight.square().mean()) == pytest.approx(std**2, rel=0.3)
            assert float(weight.abs().max()) <= 2 * std / 0.8796
        if init in ("orthogonal", "looks_linear"):
            product = weight.view(16, 16) @ weight.view(16, 16).T
            assert torch.allclose(product, product[0, 0] * torch.eye(16).double(), atol=1e-12)
    sent = torch.tensor(page["sent"], dtype=torch.float64).view(8, 16)
    gradients = torch.autograd.grad((y * sent).sum(), responses)
    for numbers, expected in ((page["signal"], responses), (page["gradient"], gradients)):
        squares = [float(values.detach().square().mean()) for values in expected]
        assert numbers == pytest.approx(squares, rel=1e-9)


@pytest.mark.process
def test_sampled_networks_follow_the_theory(run: Run) -> None:
    """Without and with batch normalisation, whose theory the library does not have."""
    cases = [("relu", False), ("tanh", False), ("relu", True), ("gelu", True)]
    shown = run(
        f"""{json.dumps(cases)}.map(([activation, batchNorm]) => {{
            const s = {{...{settings(scale=1)}, activation, batchNorm}}, ends = [1, 2, 3, 4, 5, 6, 7, 8].map((seed) => {{
                const it = Core.sample(s, seed);
                for (;;) {{ const step = it.next(); if (step.done) return [step.value.signal.at(-1), step.value.gradient[0]]; }}
            }}), theory = Core.chain(s);
            return [0, 1].map((i) => ends.reduce((sum, end) => sum + Math.log(end[i]), 0) / ends.length
                - Math.log(i ? theory.gradient[0] : theory.signal.at(-1)));
        }})"""  # noqa: E501
    )
    for case, (signal, gradient) in zip(cases, shown, strict=True):
        assert abs(signal) < (1e-3 if case[1] else 0.8), case  # std of a mean: 0.3
        assert abs(gradient) < 0.5, case


@pytest.mark.process
def test_rounding_does_not_grow(run: Run) -> None:
    """The theory stays at a fixed point that repels, at any depth."""
    chosen = settings(activation="squared_relu", init="he", depth=60, scale=1)
    signal, word = run(f"[Core.chain({chosen}).signal, Core.verdict({chosen}).word]")
    assert signal == pytest.approx([1.0] * 60)
    assert word == "drifts"


@pytest.mark.process
def test_presets_show_their_words(run: Run) -> None:
    shown = run(
        "[...document.querySelectorAll('#steps button')].map((button, i) => { button.click(); "
        "const word = document.querySelector('#word').textContent.toLowerCase(); "
        "return [Core.PRESETS[i].title, word]; })"
    )
    assert dict(shown) == WORDS


CHOOSE = """(id, value, event) => {
    document.querySelector(id).value = value;
    document.querySelector(id).dispatchEvent(new Event(event));
}"""


@pytest.mark.process
def test_verdict_of_an_older_formula_is_grey(run: Run) -> None:
    formulas = ["x", "x +", "tanh(x)", "1 / 0", "nothing(x)"]
    shown = run(
        f"""(() => {{
            const choose = {CHOOSE}, box = document.querySelector('#verdict'), soft = document.querySelector('#init-help');
            const colour = (node) => getComputedStyle(node).color;
            choose('#activation', 'formula', 'change');
            return {json.dumps(formulas)}.map((formula) => {{
                choose('#formula', formula, 'input');
                return [box.dataset.tone, colour(box.querySelector('strong')) === colour(soft), box.textContent];
            }});
        }})()"""  # noqa: E501
    )
    assert [is_grey for _, is_grey, _ in shown] == [False, True, False, True, True]
    assert [tone for tone, *_ in shown] == ["good", "stale", shown[2][0], "stale", "stale"]
    for *_, text in shown[3:]:
        assert "f(x) = tanh(x)" in text


@pytest.mark.process
def test_story_follows_the_choice(run: Run) -> None:
    choices = [("activation", "tanh"), ("init", "lecun"), ("activation", "relu"), ("init", "he")]
    shown = run(
        f"""(() => {{
            const choose = {CHOOSE}, story = document.querySelector('#story');
            document.querySelectorAll('#steps button')[1].click();
            const first = story.textContent;
            return [first, ...{json.dumps(choices)}.map(([key, value]) => {{
                choose('#' + key, value, 'change');
                return story.textContent;
            }})];
        }})()"""
    )
    step, tanh, lecun, relu, again = shown
    assert "ReLU" in step
    assert "Tanh" in tanh
    assert "ReLU" not in tanh
    assert ("LeCun" in lecun, "ReLU" in relu) == (True, True)
    assert again == step


@pytest.mark.process
def test_formulas_are_functions_with_derivatives(run: Run) -> None:
    class Typed(nn.Module):
        def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
            super().__init__()
            self.function = function

        def forward(self, y: torch.Tensor) -> torch.Tensor:
            return self.function(y)

    formulas: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "x * sigmoid(1.702 * x)": lambda x: x * torch.sigmoid(1.702 * x),
        "max(0, x) ^ 2 - x / 4": lambda x: x.relu() ** 2 - x / 4,
        "-x^2 + 2*-x": lambda x: -(x**2) - 2 * x,
        "x * phi(x)": F.gelu,
        "x * tanh(softplus(x))": F.mish,
        "min(abs(x), 1.5) * sign(x) + cos(pi * x)": lambda x: (
            x.abs().clamp(max=1.5) * x.sign() + (math.pi * x).cos()
        ),
        "sqrt(1 + x**2) - e ^ (-(x^2)) + erf(x) ^ 3": lambda x: (
            (1 + x**2).sqrt() - (-(x**2)).exp() + x.erf() ** 3
        ),
        "2 ^ 3 ^ .5 * sin(x)": lambda x: 2 ** (3**0.5) * x.sin(),
        "-2x^2 + 3(x - 1) tanh(x) / 2x^0": lambda x: -2 * x**2 + 1.5 * (x - 1) * x.tanh(),
        "ln(1 + |x|) - 2|1 - |x| / 2|": lambda x: (1 + x.abs()).log() - 2 * (1 - x.abs() / 2).abs(),
        "2exp(-|x|)": lambda x: 2 * (-x.abs()).exp(),
        "x * (1 + sign(x - .5)) / 2": lambda x: x * (1 + (x - 0.5).sign()) / 2,  # it jumps
    }
    shown = run(
        f"{json.dumps(list(formulas))}.map((formula) => "
        f"Core.activation({{...{settings(activation='formula')}, formula}}).moments)"
    )
    for (formula, function), page in zip(formulas.items(), shown, strict=True):
        known = moments(Typed(function))
        assert close(page["second"], known.second), formula
        assert close(page["derivativeSecond"], known.derivative_second), formula
        assert close(page["mapSlope"], known.map_slope), formula


@pytest.mark.process
def test_formulas_are_refused_in_words(run: Run) -> None:
    hostile = ["", "x +", "alert(1)", "constructor", "x; 1", "max(x)", "1 / 0", "x2", "|x", "ln x"]
    hostile += ["(" * 100 + "x", "x" * 300]
    shown = run(
        f"{json.dumps(hostile)}.map((text) => "
        "{ try { Core.parse(text); return null; } catch (error) { return error.message; } })"
    )
    for text, message in zip(hostile, shown, strict=True):
        assert message, text
        assert "\n" not in message
        assert message.endswith((".", "x.")), message


def test_limits_are_those_of_the_library() -> None:
    (line,) = re.findall(r"const LIMITS = {(.*)};", explore.PAGE.read_text())
    limits = {name: float(number) for name, number in re.findall(r"(\w+): ([\de.-]+)", line)}
    assert (limits["vanished"], limits["exploded"]) == (report.VANISHED, report.EXPLODED)


def test_page_is_small_and_loads_nothing() -> None:
    text = explore.PAGE.read_text()
    assert len(text.encode()) < 300_000
    assert not re.search(
        r"<(script|img|iframe|source)\b[^>]*\ssrc=|@import|\burl\((?!#)|\bfetch\(", text
    )
    assert not re.search(r"\beval\(|new Function|\bFunction\(", text)
    assert set(re.findall(r'https?://[^"\s<]+', text)) == {"https://arxiv.org/abs/1502.01852"}


@pytest.mark.parametrize("has_browser", [True, False])
def test_explore_prints_the_path_or_opens_the_page(monkeypatch, capsys, has_browser) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or has_browser)
    for arguments, expected in ((["--print-path"], []), ([], [explore.PAGE.as_uri()])):
        monkeypatch.setattr("sys.argv", ["explore", *arguments])
        explore.main()
        out, err = capsys.readouterr()
        assert out == f"{explore.PAGE}\n"
        assert ("no browser opened" in err) == (opened != [] and not has_browser)
        assert opened == expected
