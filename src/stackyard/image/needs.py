"""The newest C library that the files of a revision were built for; also started where an image is mounted.

python -m stackyard.image.needs PREFIX     prints it as JSON
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from stackyard.errors import StackyardError
from stackyard.image.bindings.drivers import numbers
from stackyard.image.bindings.versions import read_versions
from stackyard.image.enter import run_within
from stackyard.yard.record import BuildRecord

LIMIT_S = 3600.0
_GLIBC = re.compile(r"GLIBC_(\d+(?:\.\d+)+)")


@dataclass(frozen=True)
class Needs:
    """`glibc`: the newest version that a file needs, empty where none does; `file`: which one, in the prefix."""

    glibc: str = ""
    file: str = ""


def of_record(record: BuildRecord) -> Needs:
    """What a revision needs.

    Raises:
        MissingError: its image cannot be mounted on this machine.
        StackyardError: it cannot be read.
    """
    if record.payload.is_visible:
        return of_tree(Path(record.prefix))
    done = run_within(record.payload, [sys.executable, "-m", __name__, record.prefix], timeout_s=LIMIT_S)
    if done.returncode:
        raise StackyardError(f"cannot read the files of {record.module}", detail=done.output)
    return Needs(**json.loads(done.stdout))


def of_tree(prefix: Path) -> Needs:
    """What the programs and libraries in a directory need."""
    best = Needs()
    for path in _elf_files(prefix):
        for version in read_versions(path).needed.get("libc.so.6", ()):
            found = _GLIBC.fullmatch(version)
            if found and numbers(found.group(1)) > numbers(best.glibc):
                best = Needs(found.group(1), str(path.relative_to(prefix)))
    return best


def _elf_files(prefix: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(prefix):
        folders.sort()
        for name in sorted(files):
            path = Path(folder, name)
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
