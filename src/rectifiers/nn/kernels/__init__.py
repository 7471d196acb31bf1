"""PReLU's backward pass in one pass over memory: by a C library on the CPU, by Triton on a GPU, else by torch."""

from rectifiers.nn.kernels.prelu import PReLU

__all__ = ["PReLU"]
