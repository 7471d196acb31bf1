"""Every file in conf/ composes, passes the checks, and builds what it names."""

import itertools
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from conftest import CONF, compose_config
from rectifiers.cli.composition import composed
from rectifiers.data.preprocess import PixelMoments, fit
from rectifiers.data.sources import Source, digits
from rectifiers.quadrature import Moments, describe
from rectifiers.runs.config import RunConfig
from rectifiers.runs.options import NO_GROUPS
from rectifiers.runs.sections import Target
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.schema import checked
from rectifiers.training import build, checks, targets
from refusals import refused

GROUPS = {
    path.name: sorted(p.relative_to(path).with_suffix("").as_posix() for p in path.rglob("*.yaml"))
    for path in CONF.iterdir()
    if path.is_dir() and path.name not in NO_GROUPS
}
# timm has no width, and its networks are built elsewhere; the deeper residual networks differ in
# one number
MODELS = sorted(set(GROUPS["model"]) - {"timm", "resnet32", "resnet56"})
BUILT = {group: GROUPS[group] for group in ("activation", "init", "preprocess")}
BUILT |= {"model": MODELS}  # which the tests below compose and build
OPTIONS = [  # the claims are many, and `make test-all` composes them
    pytest.param(group, option, marks=[pytest.mark.process] if group == "claim" else [])
    for group in sorted(GROUPS)
    for option in GROUPS[group]
    if option not in BUILT.get(group, ())
]
SMALL = ("data.resize_px=36", "data.crop_px=32", "model.width=0.0625")


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_every_option_composes_and_passes_the_checks(group: str, option: str) -> None:
    compose_config(f"{group}={option}")


@pytest.mark.parametrize(
    ("typed", "key"),
    [
        (["+model.foo=1"], "model.foo"),
        (["+model.compile=true"], "model.compile"),
        (["model=small14", "+model.patience=3"], "model.patience"),
    ],
)
def test_setting_that_no_row_refers_to_is_refused(typed: list[str], key: str) -> None:
    with refused(rf"^{key} is not known") as raised:
        composed(typed)
    assert raised.value.status == 2
    assert composed(["model=mlp", "model.hidden=8"]).model.layers(2)[0].size == 8


@pytest.mark.parametrize("scheduler", ["plateau", "multistep"])
def test_unknown_setting_of_a_schedule_is_refused(scheduler: str) -> None:
    config = compose_config(f"scheduler={scheduler}", "+scheduler.foo=1")
    with refused(r"scheduler\.foo is not known"):
        checks.checked_functions(config)


@pytest.mark.parametrize("option", GROUPS["preprocess"])
def test_every_preprocess_fits_real_images(option: str) -> None:
    config = compose_config(f"preprocess={option}", "data.resize_px=12", "data.crop_px=12")
    source = digits()
    data = build.build_data(config, source)
    method = targets.import_function("preprocess", config.preprocess)
    fitted = fit(method, PixelMoments(data.statistics_batches), config.preprocess.scale)
    out = fitted(next(data.statistics_batches()))
    assert torch.isfinite(out).all()
    vector = {"pca": 144, "pca_whiten": 144, "pca_reduce": 100}
    assert fitted.flat_output == vector.get(option)
    assert out.shape[1:] == ((1, 12, 12) if fitted.flat_output is None else (fitted.flat_output,))


def built(config: RunConfig, source: Source, *images: Any) -> tuple[nn.Module, list[Any]]:
    return build.build_network(config, targets.import_functions(config), source, None, *images)


@pytest.fixture(scope="module")
def source() -> Source:
    return digits()


KINDS = ("prelu", "maxout", "tanh")  # of activations


def pairs() -> list[tuple[str, str, str]]:
    """Return each model with each kind of activation, with initialisers in turn."""
    combinations = itertools.product(MODELS, KINDS)
    inits = itertools.cycle(GROUPS["init"])
    return [(model, next(inits), kind) for model, kind in combinations]


