"""Interventions: callbacks that change a network while it trains, by a rule; `callbacks=<option>`.

Each is a Lightning callback, and a file in `conf/callbacks/`. Its decisions depend on the weights,
the seed and the epoch alone, and its state lies in the checkpoint, so that a killed run continues
as it would have."""

import math
from dataclasses import dataclass, field
from typing import Annotated

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from rectifiers.data.datamodule import ImageData
from rectifiers.evaluation.metrics import ResponseMeter
from rectifiers.initializers import Layer, he
from rectifiers.models.chains import layers_of
from rectifiers.models.network import of_rows
from rectifiers.models.rows import BESIDE
from rectifiers.runtime.distributed import all_reduce
from rectifiers.runtime.errors import InputError, restoring
from rectifiers.runtime.ranges import Count, Range
from rectifiers.runtime.seeds import derive_seed
from rectifiers.training.module import Classifier, State


@dataclass(eq=False)
class _Once(Callback):
    """Intervenes once, before the epoch that follows the `after_epoch`-th."""

    after_epoch: Count

    def on_fit_start(self, trainer: pl.Trainer, module: Classifier) -> None:  # type: ignore[override]
        if trainer.max_epochs is not None and self.after_epoch >= trainer.max_epochs:
            raise InputError(
                f"callbacks: after_epoch={self.after_epoch} is not before the end of the run, "
                f"trainer.max_epochs={trainer.max_epochs}; give an earlier epoch"
            )

    # Lightning does not call this where a run continues within an epoch, so nothing is done twice.
    def on_train_epoch_start(self, trainer: pl.Trainer, module: Classifier) -> None:  # type: ignore[override]
        if trainer.current_epoch == self.after_epoch:
            with torch.no_grad():
                self.intervene(trainer, module)

    def intervene(self, trainer: pl.Trainer, module: Classifier) -> None:
        raise NotImplementedError


def dead_units(module: Classifier, data: ImageData) -> dict[str, Tensor]:
    """Return which units of every layer with an activation are positive on no training image: bool
    [units]."""
    network, activations = module.network, module.network.activations()
    meter = ResponseMeter(activations).to(module.device)
    was_training = network.training
    network.eval()
    with meter.listening():
        for images in data.statistics_batches("while looking for dead units"):
            network.forward(module.preprocess(images.to(module.device)))
    network.train(was_training)
    alive = all_reduce(meter.positive.cpu(), "max") > 0
    parts = alive.split([units for _, units in activations.values()])
    return {name: ~part.to(module.device) for name, part in zip(activations, parts, strict=True)}


@dataclass(eq=False)
class ReviveDead(_Once):
    """Gives every dead unit new weights: He's for its inputs, bias 0, and zeros for its outputs.

    At first no score of a ReLU network on its training images changes. (A leaky unit that is never
    positive did contribute, and no longer does.) Where the next layer does not read the units
    themselves, as behind a pyramid, its weights stay.

    freeze_rest: from then on only those weights are trained, and every other parameter keeps its
    value; the statistics of batch normalisation are still updated."""

    freeze_rest: bool = False
    # which numbers of each parameter are trained; empty: all
    trained: dict[str, Tensor] = field(init=False, default_factory=dict)
    kept: dict[str, Tensor] = field(init=False, default_factory=dict)

    def state_dict(self) -> State:
        return {"trained": self.trained, "kept": self.kept}

    @restoring()
    def load_state_dict(self, state_dict: State) -> None:
        self.trained, self.kept = state_dict["trained"], state_dict["kept"]

    def on_fit_start(self, trainer: pl.Trainer, module: Classifier) -> None:  # type: ignore[override]
        super().on_fit_start(trainer, module)
        network = of_rows(module.network)
        if (network.pieces, network.outputs) != (1, 1):
            raise InputError(
                "callbacks=revive_dead is for units of one channel; give an activation other than "
                "maxout, crelu and glu"
            )

    def intervene(self, trainer: pl.Trainer, module: Classifier) -> None:
        sites = of_rows(module.network).sites()
        dead = dead_units(module, trainer.datamodule)  # type: ignore[attr-defined]
        parameters = dict(module.network.named_parameters())
        redrawn = {name: torch.zeros_like(p, dtype=torch.bool) for name, p in parameters.items()}
        names = {id(p): name for name, p in parameters.items()}
        for position, layer in enumerate(layers_of(sites)[:-1]):
            linear, following = sites[position].module, sites[position + 1].module
            units = dead[layer.name]
            weight = _draw(linear.weight, layer, derive_seed("revive", module.seed, position))
            linear.weight[units] = weight[units]
            redrawn[names[id(linear.weight)]][units] = True
            if linear.bias is not None:
                linear.bias[units] = 0.0
                redrawn[names[id(linear.bias)]][units] = True
            if following.weight.shape[1] == len(units):
                following.weight[:, units] = 0.0
                redrawn[names[id(following.weight)]][:, units] = True
        _forget_momentum(trainer)
        if self.freeze_rest:
            self.trained = redrawn
            self.kept = {name: p.detach().clone() for name, p in parameters.items()}

    def on_train_batch_end(self, trainer: pl.Trainer, module: Classifier, *_: object) -> None:  # type: ignore[override]
        if not self.trained:
            return
        with torch.no_grad():
            for name, p in module.network.named_parameters():
                is_trained, kept = self.trained[name].to(p.device), self.kept[name].to(p.device)
                p.copy_(torch.where(is_trained, p, kept))


