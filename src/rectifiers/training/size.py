"""What a configured network is, without data and without weights of its own."""

from rectifiers.nn.activations import relu
from rectifiers.nn.networks.modules import ModuleNetwork
from rectifiers.nn.networks.rows import depth, trace
from rectifiers.runs.config import RunConfig
from rectifiers.training.functions import import_function


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
