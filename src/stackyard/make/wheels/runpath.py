"""Rewrites the library search path (DT_RPATH, DT_RUNPATH) in the bytes of an ELF file, without moving anything in it.

The new text takes the place of the old one in the string table, so it may not be longer. Linkers store a string that is
the end of another one only once; where the names of symbols or libraries would change, the file is left as it is.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from typing import Any

MAGIC = b"\x7fELF"
_PATHS = ("DT_RPATH", "DT_RUNPATH")
_NAMES = {"DT_NEEDED": "needed", "DT_SONAME": "soname"}


def rewritten(data: bytes, change: Callable[[str], str]) -> bytes:
    """The file with each search path replaced by `change` of it; as it is if that is impossible or changes nothing.

    Args:
        data: a file; one that is not ELF or is damaged is returned as it is.
        change: gets the directories separated by colons, as the loader does.
    """
    from elftools.common.exceptions import ELFError

    if not data.startswith(MAGIC):
        return data
    try:
        result = _rewritten(data, change)
        return result if result == data or _names(result) == _names(data) else data
    except (ELFError, ValueError, OverflowError, KeyError, AssertionError, struct.error):
        return data


def _rewritten(data: bytes, change: Callable[[str], str]) -> bytes:
    result = bytearray(data)
    for start, old in _search_paths(data):
        new = change(old.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        if len(new) > len(old):
            return data
        result[start : start + len(old)] = new.ljust(len(old), b"\0")
    return bytes(result)


def _search_paths(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The search paths of a file, each with its offset."""
    from elftools.common.exceptions import ELFError

    file = _opened(data)
    for segment in _dynamic(file):
        tags = list(segment.iter_tags())
        tables = [tag.entry.d_ptr for tag in tags if tag.entry.d_tag == "DT_STRTAB"]
        offset = next((offset for table in tables for offset in file.address_offsets(table)), None)
        if offset is None:
            raise ELFError("no string table")
        for start in dict.fromkeys(offset + tag.entry.d_val for tag in tags if tag.entry.d_tag in _PATHS):
            yield start, data[start : data.index(b"\0", start)]


def _names(data: bytes) -> list[str]:
    """What else a file names by its string table: libraries, symbols and their versions."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection
    from elftools.elf.sections import SymbolTableSection

    file = _opened(data)
    if not file.num_sections():
        raise ELFError("its symbols cannot be listed")
    names: list[str] = []
    for segment in _dynamic(file):
        names += (getattr(t, _NAMES[t.entry.d_tag]) for t in segment.iter_tags() if t.entry.d_tag in _NAMES)
    for section in file.iter_sections():
        if isinstance(section, SymbolTableSection) and section["sh_type"] == "SHT_DYNSYM":
            names += (symbol.name for symbol in section.iter_symbols())
        elif isinstance(section, GNUVerDefSection):
            names += (entry.name for _, entries in section.iter_versions() for entry in entries)
        elif isinstance(section, GNUVerNeedSection):
            for library, entries in section.iter_versions():
                names += (str(library.name), *(str(entry.name) for entry in entries))
    return names


def _opened(data: bytes) -> Any:
    from elftools.elf.elffile import ELFFile

    return ELFFile(io.BytesIO(data))


def _dynamic(file: Any) -> Iterator[Any]:
    from elftools.elf.dynamic import DynamicSegment

    return (segment for segment in file.iter_segments("PT_DYNAMIC") if isinstance(segment, DynamicSegment))
