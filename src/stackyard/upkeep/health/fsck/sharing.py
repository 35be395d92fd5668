"""Finds the other hard links of a file in the revisions and caches of a yard."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from stackyard.yard import disk
from stackyard.yard.cache.caches import KINDS, parts
from stackyard.yard.layout import Yard
from stackyard.yard.revision import revisions

Inode = tuple[int, int]


def holders(yard: Yard, inodes: Collection[Inode]) -> dict[Inode, list[str]]:
    """The names of the modules, and the paths of the cache entries, that contain files with these inodes."""
    names: dict[Inode, list[str]] = {}
    if inodes:
        for label, directory in _places(yard):
            for inode in _inodes(directory) & set(inodes):
                names.setdefault(inode, []).append(label)
    return names


def _places(yard: Yard) -> Iterator[tuple[str, Path]]:
    for paths in revisions.directories(yard):
        yield f"{paths.root.parent.name}/{paths.root.name}", paths.root
    for part in parts(yard):
        for kind in (linked for linked in KINDS if linked.linked):
            for entry in kind.complete(part):
                if not entry.is_symlink():
                    yield entry.relative_to(yard.root).as_posix(), entry


def _inodes(directory: Path) -> set[Inode]:
    """The inode numbers of the files below a directory, read from directory entries without a stat for each file."""
    inodes: set[Inode] = set()
    waiting = [os.fspath(directory)] if disk.is_directory(directory) else []
    while waiting:
        below = waiting.pop()
        device = os.lstat(below).st_dev
        with os.scandir(below) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    inodes.add((device, entry.inode()))
    return inodes
