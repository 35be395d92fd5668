"""Reads versioned files: an older format is upgraded in memory, a newer one is refused.

Every file that Stackyard keeps has a format number, except files that can be made again (those in the caches, without
their notes; the list of unrepaired files) and files that identify the holder of a lease or draft. Any change of a
file's content, including a new key, increases the number. Unless it only adds keys with a default, it needs one
function that converts the values of the former format. So every version ever written stays readable, step by step, and
nothing is dropped: an unknown key is an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Generic, TypeVar

from stackyard.core.errors import StackyardError, cause
from stackyard.core.late import dataclass
from stackyard.host.files import at
from stackyard.yard import checksum

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
Content = TypeVar("Content")


@dataclass(frozen=True)
class Kind(Generic[Content]):
    """One kind of versioned file.

    Attributes:
        version: the format to write, and the newest one to read.
        make: creates the object from the values of that format, without the number. Raises ValueError or KeyError.
        upgrades: by format number, the conversion to the next number; none if that only adds keys.
        hint: the hint for a damaged file, given its path.
        checked_since: the first format with a checksum; 0: none.
        unnumbered: the format of a file without a number; 0 if every format has one.
        error: creates the exception from a message and a hint.
    """

    version: int
    make: Callable[[dict[str, Any]], Content]
    upgrades: Mapping[int, Upgrade] = field(default_factory=dict)
    hint: Callable[[Path], str] = lambda path: f"restore {path}"
    checked_since: int = 0
    unnumbered: int = 0
    error: Callable[..., StackyardError] = StackyardError


def load(path: Path, kind: Kind[Content], top: Path | None = None) -> Content:
    """Read a JSON file of any format up to the present one.

    Args:
        top: a trusted directory above: no link below it is followed. None: links are followed.

    Raises:
        StackyardError: (or the kind's own class) the file is missing, damaged, of a newer format, or has an unknown
            key.
    """
    return parsed(bytes_of(path, kind, top), str(path), kind)


def bytes_of(path: Path, kind: Kind[Any], top: Path | None = None) -> bytes:
    """The bytes of a file. Arguments and errors as for `load`."""
    try:
        if top is None:
            return at.read_regular(path)
        with at.parent(top, path) as place:
            return at.read_bounded(*place, at.MOST)[0]
    except OSError as error:
        raise unreadable(str(path), kind, error) from error


def parsed(raw: bytes, origin: str, kind: Kind[Content]) -> Content:
    """The object from a file's bytes. Raises as `load` does; `origin` names the file in errors."""
    try:
        text, checked = checksum.remove(raw.decode("utf-8"))
        value = content(text)
        if not checked:
            _require_unchecked(value, kind)
    except ValueError as error:
        raise damaged(origin, kind, cause(error)) from error
    return read(value, origin, kind)


def _require_unchecked(value: Any, kind: Kind[Any]) -> None:
    """Raise ValueError if a file of this format has a checksum."""
    number = value.get("format") if isinstance(value, Mapping) else None
    if kind.checked_since and isinstance(number, int) and kind.checked_since <= number <= kind.version:
        raise ValueError("missing checksum")


def content(text: str | bytes) -> Any:
    """The values of a JSON text.

    Raises:
        ValueError: not UTF-8, not JSON, nested too deep, or with half of a character (``\\ud800``).
    """
    text = text.decode() if isinstance(text, bytes) else text
    try:
        value = json.loads(text)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    return value


def read(value: Any, origin: str, kind: Kind[Content]) -> Content:
    """The object from a file's values, in any format. `origin` names the file in errors."""
    try:
        return kind.make(_upgraded(value, origin, kind))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = f"missing key {error}" if isinstance(error, KeyError) else str(error)
        raise damaged(origin, kind, reason) from error


def unreadable(origin: str, kind: Kind[Any], error: OSError | ValueError) -> StackyardError:
    """The error for an unreadable file; for a missing permission it names the owner instead of damage."""
    if isinstance(error, PermissionError):
        return kind.error(f"cannot read {origin}: {cause(error)}", hint="ask its owner to let you read it")
    return damaged(origin, kind, cause(error))


def damaged(origin: str, kind: Kind[Any], reason: str) -> StackyardError:
    """The error for a damaged file, with the hint of its kind."""
    return kind.error(f"cannot read {origin}: {reason}", hint=kind.hint(Path(origin)))


def _upgraded(value: Any, origin: str, kind: Kind[Any]) -> dict[str, Any]:
    """The values in the present format, without its number."""
    if not isinstance(value, Mapping):
        raise ValueError("not an object with keys")
    version_number = value.get("format", kind.unnumbered or None)
    if type(version_number) is not int or version_number < 1:
        raise ValueError(f"no format number ({version_number!r})")
    if version_number > kind.version:
        message = f"{origin} has format {version_number}; this version of stackyard reads up to {kind.version}"
        raise kind.error(message, hint="upgrade stackyard")
    plain = {key: item for key, item in value.items() if key != "format"}
    for number in range(version_number, kind.version):
        plain = kind.upgrades.get(number, dict)(plain)
    return plain
