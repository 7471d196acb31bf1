"""The paper's learning-rate rule: divide by 10 when the error stops falling, at most twice, or at fixed epochs."""

from copy import copy
from dataclasses import dataclass, field
from typing import Any

STATE = ("drop_epochs", "epoch", "lowest", "waited")  # what changes while training


@dataclass
class StepRule:
    """Decides after every epoch whether the learning rate drops; a pure function of the errors so far.

    patience: epochs without a new lowest error before a drop (the paper does not print its rule; this is ours).
    max_drops: the largest number of drops. fixed: drop after these epochs (counted from 1) whatever the error is, as
    the paper did for the second arm of its ReLU / PReLU pairs.
    """

    patience: int
    max_drops: int
    fixed: tuple[int, ...] | None = None
    drop_epochs: list[int] = field(default_factory=list)
    epoch: int = 0
    lowest: float | None = None
    waited: int = 0

    def after_epoch(self, error: float) -> bool:
        """Record the error of the next epoch; return whether the learning rate drops now."""
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
        """Return what a checkpoint needs to continue from here, as plain types."""
        return {name: copy(getattr(self, name)) for name in STATE}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint's `state()`."""
        for name in STATE:
            setattr(self, name, copy(state[name]))
