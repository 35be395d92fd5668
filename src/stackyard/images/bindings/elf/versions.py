"""Reads the symbol versions of an ELF file: those it needs, by library, and those it defines (.gnu.version_r and _d).

The loader refuses a file whose needed version the library does not define: ``version `GLIBC_2.34' not found``. The rule
holds for every library with versions, also for libstdc++, libgfortran and UCX.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, cast

from stackyard.host.files.elf import mapped

_NEEDED, _DEFINED = 0x6FFFFFFE, 0x6FFFFFFD
"""SHT_GNU_verneed and SHT_GNU_verdef."""
_MOST, _MOST_NAME = 4096, 4096
"""How many sections, libraries or definitions are read, and the bytes of a name: libstdc++ defines some 80."""
_Section = tuple[int, int, int, int]
"""Type, offset, size, and the number of the section with its strings."""
_WEAK = 0x2
"""VER_FLG_WEAK: the loader only warns."""


@dataclass(frozen=True)
class Versions:
    """`needed`: versions that must be defined, by library; `defined`: versions that this file defines."""

    needed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    defined: frozenset[str] = frozenset()


@lru_cache(maxsize=4096)
def read_versions(path: Path) -> Versions:
    """The symbol versions of a file; none for a file that is not ELF or is damaged."""
    return mapped(path, _read, Versions())


def _read(data: mmap.mmap) -> Versions:
    """Read the two sections by themselves: a stack has hundreds of files, and pyelftools takes 6 ms for one."""
    needed: dict[str, frozenset[str]] = {}
    defined: set[str] = set()
    try:
        order, sections = _sections(data)
        for kind, offset, _, link in sections:
            if kind == _NEEDED:
                for library, names in _needed(data, order, offset, sections[link]):
                    needed[library] = needed.get(library, frozenset()) | names
            elif kind == _DEFINED:
                defined.update(_defined(data, order, offset, sections[link]))
    except (struct.error, IndexError) as error:
        raise ValueError("damaged sections") from error
    return Versions(needed, frozenset(defined))


def _sections(data: mmap.mmap) -> tuple[str, list[_Section]]:
    """The byte order, and all sections."""
    order, is_wide = "<" if data[5] == 1 else ">", data[4] == 2
    start, size, count = struct.unpack_from(f"{order}40xQ10xHH" if is_wide else f"{order}32xI10xHH", data)
    header = struct.Struct(f"{order}4xI16xQQI" if is_wide else f"{order}4xI8xIII")
    if start == 0 or size < header.size:
        return order, []
    count = count or header.unpack_from(data, start)[2]  # more than 65,279 sections
    return order, [header.unpack_from(data, start + size * number) for number in range(min(count, _MOST))]


def _needed(data: mmap.mmap, order: str, place: int, strings: _Section) -> Iterator[tuple[str, frozenset[str]]]:
    left = _MOST
    for offset, (_, count, file, inner, _) in _chain(data, struct.Struct(f"{order}HHIII"), place, _MOST):
        entries = _chain(data, struct.Struct(f"{order}IHHII"), offset + inner, min(count, max(left, 0)))
        left -= count
        names = [_text_at(data, strings, name) for _, (_, flags, _, name, _) in entries if not flags & _WEAK]
        yield _text_at(data, strings, file), frozenset(names)


def _defined(data: mmap.mmap, order: str, place: int, strings: _Section) -> Iterator[str]:
    """The names of the versions; the further names of an entry are those that it inherits from."""
    for offset, (_, _, _, count, _, inner, _) in _chain(data, struct.Struct(f"{order}HHHHIII"), place, _MOST):
        if count:
            yield _text_at(data, strings, struct.unpack_from(f"{order}I", data, offset + inner)[0])


def _chain(data: mmap.mmap, form: struct.Struct, offset: int, most: int) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Entries whose last field is the distance to the next one; 0: the last."""
    for _ in range(most):
        entry = form.unpack_from(data, offset)
        yield offset, entry
        if not entry[-1]:
            return
        offset += entry[-1]


def _text_at(data: mmap.mmap, strings: _Section, offset: int) -> str:
    """A string of a string table, which must end within it."""
    _, start, size, _ = strings
    if offset >= size:
        raise IndexError(offset)
    end = data.find(b"\0", start + offset, min(start + size, start + offset + _MOST_NAME))
    if end < 0:
        raise IndexError(offset)
    return data[start + offset : end].decode("utf-8", "replace")


def text_of(path: Path, symbol: str) -> str:
    """The string value of an exported constant, e.g. ``ompi_version_string``; empty without it."""
    return mapped(path, lambda data: _text(data, symbol), "")


def _text(data: mmap.mmap, symbol: str) -> str:
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    file = ELFFile(cast(BinaryIO, data))
    table = file.get_section_by_name(".dynsym")
    symbols = table.get_symbol_by_name(symbol) if isinstance(table, SymbolTableSection) else None
    for entry in symbols or ():
        offset = next(iter(file.address_offsets(entry["st_value"], 1)), None)
        if offset is not None and entry["st_shndx"] != "SHN_UNDEF":
            data.seek(offset)
            return data.read(max(entry["st_size"], 1)).split(b"\0")[0].decode("utf-8", "replace")
    return ""
