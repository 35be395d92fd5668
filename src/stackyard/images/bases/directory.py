"""A directory as one layer of an image, deterministic for the same files and times."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from stackyard.core.errors import StackyardError, cause

OF_THE_HOST = ("dev", "proc", "sys")
"""What a container gets from its host: debootstrap leaves device nodes there, which no image may have."""


def write_layer(root: Path, file: Path) -> None:
    """Write a directory as the tar of one layer: sorted, owned by root; files keep their times, for bytecode."""
    with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in _walked(root):
            member = tar.gettarinfo(path, arcname=os.path.relpath(path, root))
            if member is None:
                raise StackyardError(
                    f"cannot import {path}: special file", hint="remove it: a container gets /dev from its host"
                )
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = 0 if member.isdir() else int(member.mtime)
            member.mode &= 0o7777
            _write(tar, member, path)


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
    if not member.isreg():
        tar.addfile(member)
        return
    try:
        with open(path, "rb") as stream:  # noqa: PTH123 - as strings: a tree has 100,000 files
            tar.addfile(member, stream)
    except OSError as error:
        raise StackyardError(f"cannot read {path}: {cause(error)}") from error


def _walked(root: Path) -> Iterator[str]:
    """Every path below a directory, sorted by name; directories in `OF_THE_HOST` are empty."""

    def fail(error: OSError) -> None:
        raise StackyardError(f"cannot read {error.filename}: {cause(error)}") from error

    for directory, directories, files in os.walk(root, onerror=fail):
        directories.sort()
        links = [name for name in directories if os.path.islink(os.path.join(directory, name))]  # noqa: PTH114, PTH118
        for name in sorted([*directories, *files]):
            yield os.path.join(directory, name)  # noqa: PTH118
        left_out = {*links, *(OF_THE_HOST if directory == os.fspath(root) else ())}
        directories[:] = [name for name in directories if name not in left_out]
