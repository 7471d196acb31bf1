"""What a configured network is, without data and without weights of its own."""

from rectifiers.activations import relu
from rectifiers.data.sources import Source
from rectifiers.models.external import ModuleNetwork
from rectifiers.models.rows import depth, trace
from rectifiers.runs.config import RunConfig
from rectifiers.training.functions import import_function

FORWARD_AND_BACKWARD = 3


def training_cost(config: RunConfig, source: Source) -> int:
    """Return the multiply-adds of a whole training on the images of `source`, forward and
    backward."""
    size = network_size(
        config,
        classes=len(source.classes),
        channels=source.channels,
        input_px=config.data.crop_px,
    )
    images = len(source.train.labels) * config.trainer.max_epochs
    return FORWARD_AND_BACKWARD * size["multiply_adds"] * images


def network_size(
    config: RunConfig, *, classes: int, channels: int, input_px: int
) -> dict[str, int]:
    """Return the network's `depth`, `multiply_adds` of one image, and `parameters` without
    slopes."""
    if (target := config.model.builder()) is not None:
        image = {"classes": classes, "channels": channels, "input_px": input_px}
        network = ModuleNetwork(import_function("model", target), relu, name=target.target, **image)
        parameters = sum(p.numel() for p in network.parameters())
        return {
            "depth": network.depth,
            "multiply_adds": network.multiply_adds,
            "parameters": parameters,
        }
    rows = config.model.layers(classes)
    shapes = trace(rows, channels=channels, input_px=input_px)
    totals = {
        key: sum(getattr(shape, key) for shape in shapes) for key in ("multiply_adds", "parameters")
    }
    return {"depth": depth(rows), **totals}
