"""Replaces the paths of a prefix in texts, links and binary files by its path in an image."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from mmap import mmap
from typing import Any

from stackyard.core import change as ops
from stackyard.core.errors import InputError

_LONG = re.compile(rb"""\A#!/bin/sh\n'''exec' "?(/[^\s"]+)"? ?"\$0" "\$@"(?:\n' '''| \#''')\n""")
"""How installers write the first line of a script whose interpreter's path is too long for the kernel."""
_KERNELS_LIMIT = 127


ROOT = "/opt/stackyard"
"""Where revisions are in images: a path that no host uses, so that nothing of a host is bound over it."""
Buffer = bytearray | mmap
"""The bytes of a binary file, which are changed in their place: a library may have gigabytes."""


@dataclass(frozen=True)
class Moves:
    """Directories and their paths in the image: absolute paths, the longest first."""

    pairs: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, pairs: Sequence[tuple[str, str]]) -> Moves:
        """Moves from path pairs, sorted and without duplicates."""
        return cls(tuple(sorted(dict(pairs).items(), key=lambda pair: (-len(pair[0]), pair))))

    @cached_property
    def _patterns(self) -> tuple[tuple[re.Pattern[bytes], bytes], ...]:
        """Patterns that do not match another directory with the same beginning: ``/a/prefix-2``, ``/a/prefix.old``."""
        ends = rb"(?![\w-]|\.\w)"
        return tuple((re.compile(re.escape(old.encode()) + ends), new.encode()) for old, new in self.pairs)

    @property
    def reach(self) -> int:
        """The length of the longest path, plus the bytes after it that tell it from a longer name."""
        return max((len(old.encode()) for old, _ in self.pairs), default=0) + 2

    def found_in(self, data: bytes, more: bytes = b"") -> bool:
        """Whether one of the paths occurs in `data`; `more` has the two bytes after it."""
        match = (pattern.search(data + more) for (old, _), (pattern, _) in self._each() if old.encode() in data)
        return any(hit is not None and hit.end() <= len(data) for hit in match)

    def _each(self) -> zip[tuple[tuple[str, str], tuple[re.Pattern[bytes], bytes]]]:
        return zip(self.pairs, self._patterns, strict=True)

    def in_text(self, data: bytes) -> bytes:
        """A text with the new paths. A script's ``#!`` line becomes a plain one if it is short enough."""
        for pattern, new in self._patterns:
            data = pattern.sub(lambda _, new=new: new, data)  # type: ignore[misc]
        first = _LONG.match(data)
        if first and len(first[1]) + 2 <= _KERNELS_LIMIT:
            return b"#!" + first[1] + b"\n" + data[first.end() :]
        return data

    def path(self, path: str) -> str:
        """A path, or a list of paths, with the new paths."""
        return self.in_text(path.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def operation(self, operation: ops.Operation) -> ops.Operation:
        """An operation of a module with the new paths."""
        values: dict[str, Any] = {}
        for name, value in vars(operation).items():
            if isinstance(value, str):
                values[name] = self.path(value)
            elif isinstance(value, tuple) and value and all(isinstance(item, str) for item in value):
                values[name] = tuple(map(self.path, value))
        return replace(operation, **values)

    def in_strings(self, data: Buffer) -> None:
        """Replace paths in a binary file that conda prepared for relocation: null-terminated strings with padding."""
        for pattern, new in self._patterns:
            for match in re.finditer(pattern.pattern + rb"[^\0]*\0", data):
                data[match.start() : match.end()] = _padded(match[0], pattern, new)

    def in_binary(self, data: Buffer, name: str) -> None:
        """Any other binary file, without a change of length: a longer old path is padded with slashes.

        Raises:
            InputError: the new path is longer than the old one.
        """
        for (old, new), (pattern, _) in self._each():
            if len(new) > len(old) and pattern.search(data):
                raise too_long(name, old, new)
            for match in pattern.finditer(data):
                data[match.start() : match.end()] = new.encode() + b"/" * (len(old) - len(new))


def _padded(text: bytes, pattern: re.Pattern[bytes], new: bytes) -> bytes:
    text_at_new = pattern.sub(lambda _: new, text)
    return text_at_new + b"\0" * (len(text) - len(text_at_new))


def too_long(name: str, old: str, new: str) -> InputError:
    """The error for a path that does not fit into a binary file."""
    return InputError(
        f"{new} is longer than {old}, and the binary file {name} has room for the latter only",
        hint=f"name a path of at most {len(old)} characters: --prefix PATH",
    )


def place_of(stack: str, prefix: str = "") -> str:
    """The prefix in an image: that given, else the same for all revisions of a stack, so that they share layers."""
    return prefix.rstrip("/") or f"{ROOT}/{stack}"


def require_place(place: str) -> None:
    """Raise InputError if a prefix in an image is not usable: with `..`, in a list of paths, or not absolute."""
    if not place.startswith("/") or ":" in place or ".." in place.split("/"):
        raise InputError(f"not an absolute path without `..` and `:`: {place}")
