"""A writable layer over a directory: a program's writes do not affect the files below, which others share.

The kernel's overlay file system does it, in a mount namespace. It copies a file when it is first opened for writing, so
that only what a program changes is copied; `merge` then puts the changes into the directory.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.late import dataclass

_SCRIPT = Path(__file__).with_name("overlaid.py")
_OPAQUE = "trusted.overlay.opaque"


@dataclass(frozen=True)
class Layer:
    """A layer over `directory`. `place` is an empty directory on the same file system, for the layer's files."""

    directory: Path
    place: Path

    @property
    def changes(self) -> Path:
        """The changed files, with marks for removed ones."""
        return self.place / "changes"

    def argv(self, words: Sequence[str | os.PathLike[str]]) -> list[str]:
        """The command line that runs another one over the layer; makes the layer's directories."""
        work = self.place / "work"
        for directory in (self.changes, work):
            directory.mkdir(parents=True, exist_ok=True)
        shutil.copystat(self.directory, self.changes)
        start = [sys.executable, "-I", "-S", str(_SCRIPT), str(self.directory), str(self.changes), str(work), "--"]
        return [*start, *(os.fspath(word) for word in words)]

    def merge(self) -> None:
        """Apply the changes to the directory: a changed file replaces the former one, which is never modified."""
        _merge(self.changes, self.directory)


def works(directory: Path) -> bool:
    """Whether a layer works in a work directory, found by a test: a read-only file is changed, one is removed.

    Without privileges it does not: a program of an ordinary account cannot write into read-only files of the layer.
    """
    if re.search(r"[,:\\]", str(directory)):
        return False  # the mount options have their own meaning for these
    from stackyard.host.run import command

    place = directory / f".layer-{os.getpid()}"
    below = place / "below"
    try:
        below.mkdir(parents=True)
        for name in ("kept", "removed"):
            (below / name).write_text("one\n")
            (below / name).chmod(0o444)
        layer = Layer(below, place / "layer")
        done = command.run(
            layer.argv(["/bin/sh", "-c", "echo two >> kept && rm removed"]), cwd=below, timeout_s=30, check=False
        )
        untouched = (below / "kept").read_text() == "one\n" and (below / "removed").exists()
        if done.returncode == 0 and untouched:
            layer.merge()
            return (below / "kept").read_text() == "one\ntwo\n" and not (below / "removed").exists()
        return False
    except (OSError, StackyardError):
        return False
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _merge(changes: Path, target: Path) -> None:
    for entry in sorted(changes.iterdir()):
        place, status = target / entry.name, entry.lstat()
        if stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:  # the mark of something that was removed
            _remove(place)
        elif entry.is_dir() and not entry.is_symlink():
            _merge_directory(entry, place)
        else:
            _remove(place)
            _forget_origin(entry)
            entry.rename(place)


def _merge_directory(entry: Path, place: Path) -> None:
    if _is_opaque(entry) or place.is_symlink() or not place.is_dir():
        _remove(place)
        place.mkdir()
    _merge(entry, place)
    shutil.copymode(entry, place)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _is_opaque(directory: Path) -> bool:
    """Whether a directory of the layer replaces the one below, instead of being merged with it."""
    with suppress(OSError):
        return os.getxattr(directory, _OPAQUE) == b"y"
    return False


def _forget_origin(path: Path) -> None:
    """Remove the overlay file system's attributes from a copied file."""
    with suppress(OSError):
        for name in os.listxattr(path, follow_symlinks=False):
            if name.startswith("trusted.overlay."):
                os.removexattr(path, name, follow_symlinks=False)
