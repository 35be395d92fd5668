"""Turns an RPATH that overrides the bound library into a RUNPATH, in a copy that is bound over the image's file.

The loader searches LD_LIBRARY_PATH after a DT_RPATH and before a DT_RUNPATH. The two differ by one number in the
dynamic section (gABI: DT_RPATH 15, DT_RUNPATH 29), so the file's layout is unchanged.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from stackyard.core.errors import StackyardError
from stackyard.host.files.hashing import sha256_file
from stackyard.images.bindings.opened import opened
from stackyard.inputs.sites.bindings import Bind, HostBindings

_RPATH, _RUNPATH = 15, 29


def repaired(image: Path, paths: Iterable[str], directory: Path, bindings: HostBindings) -> HostBindings:
    """The bindings with a repaired copy of each file over it.

    Args:
        paths: files of the image, as `check.BindingReport.rpaths` has them.
        directory: the directory for the copies, visible to all nodes.

    Raises:
        StackyardError: a file has no RPATH.
    """
    binds: list[Bind] = []
    with opened(image) as files:
        for path in paths:
            place = files.tree.find(path)
            if place is None:
                raise StackyardError(f"cannot repair {path}: not found in {image}")
            digest = sha256_file(place.outside)
            copy = directory.absolute() / f"{place.outside.name}.{digest[:12]}"
            directory.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(place.outside, copy)
            copy.chmod(0o755)
            to_runpath(copy)
            why = f"its RPATH is a RUNPATH, which lets LD_LIBRARY_PATH come first; the original has sha256 {digest}"
            binds.append(Bind(path=str(copy), to=place.inside, why=why))
    replaced = {bind.to for bind in binds}
    other_binds = tuple(bind for bind in bindings.binds if bind.to not in replaced)
    return bindings.model_copy(update={"binds": (*other_binds, *binds)})


def to_runpath(file: Path) -> None:
    """Make a file's RPATH a RUNPATH, in place.

    Raises:
        StackyardError: it has no RPATH.
    """
    from elftools.elf.elffile import ELFFile

    with file.open("r+b") as stream:
        elf = ELFFile(stream)
        segment = next(iter(elf.iter_segments("PT_DYNAMIC")), None)
        if segment is None:
            raise StackyardError(f"{file} is not linked to anything")
        word = struct.Struct(("<" if elf.little_endian else ">") + ("q" if elf.elfclass == 64 else "i"))
        if not _replace(stream, segment["p_offset"], segment["p_filesz"], word):
            raise StackyardError(f"{file} has no RPATH")


def _replace(stream: BinaryIO, start: int, size: int, word: struct.Struct) -> bool:
    """Replace the tag in a dynamic section, an array of word pairs; whether it was found."""
    changed = False
    for at in range(start, start + size, 2 * word.size):
        stream.seek(at)
        (tag,) = word.unpack(stream.read(word.size))
        if tag == 0:
            break
        if tag == _RPATH:
            stream.seek(at)
            stream.write(word.pack(_RUNPATH))
            changed = True
    return changed