@pytest.mark.filterwarnings("ignore:.*fixed point")
@pytest.mark.parametrize(("model", "init", "activation"), pairs())
def test_every_pair_goes_together(source: Source, model: str, init: str, activation: str) -> None:
    # each group's own file; a composition takes 0.1 s
    chosen = {
        "init": compose_config(f"init={init}", "init.fc_std=null").init.as_dict(),
        "activation": compose_config(f"activation={activation}").activation.as_dict(),
    }
    config = compose_config(f"model={model}", *SMALL).replaced(chosen)
    if config.model.target and activation == "maxout":
        with refused(r"Maxout reads 2 and gives 1 channels per unit,"):
            built(config, source)
        return
    if init == "looks_linear":
        with refused(r"init=looks_linear mirrors"):
            built(config, source, torch.randn(4, 1, 32, 32))
        return
    network, report = built(config, source, torch.randn(4, 1, 32, 32))
    layers = [m for m in network.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(report) == len(layers)
    scores = network.eval()(torch.randn(2, 1, 32, 32))
    assert scores.shape == (2, 10)
    assert torch.isfinite(scores).all()


@pytest.mark.parametrize("activation", GROUPS["activation"])
def test_every_activation_builds(source: Source, activation: str) -> None:
    config = compose_config(f"activation={activation}", "model=mlp", *SMALL)
    network, _ = built(config, source)
    assert network(torch.randn(2, 1, 32, 32)).shape == (2, 10)


# an override, and what its refusal names: the key and the remedy
BAD = [
    ("seed=-1", "seed=-1", "equal to 0"),
    ("optim.lr=nan", "optim.lr=NaN", "finite number"),
    ("trainer.precision=16", "trainer.precision=16", "32-true"),
    ("+trainer.strategy=ddp", "trainer.strategy", "trainer.devices"),
    ("fast=true trainer.precision=64-true", "trainer.precision=64-true", "leave one of them out"),
    ("fast=true ~trainer.precision", "trainer.precision=None", "leave one of them out"),
    ("preprocess.scale=big", "preprocess.scale=big", "unit_rms"),
    ("data.crop_px=37", "data.crop_px=37", "raise data.resize_px"),
    ("data=mnist1d data.flip=true", "data.signal=true", "data.flip=false"),
    ("data=mnist1d model=resnet20", "data.signal", "data.signal=false"),
    ("data.scale_jitter_px=[20,40]", "data.scale_jitter_px=[20, 40]", "[32,64]"),
    ("scheduler=multistep scheduler.milestones=[3,2]", "scheduler.milestones=[3, 2]", "ascending"),
    ("scheduler=multistep scheduler.milestones=[30,90]", "=[30, 90]", "raise trainer.max_epochs"),
    (
        "scheduler=multistep scheduler.milestones=[2,9] scheduler.warmup_epochs=3",
        "scheduler.warmup_epochs=3",
        "give later epochs",
    ),
    ("evaluation=[]", "evaluation", "evaluation=<option>"),
]


@pytest.mark.parametrize(("overrides", "key", "remedy"), BAD)
def test_a_bad_value_names_key_and_remedy(overrides: str, key: str, remedy: str) -> None:
    with pytest.raises(InputError) as refused:
        compose_config(*overrides.split())
    assert key in str(refused.value)
    assert remedy in str(refused.value)


def import_function(group: str, settings: dict[str, object]) -> object:
    return targets.import_function(group, checked(Target, settings))


# an option of a group, and a value of one of its settings that its function refuses
SETTINGS = [
    ("activation=prelu", "initial_slope", "abc"),
    ("activation=dks", "function", "relu"),
    ("activation=tat_leaky_relu", "similarity", 1),
    ("init=constant", "value", float("nan")),
    ("preprocess=zca", "epsilon", -1),
    ("data=digits", "val_fraction", 1),
    ("activation=prelu", "initial_slope", {"_target_": "torch.nn.ReLU"}),
    ("activation=by_layer", "layers", {"fc_1": [{"_target_": "torch.nn.ReLU"}]}),
]


def test_annotations_that_cannot_be_resolved_are_not_judged() -> None:
    """MultiStepLR's name a type that is imported for type checkers alone."""
    name = "torch.optim.lr_scheduler.MultiStepLR"
    built = import_function("scheduler", {"_target_": name, "milestones": [2]})
    assert built.keywords == {"milestones": [2]}


@pytest.mark.parametrize(
    ("option", "name", "key"),
    [("plateau", "ReduceLROnPlateau", "patience"), ("multistep", "MultiStepLR", "milestones")],
)
def test_keys_of_ours_reach_torchs_scheduler(option: str, name: str, key: str) -> None:
    value = {"patience": 2, "milestones": [2, 4]}[key]
    config = compose_config(
        f"scheduler={option}",
        f"scheduler._target_=torch.optim.lr_scheduler.{name}",
        f"scheduler.{key}={value}",
    )
    built = targets.import_function("scheduler", config.scheduler)
    made = built(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1))
    assert list(getattr(made, key)) == value if key == "milestones" else made.patience == value


@pytest.mark.parametrize(("option", "key", "value"), SETTINGS)
def test_a_bad_setting_names_its_key(option: str, key: str, value: object) -> None:
    group = option.partition("=")[0]

    def set_key() -> None:
        config = compose_config(option).replaced({f"{group}.{key}": value})
        targets.import_function(group, config.targets()[group])

    with refused(rf"{group}\.{key}="):
        set_key()


