"""PReLU that computes as torch's does, and faster."""

from rectifiers.prelu.operator import PReLU, SquaredPReLU, swap_prelu

__all__ = ["PReLU", "SquaredPReLU", "swap_prelu"]
