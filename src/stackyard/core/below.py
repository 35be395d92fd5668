"""`Below`: a path below an object's directory, as an attribute."""

from __future__ import annotations

from pathlib import Path
from typing import Any, overload


class Below:
    """The path of a file or directory with a fixed name: ``record = Below("record.json")`` in a class with a `root`.

    `of` names the attribute that holds the directory.
    """

    def __init__(self, name: str, *, of: str = "root") -> None:
        self._name, self._of = name, of

    @overload
    def __get__(self, one: None, cls: type) -> Below: ...
    @overload
    def __get__(self, one: object, cls: type) -> Path: ...
    def __get__(self, one: Any, cls: type) -> Below | Path:
        """The path of an object; accessed on a class, this descriptor."""
        return self if one is None else getattr(one, self._of) / self._name
