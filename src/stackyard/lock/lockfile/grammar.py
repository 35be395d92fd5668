"""The valid values of a locked package's fields, which become file names, URLs and lines of other tools' files.

A lock is a text file that people merge and edit. Its values are checked when it is read, so that no later step meets a
name that leads out of a directory, or a URL that nothing can fetch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from stackyard.core.quoting import quoted
from stackyard.lock.lockfile.model import CondaPackage, LockedInterpreter, PipPackage

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+!-]{0,200}")
_PIP_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_SUBDIR = re.compile(r"[a-z0-9]+(-[a-z0-9_]+)?")
_PYTHON = re.compile(r"(\d{1,2}\.\d{1,3}(\.\w{1,20})*)?")
_HEX = {"sha256": 64, "md5": 32}


def check(locked: CondaPackage | PipPackage | LockedInterpreter) -> None:
    """Raise ValueError, naming the field, if a value is invalid for its field."""
    for name, test in _FIELDS[type(locked)].items():
        value = getattr(locked, name)
        if not test(value):
            raise ValueError(f"invalid {name}: {quoted(value)}")
    for name, digits in _HEX.items():
        value = getattr(locked, name, "")
        if value and not re.fullmatch(f"[0-9a-f]{{{digits}}}", value):
            raise ValueError(f"invalid {name}: {quoted(value)} is not {digits} hexadecimal digits")


def _matches(pattern: re.Pattern[str]) -> Callable[[Any], bool]:
    return lambda value: pattern.fullmatch(value) is not None


def _url(value: str) -> bool:
    try:
        parts = urlsplit(re.sub(r"\$\{\w+\}", "1", value))  # a variable may stand for any part, a port too
        return bool(parts.scheme and (parts.netloc or parts.path)) and parts.port != 0 and _one_line(value)
    except ValueError:
        return False


def _one_line(value: str) -> bool:
    return not re.search(r"[\s\x00-\x1f\x7f]", value)


def _size(value: int) -> bool:
    return 0 <= value < 1 << 63


def _inside(value: str) -> bool:
    return not value.startswith("/") and ".." not in value.split("/") and "\0" not in value


_CONDA: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("name", "version", "build"), _matches(_WORD)),
    "subdir": _matches(_SUBDIR),
    "url": _url,
    **dict.fromkeys(("build_number", "size", "timestamp_ms"), _size),
}
_PIP: Mapping[str, Callable[[Any], bool]] = {
    "name": _matches(_PIP_NAME),
    "version": lambda value: not value or _WORD.fullmatch(value) is not None,
    "url": _url,
    "size": _size,
    "commit": lambda value: re.fullmatch(r"[0-9a-f]*", value) is not None,
    "subdirectory": _inside,
}
_INTERPRETER: Mapping[str, Callable[[Any], bool]] = {"version": _matches(_PYTHON)}
_FIELDS: Mapping[type, Mapping[str, Callable[[Any], bool]]] = {
    CondaPackage: _CONDA,
    PipPackage: _PIP,
    LockedInterpreter: _INTERPRETER,
}
