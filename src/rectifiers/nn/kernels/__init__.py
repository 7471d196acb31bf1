"""PReLU with a backward pass in one pass over memory: a C library on the CPU, Triton on a GPU, torch elsewhere."""

from rectifiers.nn.kernels.prelu import PReLU

__all__ = ["PReLU"]
