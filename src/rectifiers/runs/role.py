"""What a key of the configuration is for: every field of the schema says it, and no list repeats
it.

`seed: int = role.seed()` and `fused: bool = role.machine(True)` declare a field with its role. What
follows from the roles: the run id, what a test may choose, what ranks have to agree on, and what a
record keeps of a command."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, get_args

from pydantic import Field

from rectifiers.runtime.schema import Section, keys


class Role(Enum):
    """What a key can change."""

    SCIENCE = "the numbers: it is part of the run id"
    SEED = "the numbers of one repetition: it is part of the run id"
    PLACE = "where files and logs are, and what happens to those that are there"
    MACHINE = "how the same is computed on this machine: rounding at most"
    LOOK = "what is tested, shown or kept of the run; or the default of another key"


@dataclass(frozen=True)
class Key:
    """A key's role; whether the ranks of a run may differ in it, whether `scripts/evaluate.py` may
    choose it for a run that is finished; whether it is a path, and its value where none is
    given."""

    role: Role
    ranks_differ: bool
    free: bool
    is_path: bool
    default: object  #: PydanticUndefined where a value must be given


def _field(
    role: Role,
    default: object = ...,
    *,
    ranks_differ: bool = False,
    free: bool = False,
    **options: Any,
) -> Any:
    """Return a field of the schema; without a default it must be given."""
    extra: Any = {"role": role, "ranks_differ": ranks_differ, "free": free}
    return Field(default, json_schema_extra=extra, **options)


science = partial(_field, Role.SCIENCE)
seed = partial(_field, Role.SEED)
place = partial(_field, Role.PLACE)
machine = partial(_field, Role.MACHINE)
look = partial(_field, Role.LOOK)


def keys_of(section: type[Section], prefix: str = "") -> Iterator[tuple[str, Key]]:
    """Yield every dotted key of a section that has a role, with it; the keys of a section within
    say their own.

    Raises:
        TypeError: for a key that has none.
    """
    for name, field in keys(section).items():
        key, kind = f"{prefix}{name}", field.annotation
        said: Any = field.json_schema_extra
        if said is not None:
            is_path = Path in (kind, *get_args(kind))
            yield key, Key(**said, is_path=is_path, default=field.default)
        elif isinstance(kind, type) and issubclass(kind, Section):
            yield from keys_of(kind, f"{key}.")
        else:
            raise TypeError(f"{key} does not say its role")
