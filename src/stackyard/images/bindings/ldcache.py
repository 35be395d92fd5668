"""Reads ld.so.cache, as written by ldconfig(8): the libraries of the system directories by name.

The format is that of glibc's ``sysdeps/generic/dl-cache.h`` ("glibc-ld.so.cache1.1"): a header of 48 bytes, entries of
24, then texts. Files from before glibc 2.32 begin with the older format, which the newer one follows. An entry's hwcap
with bit 62 is a number: that of a name in a section at the end (tag 1), e.g. ``x86-64-v3``. Entries with other hwcaps
date from before glibc 2.33 and are skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER, _ENTRY = struct.Struct("<20sIIII"), struct.Struct("<iIIIQ")
_HEADER_BYTES = 48
_SECTIONS, _SECTION, _SECTIONS_MAGIC = struct.Struct("<II"), struct.Struct("<IIII"), 0xEAA42174
_OF_HWCAPS, _IS_NAMED = 1, 1 << 62


@dataclass(frozen=True)
class CachedLibrary:
    """A library's file. `hwcaps`: the processors that it is built for, by directory name; empty: all."""

    path: str
    hwcaps: str = ""


def read_cache(path: Path) -> Mapping[str, tuple[CachedLibrary, ...]]:
    """The files of each library, in the cache's order, possibly of several architectures; empty without a cache."""
    try:
        data = path.read_bytes()
    except OSError:
        return {}
    start = data.find(_MAGIC)
    if start < 0 or len(data) < start + _HEADER_BYTES:
        return {}
    _, count, _, _, sections = _HEADER.unpack_from(data, start)
    names = _hwcaps(data, start, sections)
    count = min(count, (len(data) - start - _HEADER_BYTES) // _ENTRY.size)
    entries = (_ENTRY.unpack_from(data, start + _HEADER_BYTES + index * _ENTRY.size) for index in range(count))
    cache: dict[str, tuple[CachedLibrary, ...]] = {}
    for _, key, value, _, hwcap in entries:
        built_for = names.get(hwcap ^ _IS_NAMED) if hwcap else ""
        if built_for is not None:
            name = _text(data, start + key)
            cache[name] = (*cache.get(name, ()), CachedLibrary(_text(data, start + value), built_for))
    return cache


def _hwcaps(data: bytes, start: int, offset: int) -> dict[int, str]:
    """The names of the processors, by number."""
    at = start + offset
    if not offset or at + _SECTIONS.size > len(data):
        return {}
    magic, count = _SECTIONS.unpack_from(data, at)
    if magic != _SECTIONS_MAGIC or at + _SECTIONS.size + count * _SECTION.size > len(data):
        return {}
    places = (_SECTION.unpack_from(data, at + _SECTIONS.size + index * _SECTION.size) for index in range(count))
    place, size = next(((place, size) for tag, _, place, size in places if tag == _OF_HWCAPS), (0, 0))
    count = max(min(size, len(data) - start - place) // 4, 0)
    keys = struct.unpack_from(f"<{count}I", data, start + place) if count else ()
    return {number: _text(data, start + key) for number, key in enumerate(keys)}


def _text(data: bytes, offset: int) -> str:
    return data[offset : max(data.find(b"\0", offset), offset)].decode("utf-8", "replace")
