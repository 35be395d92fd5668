"""Changes below a trusted directory, mostly a yard's root: no link below it is followed (`host.files.at`).

They work like `os` and `pathlib`, but are safe where another account may write: an exchanged directory raises an
OSError, and nothing outside is touched. Errors have the whole path.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stackyard.host.files import at, copying


@contextmanager
def named(directory: Path) -> Iterator[None]:
    """Within a ``with`` block, give errors in a directory the whole path."""
    try:
        yield
    except OSError as error:
        if isinstance(error.filename, str):  # of a call by descriptor it is that number
            error.filename = str(directory / error.filename)
        if isinstance(error.filename2, str):
            error.filename2 = str(directory / error.filename2)
        raise


def make(top: Path, path: Path) -> None:
    """Create a directory and its missing parents, below `top`."""
    with at.directory(top, path, make=True):
        pass


def unlink(top: Path, path: Path) -> None:
    """Remove a file or a link; it may be missing."""
    with named(path.parent), suppress(FileNotFoundError), at.parent(top, path) as (directory, name):
        os.unlink(name, dir_fd=directory)


def rmdir(top: Path, path: Path) -> None:
    """Remove an empty directory."""
    with named(path.parent), at.parent(top, path) as (directory, name):
        os.rmdir(name, dir_fd=directory)


def rename(top: Path, old: Path, new: Path) -> None:
    """Rename; an existing entry of the new name is replaced, as by os.rename."""
    with named(old.parent), at.parent(top, old) as (before, name), at.parent(top, new) as (after, become):
        os.rename(name, become, src_dir_fd=before, dst_dir_fd=after)


def symlink(top: Path, path: Path, target: str) -> None:
    """Make a symbolic link."""
    with named(path.parent), at.parent(top, path) as (directory, name):
        os.symlink(target, name, dir_fd=directory)


def put(top: Path, source: Path, path: Path, *, link: bool = False, source_top: Path | None = None) -> None:
    """Copy (or link) a file to a path atomically, replacing an existing one.

    Args:
        source_top: a trusted directory above the source; None: the one that holds it.
    """
    name = f".{path.name[:100]}.{os.urandom(6).hex()}.tmp"
    with (
        named(source.parent),
        at.parent(source_top or source.parent, source) as origin,
        named(path.parent),
        at.directory(top, path.parent) as directory,
    ):
        try:
            copying.copy_tree(origin, (directory, name), link=link)
            os.rename(name, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        finally:
            at.remove_tree(directory, name)


def set_mode(
    top: Path,
    path: Path,
    change: Callable[[os.stat_result], int],
    kinds: Collection[int] = (stat.S_IFREG, stat.S_IFDIR),
) -> None:
    """Change the permission bits of a file or a directory of this account, as `at.set_mode`."""
    with named(path.parent), at.parent(top, path) as (directory, name):
        at.set_mode(directory, name, change, kinds=kinds)


def by_directory(names: Iterable[str]) -> dict[str, list[str]]:
    """Paths in a tree by their directory, so that each is opened once; directories may end with a slash.

    The contents of a directory come before the directory itself.
    """
    parts: dict[str, list[str]] = {}
    for path in names:
        directory, _, name = path.rstrip("/").rpartition("/")
        parts.setdefault(directory, []).append(name)
    return {directory: parts[directory] for directory in sorted(parts, key=len, reverse=True)}
