"""Accepts obviously valid values of a field without pydantic: of exactly its type, within its bounds and grammars.

Values accepted here are also accepted by pydantic, with the same result. Values refused here may still be valid:
pydantic decides, and reports the error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

MISSING: Any = object()
"""Stands for the default of a field that has none."""


class UnclearValue(Exception):
    """A value is not obviously valid."""


class LateField:
    """The properties of a field, or of a type in ``Annotated``: its default, and its bounds in pydantic's terms."""

    def __init__(self, default: Any = MISSING, **about: Any) -> None:
        self.default, self.about = default, about
        self.owner: type = object
        self.name = ""

    @property
    def description(self) -> str | None:
        """Its description; None if the name is sufficient."""
        return self.about.get("description")

    @property
    def exclude(self) -> bool:
        """Whether files and records omit it."""
        return bool(self.about.get("exclude"))

    @property
    def annotation(self) -> Any:
        """The type of its values."""
        return hints_of(self.owner)[self.name]

    def get_default(self, *, call_default_factory: bool = False) -> Any:
        """Its default, as in pydantic's fields."""
        return self.default

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Within ``Annotated``: the schema of the type with the bounds added."""
        return {**handler(source), **self.about}

    def accept(self, value: Any) -> Any:
        """The value, if it is within the bounds. Raises UnclearValue."""
        for word, bound in self.about.items():
            if value is not None and not _WITHIN[word](value, bound):
                raise UnclearValue
        return value


class ShortForm:
    """In ``Annotated``: a short form that users may write, e.g. a text for a list with that one item.

    Args:
        before: converts the short form to the value.
        written: the type of the short form, for a JSON Schema.
    """

    def __init__(self, before: Callable[[Any], Any], written: Any) -> None:
        self.before, self.written = before, written

    def accept(self, value: Any) -> Any:
        """The value itself."""
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """The equivalent for pydantic."""
        from pydantic import BeforeValidator

        validator = BeforeValidator(self.before, json_schema_input_type=self.written)
        return validator.__get_pydantic_core_schema__(source, handler)


def keyed(key: str) -> Callable[[Any], Any]:
    """For `ShortForm`: a bare text is a mapping with this one key."""
    return lambda value: {key: value} if isinstance(value, str) else value


class ShownAs:
    """In ``Annotated``: the JSON Schema of a value that is validated elsewhere."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema

    def accept(self, value: Any) -> Any:
        """The value itself."""
        return value

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> Any:
        """The schema, for editors."""
        return dict(self.schema)


_WITHIN: dict[str, Any] = {
    "ge": lambda value, bound: value >= bound,
    "le": lambda value, bound: value <= bound,
    "min_length": lambda value, bound: len(value) >= bound,
    "pattern": lambda value, bound: "\n" not in value and re.search(bound, value) is not None,
    "allow_inf_nan": lambda value, bound: bound or math.isfinite(value),
    "description": lambda value, bound: True,
    "exclude": lambda value, bound: True,
}


@cache
def hints_of(cls: Any) -> dict[str, Any]:
    """The types of a model's fields, with their annotations."""
    types = get_type_hints(cls, include_extras=True)
    return {name: types[name] for name in cls.model_fields}


def accepted(model: Any, values: Any) -> dict[str, Any]:
    """All fields of a model, from obviously valid values and defaults. Raises Refused."""
    fields = model.model_fields
    if type(values) is not dict or not values.keys() <= fields.keys():
        raise UnclearValue
    return {name: _of_field(field, values.get(name, MISSING)) for name, field in fields.items()}


def _of_field(field: Any, value: Any) -> Any:
    if value is MISSING:
        if field.default is MISSING:
            raise UnclearValue
        return dict(field.default) if type(field.default) is dict else field.default
    return field.accept(_accept(field.annotation, value))


def _accept(kind: Any, value: Any) -> Any:
    origin = get_origin(kind)
    if origin is not None:
        accept = _GENERIC.get(origin)
        if accept is None:
            raise UnclearValue
        return accept(get_args(kind), value)
    if kind is float and type(value) is int and abs(value) < 1 << 53:
        return float(value)
    if kind in (str, bool, int, float, NoneType):
        if type(value) is not kind:
            raise UnclearValue
        return value
    if hasattr(kind, "model_fields"):
        return value if type(value) is kind else kind.model_accept(value)
    if kind is Any or (type(value) is kind and is_dataclass(kind)):
        return value
    raise UnclearValue


def _literal(known: Any, value: Any) -> Any:
    if not any(type(value) is type(option) and value == option for option in known):
        raise UnclearValue
    return value


def _union(kinds: Any, value: Any) -> Any:
    for kind in kinds:
        try:
            return _accept(kind, value)
        except UnclearValue:
            pass
    raise UnclearValue


def _tuple(kinds: Any, value: Any) -> Any:
    if type(value) not in (tuple, list) or kinds[1:] != (...,):
        raise UnclearValue
    return tuple(_accept(kinds[0], item) for item in value)


def _dict(kinds: Any, value: Any) -> Any:
    if type(value) is not dict:
        raise UnclearValue
    return {_accept(kinds[0], key): _accept(kinds[1], item) for key, item in value.items()}


def _annotated(kinds: Any, value: Any) -> Any:
    for rule in kinds[1:]:
        value = rule.before(value) if hasattr(rule, "before") else value
    result = _accept(kinds[0], value)
    for rule in kinds[1:]:
        if not hasattr(rule, "accept"):
            raise UnclearValue
        result = rule.accept(result)
    return result


_GENERIC: Mapping[Any, Any] = {
    Literal: _literal, Union: _union, UnionType: _union, tuple: _tuple, dict: _dict, Annotated: _annotated,
}  # fmt: skip
