"""The newest C library version that the files of a revision need; also run as a program where an image is mounted.

python -m stackyard.images.needs PREFIX     prints it as JSON
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from stackyard.core.errors import InputError, StackyardError
from stackyard.images.bindings.drivers import numbers
from stackyard.images.bindings.elf.versions import read_versions
from stackyard.images.squashfs.enter import run_module_within
from stackyard.yard.revision.record import BuildRecord

LIMIT_S = 3600.0
_GLIBC = re.compile(r"GLIBC_(\d+(?:\.\d+)+)")


@dataclass(frozen=True)
class Needs:
    """`glibc`: the newest version that a file needs, empty if none does; `file`: that file, relative to the prefix."""

    glibc: str = ""
    file: str = ""


def of_record(record: BuildRecord) -> Needs:
    """The needs of a revision.

    Raises:
        MissingError: its image cannot be mounted on this machine.
        StackyardError: it cannot be read.
    """
    if record.payload.is_visible:
        return of_tree(Path(record.prefix))
    done = run_module_within(record.payload, __name__, record.prefix, timeout_s=LIMIT_S)
    try:
        if done.returncode:
            raise ValueError
        return Needs(**json.loads(done.stdout))
    except (TypeError, ValueError) as error:
        raise StackyardError(f"cannot read the files of {record.module}", detail=done.output) from error


def of_tree(prefix: Path) -> Needs:
    """The needs of the programs and libraries in a directory."""
    needs = of_files(_elf_files(prefix))
    return Needs(needs.glibc, str(Path(needs.file).relative_to(prefix)) if needs.file else "")


def of_files(files: Iterable[Path]) -> Needs:
    """The needs of ELF files; names the first file with the highest version."""
    best = Needs()
    for path in files:
        version = newest(read_versions(path).needed.get("libc.so.6", ()))
        if numbers(version) > numbers(best.glibc):
            best = Needs(version, str(path))
    return best


def newest(names: Iterable[str]) -> str:
    """The highest version among names such as ``GLIBC_2.36``; empty without one (``GLIBC_PRIVATE`` has no number)."""
    matches = (match.group(1) for match in map(_GLIBC.fullmatch, names) if match)
    return max(matches, key=numbers, default="")


def require(needed: Needs, has: str, *, stack: str, system: str, hint: str = "") -> None:
    """Raise if a C library is older than a stack needs.

    Args:
        has: the glibc version; empty for a system with another C library, or none.
        stack, system: how the message names them.
        hint: the hint; empty: use another base.

    Raises:
        InputError: it is older.
    """
    if not needed.glibc or (has and numbers(has) >= numbers(needed.glibc)):
        return
    raise InputError(
        f"{stack} needs glibc {needed.glibc} ({needed.file}), and {system} has {f'glibc {has}' if has else 'no glibc'}",
        hint=hint or f"use a base with glibc {needed.glibc} or newer, or deploy the stack on an older system",
    )


def _elf_files(prefix: Path) -> Iterator[Path]:
    for directory, directories, files in os.walk(prefix):
        directories.sort()
        for name in sorted(files):
            path = Path(directory, name)
            if not path.is_symlink() and (".so" in name or os.access(path, os.X_OK)) and _is_elf(path):
                yield path


def _is_elf(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(4) == b"\x7fELF"
    except OSError:
        return False


if __name__ == "__main__":
    print(json.dumps(asdict(of_tree(Path(sys.argv[1])))))
