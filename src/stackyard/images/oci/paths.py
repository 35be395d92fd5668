"""Replacing the paths of a prefix in texts, links and binary files by those that it has in an image."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from mmap import mmap

from stackyard.core.errors import InputError

_LONG = re.compile(rb"""\A#!/bin/sh\n'''exec' "?(/[^\s"]+)"? ?"\$0" "\$@"(?:\n' '''| \#''')\n""")
"""How installers write the first line of a script whose interpreter's path is too long for the kernel."""
_KERNELS_LIMIT = 127


Buffer = bytearray | mmap
"""The bytes of a binary file, which are changed in their place: a library may have gigabytes."""


@dataclass(frozen=True)
class Moves:
    """Directories and where they are in the image: absolute paths, the longest first."""

    pairs: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, pairs: Sequence[tuple[str, str]]) -> Moves:
        """The same in the order that is needed, each once."""
        return cls(tuple(sorted(dict(pairs).items(), key=lambda pair: (-len(pair[0]), pair))))

    @cached_property
    def _patterns(self) -> tuple[tuple[re.Pattern[bytes], bytes], ...]:
        """A directory of another name that begins alike is not meant: ``/a/prefix-2``, ``/a/prefix.old``."""
        ends = rb"(?![\w-]|\.\w)"
        return tuple((re.compile(re.escape(old.encode()) + ends), new.encode()) for old, new in self.pairs)

    @property
    def reach(self) -> int:
        """Bytes of the longest path, and of what must follow to tell it from a longer name."""
        return max((len(old.encode()) for old, _ in self.pairs), default=0) + 2

    def found_in(self, data: bytes, more: bytes = b"") -> bool:
        """Whether one of the paths occurs in `data`; `more` are the two bytes that follow it."""
        found = (pattern.search(data + more) for (old, _), (pattern, _) in self._each() if old.encode() in data)
        return any(each is not None and each.end() <= len(data) for each in found)

    def _each(self) -> zip[tuple[tuple[str, str], tuple[re.Pattern[bytes], bytes]]]:
        return zip(self.pairs, self._patterns, strict=True)

    def in_text(self, data: bytes) -> bytes:
        """A text with the new paths. A script's first line is the plain ``#!`` line where that is short enough."""
        for pattern, new in self._patterns:
            data = pattern.sub(lambda _, new=new: new, data)  # type: ignore[misc]
        first = _LONG.match(data)
        if first and len(first[1]) + 2 <= _KERNELS_LIMIT:
            return b"#!" + first[1] + b"\n" + data[first.end() :]
        return data

    def path(self, path: str) -> str:
        """One path, or a list of them."""
        return self.in_text(path.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def in_strings(self, data: Buffer) -> None:
        """A binary file that conda prepares for any prefix: its strings end with null characters, and are followed by
        room that conda has left. The result is what conda itself would install at the new path."""
        for pattern, new in self._patterns:
            for found in re.finditer(pattern.pattern + rb"[^\0]*\0", data):
                data[found.start() : found.end()] = _padded(found[0], pattern, new)

    def in_binary(self, data: Buffer, name: str) -> None:
        """Any other binary file: the same number of bytes, since a path may be longer by slashes at its end.

        Raises:
            InputError: the new path is longer than the old one.
        """
        for (old, new), (pattern, _) in self._each():
            if len(new) > len(old) and pattern.search(data):
                raise too_long(name, old, new)
            for found in pattern.finditer(data):
                data[found.start() : found.end()] = new.encode() + b"/" * (len(old) - len(new))


def _padded(text: bytes, pattern: re.Pattern[bytes], new: bytes) -> bytes:
    made = pattern.sub(lambda _: new, text)
    return made + b"\0" * (len(text) - len(made))


def too_long(name: str, old: str, new: str) -> InputError:
    """The error for a path that a binary file has no room for."""
    return InputError(
        f"{new} is longer than {old}, and the binary file {name} has room for the latter only",
        hint=f"name a path of at most {len(old)} characters: --prefix PATH",
    )
