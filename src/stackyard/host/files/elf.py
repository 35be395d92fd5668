"""Reads from an ELF file the headers that the dynamic loader reads: its dependencies and search paths."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from stackyard.core.late import dataclass

_MAGIC = b"\x7fELF"
T = TypeVar("T")


@dataclass(frozen=True)
class ElfFile:
    """The dynamic section of a file.

    Attributes:
        machine: architecture and word size, e.g. ``EM_X86_64/64``; only equal ones can be loaded together.
        needed: names of the libraries it is linked to (DT_NEEDED).
        rpath: directories of DT_RPATH, which its dependencies inherit; ignored by the loader where there is a runpath.
        runpath: directories of DT_RUNPATH, which hold for this file alone.
    """

    path: Path
    machine: str
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    soname: str = ""


def mapped(path: Path, read: Callable[[mmap.mmap], T], otherwise: T) -> T:
    """The result of `read` for an ELF file, which is mapped so that only the accessed pages are read.

    Returns:
        `otherwise` for a file that cannot be read, is not ELF, or is damaged.
    """
    try:
        with path.open("rb") as stream:
            return _mapped(stream, read, otherwise) if stream.read(4) == _MAGIC else otherwise
    except OSError:
        return otherwise


def _mapped(stream: BinaryIO, read: Callable[[mmap.mmap], T], otherwise: T) -> T:
    from elftools.common.exceptions import ELFError  # late: many revisions have no ELF file of their own

    try:
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return read(data)
    except (OSError, ValueError, OverflowError, KeyError, ELFError, AssertionError):
        return otherwise


def read_elf(path: Path) -> ElfFile | None:
    """The file's dynamic section; None for a file that is not ELF, is damaged, or is not linked to anything."""
    return mapped(path, lambda data: _read(path, data), None)


def _read(path: Path, data: mmap.mmap) -> ElfFile | None:
    from elftools.elf.dynamic import DynamicSegment
    from elftools.elf.elffile import ELFFile

    file = ELFFile(cast(BinaryIO, data))
    segment = next((s for s in file.iter_segments("PT_DYNAMIC") if isinstance(s, DynamicSegment)), None)
    if segment is None:
        return None
    values: dict[str, list[str]] = {"DT_NEEDED": [], "DT_RPATH": [], "DT_RUNPATH": [], "DT_SONAME": []}
    for tag in segment.iter_tags():
        name = tag.entry.d_tag
        if name in values:
            attribute = {"DT_NEEDED": "needed", "DT_RPATH": "rpath", "DT_RUNPATH": "runpath"}.get(name, "soname")
            values[name].append(getattr(tag, attribute))
    return ElfFile(
        path=path,
        machine=f"{file['e_machine']}/{file.elfclass}",
        needed=tuple(values["DT_NEEDED"]),
        rpath=_directories(values["DT_RPATH"]),
        runpath=_directories(values["DT_RUNPATH"]),
        soname=(values["DT_SONAME"] or [""])[0],
    )


def _directories(values: list[str]) -> tuple[str, ...]:
    return tuple(directory for value in values for directory in value.split(":") if directory)
