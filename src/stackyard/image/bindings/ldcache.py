"""ld.so.cache, as ldconfig(8) writes it: the libraries of the system's own directories by name.

The format is that of glibc's ``sysdeps/generic/dl-cache.h`` ("glibc-ld.so.cache1.1"): a header of 48 bytes, entries of
24, then texts. Files from before glibc 2.32 begin with the older format, which the newer one follows.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER, _ENTRY = struct.Struct("<20sII"), struct.Struct("<iIIIQ")
_HEADER_BYTES = 48


def read_cache(path: Path) -> Mapping[str, tuple[str, ...]]:
    """Library to its paths, in the loader's order; empty without a cache. Of several processors' too."""
    try:
        data = path.read_bytes()
    except OSError:
        return {}
    start = data.find(_MAGIC)
    if start < 0 or len(data) < start + _HEADER_BYTES:
        return {}
    _, count, _ = _HEADER.unpack_from(data, start)
    count = min(count, (len(data) - start - _HEADER_BYTES) // _ENTRY.size)
    entries = (_ENTRY.unpack_from(data, start + _HEADER_BYTES + index * _ENTRY.size) for index in range(count))
    cache: dict[str, tuple[str, ...]] = {}
    for _, key, value, _, hwcap in entries:
        if not hwcap:  # with one it is a build for some processors of a library that is also listed without
            name = _text(data, start + key)
            cache[name] = (*cache.get(name, ()), _text(data, start + value))
    return cache


def _text(data: bytes, offset: int) -> str:
    return data[offset : max(data.find(b"\0", offset), offset)].decode("utf-8", "replace")
