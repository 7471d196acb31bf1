"""Networks of timm, with the benchmark's activation in place of their own."""

from typing import Any

import torch
from torch import Tensor, nn

from rectifiers.models.network import ActivationFactory
from rectifiers.runtime.errors import InputError


class _Place(nn.Module):
    """Stands where an activation goes until the number of its channels is known."""

    shape: torch.Size | None = None
    reads_vectors = False  # of which the last dimension holds the channels

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        self.shape, self.reads_vectors = x.shape, hasattr(x, "of_linear")
        return x


def timm_model(
    activation: ActivationFactory,
    classes: int,
    channels: int,
    input_px: int,
    name: str = "resnet18",
) -> nn.Module:
    """Return timm's network `name`, its weights not trained, with `activation` wherever its
    `act_layer` stands.

    Raises:
        InputError: where timm is not installed or has no such network, or the network has no
            `act_layer`, needs images of another size, or applies it to tokens, whose channels are
            not where an activation of maps looks for them.
    """
    try:
        import timm
    except ModuleNotFoundError as error:
        raise InputError(
            "model=timm needs timm, which is not installed; install the extra timm"
        ) from error
    if not timm.is_model(name):
        near = timm.list_models(f"*{name}*")[:3]
        known = f"did you mean {' or '.join(near)}?" if near else "timm.list_models() lists them"
        raise InputError(f"model.name={name} is no network of timm; {known}")
    sizes: dict[str, Any] = {"num_classes": classes, "in_chans": channels}
    try:
        model: nn.Module = timm.create_model(name, pretrained=False, act_layer=_Place, **sizes)
    except TypeError as error:
        raise InputError(
            f"model.name={name} takes no act_layer ({error}); choose another network"
        ) from error
    _run_once(model, name, (1, channels, input_px, input_px))
    places = {
        place: module for place, module in model.named_modules() if isinstance(module, _Place)
    }
    if not places:
        raise InputError(f"model.name={name} puts no act_layer anywhere; choose another network")
    for place, module in places.items():
        dimensions = 0 if module.shape is None else len(module.shape)
        if (
            module.shape is None
            or dimensions not in (2, 4)
            or (dimensions == 4 and module.reads_vectors)
        ):
            raise InputError(
                f"model.name={name} does not apply {place} to maps [N, channels, H, W]; choose "
                "a convolutional network"
            )
        parent, _, last = place.rpartition(".")
        setattr(model.get_submodule(parent), last, activation(module.shape[1]))
    return model.train()


def _run_once(model: nn.Module, name: str, shape: tuple[int, ...]) -> None:
    """Run the network on zeros, so that every place sees what it stands in."""

    def mark(_: nn.Module, __: Any, out: Tensor) -> None:
        out.of_linear = True  # type: ignore[attr-defined]

    handles = [
        module.register_forward_hook(mark)
        for module in model.modules()
        if isinstance(module, nn.Linear)
    ]
    try:
        with torch.no_grad():
            model.eval()(torch.zeros(shape))
    except Exception as error:  # networks of one image size raise what they like
        raise InputError(
            f"model.name={name} cannot be run on images of {shape[2]} px ({error})"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
