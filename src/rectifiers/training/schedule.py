"""The paper's learning-rate rule: divide by 10 when the error stops falling, at most twice, or at fixed epochs."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class StepRule:
    """Decides after every epoch whether the learning rate drops; a pure function of the errors it was shown.

    patience: epochs without a new lowest error before a drop (the paper does not print its rule; this is ours).
    max_drops: drops at most. fixed: drop after these epochs (counted from 1) instead, whatever the error does, as the
    paper did for the second arm of its ReLU / PReLU pairs.
    """

    patience: int
    max_drops: int
    fixed: tuple[int, ...] | None = None
    drop_epochs: list[int] = field(default_factory=list)
    epoch: int = 0
    lowest: float | None = None
    waited: int = 0

    def after_epoch(self, error: float) -> bool:
        """Take one more epoch's error into account; return whether the learning rate drops now."""
        self.epoch += 1
        if self.lowest is None or error < self.lowest:
            self.lowest, self.waited = error, 0
        else:
            self.waited += 1
        drop = self.epoch in self.fixed if self.fixed is not None else self._stalled()
        if drop:
            self.drop_epochs.append(self.epoch)
            self.waited = 0
        return drop

    def _stalled(self) -> bool:
        return self.waited >= self.patience and len(self.drop_epochs) < self.max_drops

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs to go on from here; plain types."""
        return {
            "drop_epochs": list(self.drop_epochs),
            "epoch": self.epoch,
            "lowest": self.lowest,
            "waited": self.waited,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint's `state()`."""
        self.drop_epochs, self.epoch = list(state["drop_epochs"]), state["epoch"]
        self.lowest, self.waited = state["lowest"], state["waited"]
