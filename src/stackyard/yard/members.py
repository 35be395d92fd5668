"""Creates a dataclass from the values of a file, each checked against the annotation of its field.

Files that the program wrote are read without a validation library, so that read commands start fast; but a disk error,
an editor or a merge can have changed them, and a number in place of a list must be reported on reading instead of
crashing a command later.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import lru_cache, partial
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Instance = TypeVar("Instance")
Check = Callable[[Any], Any]
"""Returns a value as its field holds it (a list as a tuple), or raises ValueError."""


def make(cls: Callable[..., Instance], value: Mapping[str, Any]) -> Instance:
    """A dataclass from the values of its fields; lists become tuples where the field is one.

    Raises:
        ValueError: not a mapping, an unknown key, or a value of another type than its field.
        KeyError: a field without a default is missing.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"not an object with keys: {value!r:.60}")
    checks, kinds, required = _fields(cls)
    for key in value:
        if key not in checks:
            raise ValueError(f"unknown key {key!r:.60}")
    for name in required:
        value[name]
    values, key = dict(value), ""
    try:
        for key, item in value.items():
            if type(item) is not kinds.get(key):
                values[key] = checks[key](item)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from error
    return cls(**values)


@lru_cache(maxsize=64)
def _fields(cls: Any) -> tuple[Mapping[str, Check], Mapping[str, type], tuple[str, ...]]:
    """The check of every field of a dataclass, the types that need none, and the fields without a default."""
    hints, members = get_type_hints(cls), fields(cls)
    required = tuple(f.name for f in members if f.default is MISSING and f.default_factory is MISSING)
    plain = {name: hint for name, hint in hints.items() if hint in _KINDS}
    return {f.name: _check(hints[f.name]) for f in members}, plain, required


def _check(hint: Any) -> Check:
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return lambda value: value
    if origin is Literal:
        return partial(_one_of, inner)
    if origin is tuple:
        return partial(_items, _check(inner[0]))
    if origin in (Union, types.UnionType):
        return partial(_optional, _check(next(kind for kind in inner if kind is not type(None))))
    if origin is not None:  # Mapping[str, X] and dict[str, X]
        return partial(_mapping, _check(inner[1]))
    return partial(_plain, (int, float) if hint is float else (hint,))


def _plain(kinds: tuple[type, ...], value: Any) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise ValueError(f"not {_KINDS.get(kinds[-1], f'a {kinds[-1].__name__}')}: {value!r:.60}")
    return value


_KINDS = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}


def _one_of(allowed: tuple[Any, ...], value: Any) -> Any:
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"not one of {', '.join(map(str, allowed))}: {value!r:.60}")
    return value


def _items(check: Check, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"not a list: {value!r:.60}")
    return tuple(check(item) for item in value)


def _optional(check: Check, value: Any) -> Any:
    return None if value is None else check(value)


def _mapping(check: Check, value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise ValueError(f"not an object with keys: {value!r:.60}")
    for item in value.values():
        check(item)
    return value
