"""The one reader of versioned files: an older format is upgraded in memory, a newer one is refused.

Every file that Stackyard keeps carries its format number. A change of what a file holds, also a new key, raises the
number and comes with one function that turns the values of the former format into those of the next. So each version
that was ever written stays readable, step by step, and no part of a file is dropped: an unknown key is an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from stackyard.errors import StackyardError

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
Made = TypeVar("Made")


@dataclass(frozen=True)
class Kind(Generic[Made]):
    """One kind of file.

    Attributes:
        version: the format that is written, and the newest that is read.
        make: turns the values of that format, without the number, into the object. Raises ValueError or KeyError.
        upgrades: by format number, what turns its values into those of the next number.
        hint: what to do about a damaged file, given its path.
        error: makes what is raised from a message and a hint.
    """

    version: int
    make: Callable[[dict[str, Any]], Made]
    upgrades: Mapping[int, Upgrade] = field(default_factory=dict)
    hint: Callable[[Path], str] = lambda path: f"restore {path}"
    error: Callable[..., StackyardError] = StackyardError


def load(path: Path, kind: Kind[Made]) -> Made:
    """Read a JSON file of any format up to the present one.

    Raises:
        StackyardError: what the kind makes; the file is missing, damaged, of a newer format, or has an unknown key.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise damaged(str(path), kind, str(error)) from error
    return read(value, str(path), kind)


def read(value: Any, origin: str, kind: Kind[Made]) -> Made:
    """The object that a file's values are, whichever format they have. `origin` names the file in errors."""
    try:
        return kind.make(_upgraded(value, origin, kind))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = f"missing key {error}" if isinstance(error, KeyError) else str(error)
        raise damaged(origin, kind, reason) from error


def damaged(origin: str, kind: Kind[Any], reason: str) -> StackyardError:
    """The error for a file that cannot be read, with the hint of its kind."""
    return kind.error(f"cannot read {origin}: {reason}", hint=kind.hint(Path(origin)))


def make(cls: Callable[..., Made], value: Mapping[str, Any]) -> Made:
    """A dataclass from the values of its fields; lists become tuples where the field is one.

    Raises:
        ValueError: a key is unknown.
        KeyError: a field without a default is missing.
    """
    known, tuples, required = _keys(cls)
    unknown = sorted(set(value) - known)
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}")
    for name in required:
        value[name]
    return cls(**{k: tuple(v) if k in tuples and v is not None else v for k, v in value.items()})


def _upgraded(value: Any, origin: str, kind: Kind[Any]) -> dict[str, Any]:
    """The values in the present format, without its number."""
    if not isinstance(value, Mapping):
        raise ValueError("not an object with keys")
    found = value.get("format")
    if type(found) is not int or found < 1:
        raise ValueError(f"no format number ({found!r})")
    if found > kind.version:
        message = f"{origin} has format {found}; this version of stackyard reads up to {kind.version}"
        raise kind.error(message, hint="upgrade stackyard")
    plain = {key: item for key, item in value.items() if key != "format"}
    for number in range(found, kind.version):
        plain = kind.upgrades[number](plain)
    return plain


@lru_cache(maxsize=64)
def _keys(cls: Any) -> tuple[frozenset[str], frozenset[str], tuple[str, ...]]:
    """The fields of a dataclass: all, those that are tuples, and those without a default."""
    members = fields(cls)
    tuples = frozenset(f.name for f in members if str(f.type).startswith("tuple"))
    required = tuple(f.name for f in members if f.default is MISSING and f.default_factory is MISSING)
    return frozenset(f.name for f in members), tuples, required
