"""Reads the symbol versions of an ELF file: those it needs, by library, and those it defines (.gnu.version_r and _d).

The loader refuses a file whose needed version the library does not define: ``version `GLIBC_2.34' not found``. The rule
holds for every library with versions, also for libstdc++, libgfortran and UCX.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, cast

from stackyard.host.files.elf import mapped

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
    from elftools.elf.elffile import ELFFile
    from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection

    needed: dict[str, frozenset[str]] = {}
    defined: set[str] = set()
    for section in ELFFile(cast(BinaryIO, data)).iter_sections():
        if isinstance(section, GNUVerNeedSection):
            for library, entries in section.iter_versions():
                names = frozenset(entry.name for entry in entries if not entry.entry.vna_flags & _WEAK)
                name = str(library.name)
                needed[name] = needed.get(name, frozenset()) | names
        elif isinstance(section, GNUVerDefSection):
            defined |= {_first(names) for _, names in section.iter_versions()}
    return Versions(needed, frozenset(defined))


def _first(names: Any) -> str:
    """The name of a version; the names after it are those it inherits from."""
    return str(next(iter(names)).name)


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
