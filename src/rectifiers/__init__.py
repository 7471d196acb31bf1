"""A benchmark of rectifiers and of the initialisation that trains them (He, Zhang, Ren, Sun 2015)."""

__version__ = "0.1.0"
