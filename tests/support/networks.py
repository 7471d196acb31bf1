"""Networks of any shape, for what traces them."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


class Net(nn.Module):
    """Modules by name, and whatever `how` makes of them."""

    def __init__(self, how: Callable[["Net", Tensor], Any], **modules: nn.Module) -> None:
        super().__init__()
        self.how = how
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x: Tensor) -> Any:
        return self.how(self, x)
