"""Validation by pydantic: settings as frozen, typed classes, and one line for a wrong value."""

import difflib
import inspect
import json
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
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

LONGEST_VALUE = 80  # characters of a value in a message


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


def checked(section: type[S], values: Mapping[str, Any], at: str = "") -> S:
    """Return `values` as a `section`; lists become tuples, and integers fit where floats are asked.

    at: the dotted key of the section, with a dot at its end, for the message.

    Raises:
        InputError: for the first value that cannot be used, as `key=value: reason (remedy)`.
    """
    try:
        return section.model_validate_json(json.dumps(values, default=str))
    except ValidationError as error:
        path, reason = describe_error(error, values)
        if error.errors()[0]["type"] == "extra_forbidden" and len(path) == 1:
            raise InputError(_unknown_key(at + path[0], keys(section))) from None
        remedy = _remedy(keys(section), path)
        raise InputError(f"{at}{reason}{f' (give {remedy})' if remedy else ''}") from None


def describe_error(error: ValidationError, values: Any) -> tuple[list[str], str]:
    """Return where the first error of `values` is, and `key=value: reason` for it.

    Of a union, the reasons of all its members are named."""
    first, *others = error.errors(include_url=False)
    path, value = _locate(first, values)
    reason = first["msg"]
    for other in others:
        if _locate(other, values)[0] == path and other["msg"] != first["msg"]:
            reason += f" or {other['msg'].removeprefix('Input should be ')}"
    reason = reason.removeprefix("Value error, ").removeprefix("Input ")
    reason = re.sub("10{9,}", lambda bound: f"1e{len(bound[0]) - 1}", reason)
    reason = f"{reason[:1].lower()}{reason[1:]}"
    shows_value = first["type"] != "missing" and not isinstance(value, Mapping)
    key = ".".join(path) + (f"={_spelled(value)}" if path and shows_value else "")
    return path, f"{key}: {reason}" if path else reason


def _locate(error: Any, values: Any) -> tuple[list[str], Any]:
    """Return the keys of an error without pydantic's names of union members, and the value."""
    path = []
    for part in error["loc"]:
        is_item = isinstance(values, list | tuple) and isinstance(part, int)
        if is_item or (isinstance(values, Mapping) and part in values):
            values = values[part]
        elif error["type"] != "missing" or part != error["loc"][-1]:
            continue
        path.append(str(part))
    return path, values


def _spelled(value: Any) -> str:
    is_text = isinstance(value, str) and value.isprintable()
    text = value if is_text else json.dumps(value, default=str)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."


def _remedy(fields: Mapping[str, FieldInfo], path: Iterable[str]) -> str:
    """Return what to give for the key at `path`, where a field on the way says it in words."""
    text = ""
    for part in path:
        if part not in fields:
            break
        field = fields[part]
        text = next((item.text for item in field.metadata if isinstance(item, Words)), text)
        kinds = (field.annotation, *typing.get_args(field.annotation))
        sections = (k for k in kinds if isinstance(k, type) and issubclass(k, Section))
        fields = next(map(keys, sections), {})
    return text


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
            taken = ", ".join(name for name, p in parameters.items() if p.default is not p.empty)
            target = f"{function.__module__}.{function.__qualname__}"
            raise InputError(f"{at}{name} is not known; {target} takes: {taken or 'no settings'}")
    called: Any = function.__init__ if inspect.isclass(function) else function
    hints = typing.get_type_hints(called, include_extras=True)
    fields: Any = {name: (_or_any(hints.get(name, Any)), ...) for name in options}
    checked(create_model("Options", __base__=Section, **fields), options, at)


def _or_any(hint: Any) -> Any:
    try:
        TypeAdapter(hint)
    except PydanticSchemaGenerationError:
        return Any
    return hint


def keys(section: type[Section]) -> dict[str, FieldInfo]:
    """Return the declared keys of a section as a user writes them."""
    return {field.alias or name: field for name, field in section.model_fields.items()}


def _unknown_key(key: str, known: Iterable[str]) -> str:
    """Return the message for a dotted key whose last part is not among `known`."""
    place, _, name = key.rpartition(".")
    near = difflib.get_close_matches(name, known, n=1)
    listed = f"did you mean {place + '.' if place else ''}{near[0]}? The" if near else "the"
    return (
        f"{key} is not known; {listed} keys {'of ' + place if place else 'here'} are: "
        f"{', '.join(sorted(known))}"
    )