@pytest.mark.parametrize(
    ("target", "made"),
    [
        ("torch.nn.LeakyReLU", "LeakyReLU(negative_slope=0.01)"),
        ("torch.nn.PReLU", "PReLU(num_parameters=32)"),
        ("torch.nn.BatchNorm1d", "BatchNorm1d(32, eps=1e-05"),
    ],
)
def test_activations_get_channels_where_they_ask(target: str, made: str) -> None:
    factory = import_function("activation", {"_target_": target})
    assert describe(factory(32)).startswith(made)


class Step(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x > 0).to(x.dtype)


class Log(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.log()


class ByNumpy(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.tanh(x.numpy()))


class NoBackward(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.exp().sub_(1)  # exp needs its result for the gradient


class Rounded(nn.Module):
    """A step function whose gradient autograd knows, and that has a slope to learn."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.slope * x.round()


class OverPositions(nn.Module):
    """A function of single numbers on vectors, and not on maps."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean((2, 3), keepdim=True) if x.dim() == 4 else x.relu()


class Softmax(nn.Softmax):
    def __init__(self) -> None:
        super().__init__(dim=1)


class SoftmaxWithMoments(Softmax):
    def moments(self) -> Moments:
        return Moments(1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("target", "init", "reason"),
    [
        ("runs.test_configs.Step", "he", "derivative of 0 almost everywhere"),
        ("runs.test_configs.Rounded", "gaussian", "derivative of 0 almost everywhere"),
        (
            "runs.test_configs.ByNumpy",
            "he",
            r"cannot be applied .*numpy\(\) on Tensor that requires.*by torch's functions alone",
        ),
        ("runs.test_configs.NoBackward", "he", "with a gradient .* modified by an inplace"),
        ("runs.test_configs.Log", "gaussian", "is not finite"),
        ("runs.test_configs.Softmax", "he", r"mixes .*moments\(\)"),
        ("runs.test_configs.Softmax", "gaussian", None),
        ("runs.test_configs.SoftmaxWithMoments", "he", None),
        ("runs.test_configs.OverPositions", "he", "mixes"),
        ("torch.nn.Flatten", "gaussian", "keeps the number"),
        ("torch.nn.BatchNorm1d", "he", "cannot be applied"),
        ("torch.nn.RReLU", "he", None),
        ("rectifiers.activations.maxout", "he", None),
    ],
)
def test_untrainable_activation_is_refused(target: str, init: str, reason: str | None) -> None:
    config = compose_config("activation=relu", f"init={init}", "model=small14", "data=digits")
    config = config.replaced({"activation._target_": target})
    with refused(f"activation .*{reason}") if reason else nullcontext():
        checks.checked_functions(config)


def bend(y, amount=0.5):
    return y.relu() + amount * y.sin()


@pytest.mark.parametrize(
    ("target", "settings", "expected"),
    [
        ("torch.nn.functional.gelu", {}, torch.nn.functional.gelu),  # in C: it has no signature
        ("torch.nn.functional.leaky_relu", {"negative_slope": 0.1}, torch.nn.LeakyReLU(0.1)),
        ("runs.test_configs.bend", {"amount": 2.0}, lambda y: y.relu() + 2 * y.sin()),
    ],
)
def test_function_is_an_activation(target: str, settings: dict[str, float], expected: Any) -> None:
    built = import_function("activation", {"_target_": target, **settings})(3)
    y = torch.linspace(-3, 3, 12).view(4, 3)
    torch.testing.assert_close(built(y), expected(y), rtol=0, atol=0)
    assert target in repr(built)


def no_rule(weight, layer, generator):
    return None


def bend_by(y, amount):
    return bend(y, amount)


@pytest.mark.parametrize(
    ("group", "target", "remedy"),
    [
        ("activation", "os.getcwd", "it must return a torch module"),
        ("activation", "torch.nn.GroupNorm", "needs num_groups"),
        ("init", "rectifiers.activations.relu", r"\(weight, layer, generator\)"),
        ("init", "runs.test_configs.no_rule", "it must return the std"),
        ("activation", "runs.test_configs.bend_by", "needs amount; give activation.amount"),
    ],
)
def test_a_target_of_the_wrong_kind_is_named(group: str, target: str, remedy: str) -> None:
    config = compose_config("activation=relu", "model=mlp", *SMALL)
    config = config.replaced({f"{group}._target_": target})
    with refused(rf"{group}\._target_=.*{remedy}"):
        built(config, digits())
