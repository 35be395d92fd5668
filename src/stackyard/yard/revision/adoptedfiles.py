"""The contents of an adopted prefix, and later changes: by names, sizes and times. No file is read."""

from __future__ import annotations

from pathlib import Path

from stackyard.yard.revision.contents import Contents, Damage, Item, Tree, compare, scan


def look(prefix: Path) -> Tree:
    """The present files of a prefix, without bytecode, which Python may write at any time.

    Raises:
        OSError: a directory cannot be read.
    """
    return {name: status for name, status in scan(prefix).items() if not _is_bytecode(name)}


def _is_bytecode(name: str) -> bool:
    return name.endswith((".pyc", "/__pycache__/"))


def noted(prefix: Path, tree: Tree) -> Contents:
    """The sizes and times of all files, and the targets of links. No file is read."""
    items = {
        name: Item(target=str((prefix / name).readlink()))
        if (status.st_mode & 0o170000) == 0o120000
        else Item(status.st_mode & 0o7777 & ~0o222, status.st_size, status.st_mtime_ns)
        for name, status in tree.items()
        if not name.endswith("/")
    }
    return Contents(items, frozenset(name[:-1] for name in tree if name.endswith("/")))


def changed(contents: Contents, prefix: Path, tree: Tree) -> list[Damage]:
    """The files that differ from the note: removed, added, of another size, or changed since."""
    damages = list(compare(contents, prefix, tree))
    known = {damage.path for damage in damages}
    written = (
        Damage(name, "changed")
        for name, item in contents.files.items()
        if not item.target and name in tree and name not in known and tree[name].st_mtime_ns != item.mtime_ns
    )
    return [*damages, *written]
