"""Seeds of the random streams: weights, data order, augmentation and dropout never share one."""

import hashlib


def derive_seed(*parts: int | str) -> int:
    """Return a 63-bit seed that is a pure function of `parts`, e.g. `derive_seed("order", seed,
    epoch)`.

    Equal parts give equal seeds on every machine and Python version; any change of a part gives an
    unrelated seed."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
