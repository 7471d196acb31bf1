"""The one validator: settings as frozen, typed classes, and one sentence for what cannot be used.

A key's type, range, unit and meaning stand once, where its class declares it; the sentences,
`--help` and the documentation are made of that."""

import difflib
import inspect
import json
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    PydanticSchemaGenerationError,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic.fields import FieldInfo

from rectifiers.runtime.errors import InputError
from rectifiers.runtime.ranges import Range


@dataclass(frozen=True)
class Words:
    """In an annotation: what to give for a key, where its type does not say it."""

    text: str


class Section(BaseModel):
    """Keys that belong together. A value is of its key's type as it stands: no text is read as a
    number."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, ser_json_inf_nan="constants"
    )

    def as_dict(self) -> dict[str, Any]:
        """Return the keys that were given, as plain JSON types; a key that was absent stays
        absent."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


S = TypeVar("S", bound=Section)


def checked(section: type[S], given: Mapping[str, Any], at: str = "") -> S:
    """Return `given` as a `section`; lists become tuples, whole numbers fit where a number is
    wanted.

    at: the dotted key of the section, with a dot at its end, for the message.

    Raises:
        InputError: for the first value that cannot be used; the message names key, value and
        remedy.
    """
    try:
        return section.model_validate_json(json.dumps(given, default=str))
    except ValidationError as error:
        raise InputError(_sentence(section, given, error.errors()[0]["loc"], at)) from None


def check_call(function: Callable[..., Any], options: Mapping[str, Any], at: str) -> None:
    """Check `options` against the annotations of the parameters of `function` that they are for.

    Parameters whose types no configuration can hold are not judged.

    Raises:
        InputError: for an option that `function` does not take, or a value of another type or out
        of its range.
    """
    parameters = inspect.signature(function).parameters
    for name in options:
        if name not in parameters:
            own = ", ".join(name for name, p in parameters.items() if p.default is not p.empty)
            target = f"{function.__module__}.{function.__qualname__}"
            raise InputError(f"{at}{name} is not known; {target} takes: {own or 'no settings'}")
    hints = typing.get_type_hints(function, include_extras=True)
    fields: Any = {name: (_judged(hints.get(name, Any)), ...) for name in options}
    checked(create_model("Options", __base__=Section, **fields), options, at)


def _judged(hint: Any) -> Any:
    try:
        TypeAdapter(hint)
    except PydanticSchemaGenerationError:
        return Any
    return hint


def keys(section: type[Section]) -> dict[str, FieldInfo]:
    """Return the declared keys of a section as a user writes them."""
    return {field.alias or name: field for name, field in section.model_fields.items()}


def subsection(field: FieldInfo) -> type[Section] | None:
    """Return the section that a key holds, or None where it holds a value."""
    found = [
        kind
        for kind in _members(field.annotation)
        if isinstance(kind, type) and issubclass(kind, Section)
    ]
    return found[0] if found else None


def unknown_key(key: str, known: Iterable[str]) -> str:
    """Return the sentence for a dotted key whose last part is not among `known`."""
    place, _, name = key.rpartition(".")
    near = difflib.get_close_matches(name, known, n=1)
    listed = f"did you mean {place + '.' if place else ''}{near[0]}? The" if near else "the"
    return (
        f"{key} is not known; {listed} keys {'of ' + place if place else 'here'} are: "
        f"{', '.join(sorted(known))}"
    )


def expected(field: FieldInfo) -> str:
    """Return in words what a key takes: "a whole number at least 1 (or null)", "one of: none,
    batch"."""
    kinds = _members(field.annotation)
    optional = types.NoneType in kinds
    kinds = tuple(kind for kind in kinds if kind is not types.NoneType)
    choices = _choices(kinds)
    own = [words.text for words in field.metadata if isinstance(words, Words)]
    if own:
        text = own[0]
    elif choices:
        text = f"one of: {', '.join(choices)}"
    else:
        words = [_words(kind, field.metadata) for kind in kinds]
        text = (", or " if " " in words[0] else " or ").join(words)
        text += (
            f", such as {json.dumps(field.examples[0]).replace(' ', '')}" if field.examples else ""
        )
    return f"{text} (or null)" if optional else text


def _members(kind: Any) -> tuple[Any, ...]:
    return (
        typing.get_args(kind)
        if typing.get_origin(kind) in (typing.Union, types.UnionType)
        else (kind,)
    )


def _choices(kinds: tuple[Any, ...]) -> tuple[str, ...]:
    if kinds == (bool,):
        return ("false", "true")
    return (
        typing.get_args(kinds[0])
        if len(kinds) == 1 and typing.get_origin(kinds[0]) is Literal
        else ()
    )


NOUNS = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    types.NoneType: "null",
}
BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def _words(kind: Any, metadata: Iterable[Any] = ()) -> str:
    """One type with its range: "a number above 0 and at most 1e+30", "numbers ..." for a list."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return _words(arguments[0], arguments[1:])
    if origin is Literal:
        return " or ".join(arguments)
    if origin is tuple:
        return (
            _words(arguments[0])
            .replace("a whole number", "whole numbers")
            .replace("a number", "numbers")
        )
    bounds = {
        name: bound
        for each in metadata
        if isinstance(each, Range)
        for name, bound in each.given().items()
    }
    limits = [f"{BOUNDS[name]} {_spelled(bound)}" for name, bound in bounds.items()]
    return f"{NOUNS.get(kind, 'a list' if kind is list else str(kind))} {' and '.join(limits)}".rstrip()  # noqa: E501


def _spelled(bound: Any) -> str:
    return f"{bound:g}" if isinstance(bound, float) else str(bound)


def _sentence(section: type[Section], given: Any, place: tuple[int | str, ...], at: str) -> str:
    """What is wrong with the value at `place`: unknown, missing, not of its type, or out of its
    range."""
    inside: type[Section] | None = section
    field: FieldInfo | None = None
    for part in map(str, place):
        if inside is None:
            break  # an item of a list, or a member of a union: the whole value is named
        known = keys(inside)
        if part not in known and inside.model_config["extra"] == "forbid":
            return unknown_key(at + part, known)
        at, given = f"{at}{part}.", given.get(part) if isinstance(given, Mapping) else None
        field = known.get(part)
        inside = subsection(field) if field else None
    key = at.rstrip(".")
    wanted = expected(field) if field and inside is None else "keys of its own"
    if wanted.startswith("one of: "):
        return f"{key}={given} is not known; choose {wanted}"
    return (
        f"{key} has no value; give {wanted}"
        if given is None
        else f"{key}={given} is not usable; give {wanted}"
    )