@dataclass(eq=False)
class RedrawLayers(_Once):
    """Redraws a layer from He where its weights violate the forward condition by more than `factor`
    in std.

    That is where sqrt(n Var[w]) is above `factor` times its gain or below the gain divided by it
    (Eq. 10). Its biases become 0. Layers that satisfy the condition are left as they are."""

    factor: Annotated[float, Range(gt=1)] = 2.0

    def intervene(self, trainer: pl.Trainer, module: Classifier) -> None:
        sites = of_rows(module.network).sites()
        for position, (site, layer) in enumerate(zip(sites, layers_of(sites), strict=True)):
            weight = site.module.weight
            rms = float(weight.square().mean()) ** 0.5
            ratio = rms * math.sqrt(layer.fan_in) / layer.forward_gain
            if 1 / self.factor <= ratio <= self.factor:
                continue
            weight.copy_(_draw(weight, layer, derive_seed("redraw", module.seed, position)))
            if site.module.bias is not None:
                site.module.bias.zero_()
        _forget_momentum(trainer)


def _draw(weight: Tensor, layer: Layer, seed: int) -> Tensor:
    """Return new weights from He for a layer."""
    drawn = torch.empty(weight.shape)
    he(drawn, layer, torch.Generator().manual_seed(seed))
    return drawn.to(weight)


def _pass_by(_: nn.Module, inputs: tuple[Tensor, ...], __: object) -> Tensor:
    """Let a module return what it reads; a forward hook."""
    return inputs[0]


def _forget_momentum(trainer: pl.Trainer) -> None:
    """Clear the optimiser's state, which belongs to weights that are gone."""
    for optimizer in trainer.optimizers:
        optimizer.state.clear()


@dataclass(eq=False)
class Greedy(Callback):
    """Greedy layer-wise training: each hidden layer with the output layer for `epochs_a_layer`
    epochs, one by one.

    Hidden layers before the current one are frozen, those after it are bypassed; so all hidden
    layers but the first must have as many inputs as outputs, as in `model=mlp`. The last hidden
    layer is trained to the end."""

    epochs_a_layer: Count
    _bypasses: list[RemovableHandle] = field(init=False, default_factory=list)

    def on_fit_start(self, trainer: pl.Trainer, module: Classifier) -> None:  # type: ignore[override]
        if trainer.world_size > 1 or module.network.is_compiled:
            raise InputError(  # neither DDP nor a compiled network notices
                "callbacks=greedy changes the network as it trains; start one process, and give "
                "compile=false"
            )
        hidden = [site.module for site in of_rows(module.network).sites()[:-1]]
        widths = {width for m in hidden[1:] for width in m.weight.shape}
        if not all(isinstance(m, nn.Linear) for m in hidden) or len(widths) > 1:
            raise InputError(
                "callbacks=greedy passes layers by, so all hidden layers must be linear and of "
                "one width; give model=mlp"
            )
        needed = self.epochs_a_layer * len(hidden)
        if trainer.max_epochs is not None and trainer.max_epochs < needed:
            raise InputError(
                f"trainer.max_epochs={trainer.max_epochs} is less than {len(hidden)} hidden layers "
                f"times callbacks.greedy.epochs_a_layer={self.epochs_a_layer}; give at least "
                f"{needed}"
            )

    def on_train_start(self, trainer: pl.Trainer, module: Classifier) -> None:  # type: ignore[override]
        self.on_train_epoch_start(trainer, module)  # where a run continues within an epoch

    def on_train_epoch_start(self, trainer: pl.Trainer, module: Classifier) -> None:  # type: ignore[override]
        sites = of_rows(module.network).sites()
        stage = min(trainer.current_epoch // self.epochs_a_layer, len(sites) - 2)
        self._release()
        named = dict(of_rows(module.network).head.named_children())
        for position, site in enumerate(sites[:-1]):
            for name in {site.name, *(f"{site.name}_{part}" for part in BESIDE)} & named.keys():
                part = named[name]
                part.requires_grad_(position == stage)
                if position > stage:
                    self._bypasses.append(part.register_forward_hook(_pass_by))

    def on_fit_end(self, trainer: pl.Trainer, module: Classifier) -> None:  # type: ignore[override]
        self._release()

    def _release(self) -> None:
        for handle in self._bypasses:
            handle.remove()
        self._bypasses = []
