"""The tree of stubs below a mounted image: while the image is not mounted, each stub starts its command in it.

PATH, ``#!`` lines, absolute paths and the modulefile name the same paths with and without the image.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from stackyard.core.change import EnvironmentChange
from stackyard.make import onhost
from stackyard.yard.kinds.payload import STUB, Prefix

LARGEST_COPY = 4 << 20
"""Bytes of a file that a variable names, up to which it is copied beside the stubs."""
_TEXT = """The files of this revision are in ../image.sqsh, which is mounted here when it is used.
The commands in bin/ do that by themselves. To look at the files: stackyard run MODULE -- ls {prefix}
"""


def make(tree: Path, stubs: Path, prefix: Path, change: EnvironmentChange) -> list[str]:
    """Make the stubs of a tree; returns sentences about variables that name files available only in the image.

    Args:
        stubs: the directory to create; it is moved to `prefix` later.
        change: the module's environment change: programs of the host also read a file that a variable names
            (SSL_CERT_FILE), so it is copied.
    """
    stubs.mkdir(parents=True)
    (stubs / STUB).write_text(text_of(prefix), encoding="utf-8")
    for directory in Prefix(tree).program_directories:
        inside = directory.relative_to(tree)
        (stubs / inside).mkdir(parents=True)
        up = "/".join([".."] * (len(inside.parts) + 1))
        for name in commands(directory):
            if onhost.is_one(directory / name):
                shutil.copy(directory / name, stubs / inside / name)
            else:
                (stubs / inside / name).symlink_to(f"{up}/launch")
    return [sentence for variable, value in _values(change) for sentence in _kept(variable, value, tree, stubs, prefix)]


def text_of(prefix: Path) -> str:
    """The text of the file that identifies a tree of stubs."""
    return _TEXT.format(prefix=prefix)


def commands(directory: Path) -> list[str]:
    """The programs of a directory: its executable files, with links followed inside."""
    names = []
    for entry in sorted(os.scandir(directory), key=lambda item: item.name) if directory.is_dir() else ():
        try:
            mode = entry.stat().st_mode
        except OSError:  # a link that leads nowhere
            continue
        if stat.S_ISREG(mode) and mode & 0o111:
            names.append(entry.name)
    return names


def _values(change: EnvironmentChange) -> Iterator[tuple[str, str]]:
    for operation in change:
        value = getattr(operation, "value", None)
        if isinstance(value, str) and hasattr(operation, "variable"):
            yield operation.variable, value


def _kept(variable: str, value: str, tree: Path, stubs: Path, prefix: Path) -> Iterator[str]:
    if not value.startswith(f"{prefix}/"):
        return
    inside = Path(value).relative_to(prefix)
    source, target = tree / inside, stubs / inside
    if source.is_file() and source.stat().st_size <= LARGEST_COPY:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            shutil.copyfile(source, target)
    elif source.exists():
        yield f"{variable} names {value}, which only programs of the stack can read: it is in the image"
