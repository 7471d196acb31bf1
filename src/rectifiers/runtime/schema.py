"""Validation by pydantic: settings as frozen, typed classes, and one line for a wrong value."""

import difflib
import inspect
import json
import re
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

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
from rectifiers.runtime.words import meaning, one_after_other

LONGEST_VALUE = 80  # characters of a value in a message
JsonObject = dict[str, Any]  # plain data, as from a file of JSON or YAML


class Section(BaseModel):
    """Keys that belong together. A value is of its key's type as it stands: no text is read as a
    number."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, ser_json_inf_nan="constants"
    )

    def as_dict(self) -> JsonObject:
        """Return the keys that were given, as plain JSON types; a key that was absent stays
        absent."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


S = TypeVar("S", bound=Section)


def checked(section: type[S], values: Mapping[str, object], at: str = "") -> S:
    """Return `values` as a `section`; lists become tuples, and integers fit where floats are asked.
    An InputError names the first value that cannot be used, as `key=value: reason`.

    at: the dotted key of the section, with a dot at its end, for the message."""
    try:
        return section.model_validate_json(json.dumps(values, default=str))
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
            reason = unknown_key(f"{at}{first['loc'][0]}", keys(section))
        else:
            reason = at + describe_error(error, values)
        raise InputError(reason) from None


def describe_error(error: ValidationError, values: object) -> str:
    """Return `key=value: reason` for the first error of `values`; of a union, the reasons of all
    its members are named."""
    first, *others = error.errors(include_url=False)
    path, value = _locate(first["loc"], values)
    reasons = [first["msg"].removeprefix("Value error, ").removeprefix("Input ")]
    for other in others:
        if _locate(other["loc"], values)[0] == path and other["msg"] != first["msg"]:
            reasons.append(other["msg"].removeprefix("Input should be "))

    # pydantic writes a bound of 1e30 with all its zeros
    reason = re.sub("10{9,}", lambda bound: f"1e{len(bound[0]) - 1}", " or ".join(reasons))
    reason = f"{reason[:1].lower()}{reason[1:]}".replace("a valid array", "a list such as [a,b]")

    if first["type"] == "missing":
        path.append(str(first["loc"][-1]))
    elif path and not isinstance(value, Mapping):
        path[-1] += f"={_spelled(value)}"
    return f"{'.'.join(path)}: {reason}" if path else reason


def _locate(place: Sequence[int | str], values: Any) -> tuple[list[str], object]:
    """Return the keys of an error without pydantic's names of union members, and the value."""
    path = []
    for part in place:
        is_item = isinstance(values, list | tuple) and isinstance(part, int)
        if is_item or (isinstance(values, Mapping) and part in values):
            values = values[part]
            path.append(str(part))
    return path, values


def _spelled(value: object) -> str:
    is_text = isinstance(value, str) and value.isprintable()
    text = str(value) if is_text else json.dumps(value, default=str)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."


def check_call(function: Callable[..., object], options: Mapping[str, object], at: str) -> None:
    """Check `options` against the annotations of the parameters of `function` that they are for.
    Types that no configuration can hold are not judged."""
    parameters = inspect.signature(function).parameters
    for name, value in options.items():
        if name not in parameters:
            optional = [name for name, p in parameters.items() if p.default is not p.empty]
            raise InputError(unknown_key(f"{at}{name}", optional))
        if (inner := _inner_target(value)) is not None:
            raise InputError(
                f"{at}{name}={{_target_: {inner}}} would not be called; name a function "
                "that builds both as the outer _target_"
            )

    target: Any = function.__init__ if inspect.isclass(function) else function
    try:
        hints = typing.get_type_hints(target, include_extras=True)
    except NameError:  # of a type that is imported for type checkers alone, as in MultiStepLR
        hints = {}
    fields: JsonObject = {name: (_or_any(hints.get(name, Any)), ...) for name in options}
    checked(create_model("Options", __base__=Section, **fields), options, at)


def _or_any(hint: Any) -> object:
    try:
        TypeAdapter(hint)
    except PydanticSchemaGenerationError:
        return Any
    return hint


def _inner_target(value: object) -> object:
    """Return a `_target_` anywhere within a setting, or None."""
    if isinstance(value, Mapping):
        if "_target_" in value:
            return value["_target_"]
        value = list(value.values())
    parts = map(_inner_target, value) if isinstance(value, list | tuple) else ()
    return next((part for part in parts if part is not None), None)


def keys(section: type[Section]) -> dict[str, FieldInfo]:
    """Return the declared keys of a section as a user writes them."""
    return {field.alias or name: field for name, field in section.model_fields.items()}


def flat(node: Mapping[str, object], prefix: str = "") -> JsonObject:
    """Return the leaves of a nested mapping by dotted key; lists are leaves."""
    leaves: JsonObject = {}
    for key, value in node.items():
        if isinstance(value, Mapping):
            leaves |= flat(value, f"{prefix}{key}.")
        else:
            leaves[f"{prefix}{key}"] = value
    return leaves


def value_at(node: Any, key: str, separator: str = ".") -> Any:
    """Return the value at a dotted key of a nested mapping; None where it is not there."""
    for part in key.split(separator):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def unknown_key(key: str, candidates: Iterable[str]) -> str:
    """Return the message for a dotted key whose last part is none of the candidates."""
    place, dot, name = key.rpartition(".")
    near = difflib.get_close_matches(name, candidates, n=1)
    by_spelling = f"did you mean {place}{dot}{near[0]}?" if near else None
    usable = f"usable: {', '.join(sorted(candidates)) or 'none'}"
    return f"{key} is not known; {one_after_other(meaning(key) or by_spelling, usable)}"
