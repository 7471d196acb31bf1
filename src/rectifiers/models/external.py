"""Networks that are no chains of rows: any module, made by a function of (activation, classes,
channels, input_px)."""

import reprlib
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from rectifiers.activations import ByLayer
from rectifiers.activations.modules import outputs, pieces
from rectifiers.initialization.initialize import initialize
from rectifiers.initialization.report import LayerReport
from rectifiers.initialization.tracing import run
from rectifiers.initializers import Rule
from rectifiers.models.chains import layer_reports
from rectifiers.models.network import ActivationFactory, ImageNetwork
from rectifiers.runtime.errors import InputError
from rectifiers.runtime.seeds import derive_seed

Builder = Callable[..., nn.Module]
Bias = float | Literal["torch_default"]
EXAMPLES = 8  # standard normal images, on which the layers are found and filled


class ModuleNetwork(ImageNetwork):
    """What `build(activation, classes, channels, input_px)` returns, as a network of the benchmark.

    Activations are known by the names of the modules that `activation(channels)` made.
    """

    def __init__(
        self,
        build: Builder,
        activation: ActivationFactory,
        *,
        name: str,
        classes: int,
        channels: int,
        input_px: int,
    ) -> None:
        super().__init__()
        if isinstance(activation, ByLayer):
            raise InputError(
                f"activation=by_layer needs names of rows, and model._target_={name} has none; "
                "choose a model of rows"
            )
        self.image = (channels, input_px, input_px)
        self._units: dict[nn.Module, int] = {}  # of each activation that `build` asked for

        def build_activation(units: int) -> nn.Module:
            module = activation(units)
            self._units[module] = units
            if pieces(module) != 1 or outputs(module) != 1:
                raise InputError(
                    f"activation {type(module).__name__} reads {pieces(module)} and gives "
                    f"{outputs(module)} channels per unit, for which model._target_={name} has no "
                    "room; choose a model of rows"
                )
            return module

        self.module = build(build_activation, classes, channels, input_px)
        self.multiply_adds = _count_multiply_adds(self.module, name, self.image, classes)
        trace = run(self.module, (self.example(),))
        self.depth = max((call.reads.layers + 1 for call in trace.calls.values()), default=0)
        self.train()

    def example(self) -> Tensor:
        """Return standard normal images, always the same ones."""
        generator = torch.Generator().manual_seed(derive_seed("example", *self.image))
        return torch.randn(EXAMPLES, *self.image, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        return self.module(x)

    def own_module(self) -> nn.Module:
        return self.module

    def activations(self) -> dict[str, tuple[nn.Module, int]]:
        return {
            name: (module, self._units[module])
            for name, module in self.module.named_modules()
            if module in self._units
        }

    def initialize(
        self,
        rule: Rule,
        *,
        seed: int,
        name: str,
        bias: Bias,
        images: Tensor | None = None,
        mode: Literal["forward", "empirical"] = "forward",
    ) -> list[LayerReport]:
        """Fill all layers for what they read (see `rectifiers.initialize`); return the init report.

        images: what they read, [N, channels, px, px]; by default `example()`.
        """
        images = self.example() if images is None else images
        report = initialize(self.module, images, init=rule, seed=seed, bias=bias, mode=mode)
        self.left = [f"{name} was left as it was: {why}" for name, why in report.left.items()]
        self.start_warnings = list(report.start_warnings)
        return layer_reports(report, name, bias)


def _count_multiply_adds(
    module: nn.Module, name: str, image: tuple[int, int, int], classes: int
) -> int:
    """Return the multiply-adds of one image [channels, px, px], and refuse what is no classifier of
    images."""
    if not isinstance(module, nn.Module):
        raise InputError(
            f"model._target_={name} returns {reprlib.repr(module)}; it must return a torch module"
        )
    with FlopCounterMode(display=False) as flops, torch.no_grad():
        try:
            scores = module.eval()(torch.zeros(1, *image))
        except Exception as error:  # a user's network may raise anything
            raise InputError(
                f"model._target_={name} cannot be run on an image of "
                f"{' x '.join(map(str, image))} ({type(error).__name__}: {error})"
            ) from error
    if not isinstance(scores, Tensor) or scores.shape != (1, classes):
        result = str(list(scores.shape)) if isinstance(scores, Tensor) else type(scores).__name__
        raise InputError(
            f"model._target_={name} gives {result} for an image; it must give {classes} scores"
        )
    return flops.get_total_flops() // 2


class _Placeholder(nn.Module):
    """Stands where an activation goes until the number of its channels is known.

    timm's `act_layer` is made without a number of channels. A forward pass shows each placeholder
    what it reads; `after_linear` is then whether a linear layer made it."""

    shape: tuple[int, ...] = ()
    after_linear = False

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        self.shape, self.after_linear = x.shape, hasattr(x, "of_linear")
        return x

    @property
    def channels(self) -> int | None:
        """The channels of the maps or vectors that it reads; None for anything else, such as
        tokens."""
        is_vector = len(self.shape) == 2
        # a linear layer's four dimensions end with the channels: [N, H, W, channels]
        is_map = len(self.shape) == 4 and not self.after_linear
        return self.shape[1] if is_vector or is_map else None


def timm_model(
    activation: ActivationFactory,
    classes: int,
    channels: int,
    input_px: int,
    name: str = "resnet18",
) -> nn.Module:
    """Return timm's network `name`, its weights not trained, with `activation` wherever its
    `act_layer` stands; tokens, whose channels are not where an activation of maps looks for them,
    are refused."""
    import timm

    if not timm.is_model(name):
        near = timm.list_models(f"*{name}*")[:3]
        remedy = f"did you mean {' or '.join(near)}?" if near else "timm.list_models() lists them"
        raise InputError(f"model.name={name} is no network of timm; {remedy}")
    try:
        model: nn.Module = timm.create_model(
            name, act_layer=_Placeholder, num_classes=classes, in_chans=channels
        )
        _run_once(model, torch.zeros(1, channels, input_px, input_px))
    except Exception as error:  # networks without act_layer, or of one image size
        raise InputError(
            f"model.name={name} cannot be used with act_layer on images of {input_px} px ({error})"
        ) from error

    places = {p: module for p, module in model.named_modules() if isinstance(module, _Placeholder)}
    if not places or any(module.channels is None for module in places.values()):
        raise InputError(
            f"model.name={name} does not apply its act_layer to maps [N, channels, H, W]; choose a "
            "convolutional network"
        )

    for place, module in places.items():
        parent, _, child = place.rpartition(".")
        setattr(model.get_submodule(parent), child, activation(module.channels or 0))
    return model.train()


def _run_once(model: nn.Module, images: Tensor) -> None:
    """Run the network, so that every placeholder sees what it reads. Tensors that linear layers
    return are marked for it."""

    def mark(_: nn.Module, __: object, out: Tensor) -> None:
        out.of_linear = True  # type: ignore[attr-defined]

    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    handles = [module.register_forward_hook(mark) for module in linears]
    with torch.no_grad():
        model.eval()(images)
    for handle in handles:
        handle.remove()
