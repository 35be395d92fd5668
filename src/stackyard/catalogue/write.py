"""Puts the files of a catalogue in place: complete or not at all, those with other bytes only, and never another's.

All new files are complete in a directory beside before the first one gets its name, so that a full disk changes
nothing. A process killed between two renames leaves whole pages, old and new ones; the next run completes it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from stackyard.catalogue import kept
from stackyard.catalogue.kept import Made
from stackyard.core.errors import InputError
from stackyard.core.late import dataclass
from stackyard.host.files import at
from stackyard.host.run.identity import mark
from stackyard.yard import disk
from stackyard.yard.write import atomic, within


@contextmanager
def _stage(directory: Path) -> Iterator[Path]:
    """A directory for new files on the same file system; leftovers of killed runs are removed, since we are alone."""
    own = directory / kept.OWN
    for name in disk.names(own):
        if name.startswith("new-"):
            _clear(directory, own / name)
    stage = own / f"new-{mark()}"
    try:
        within.make(directory, stage)
        yield stage
    finally:
        with suppress(OSError):
            _clear(directory, stage)


def _clear(directory: Path, tree: Path) -> None:
    with at.parent(directory, tree) as (top, name):
        at.remove_tree(top, name)


@dataclass(frozen=True)
class Difference:
    """What a run writes and removes: the new bytes by path, and the paths of stale files."""

    new: Mapping[str, bytes]
    stale: tuple[str, ...]


def difference(directory: Path, made: Made, files: Mapping[str, bytes | None]) -> Difference:
    """How a catalogue differs from the files that it should have.

    Args:
        made: its present files.
        files: by path, the bytes of each; None: as it is.

    Raises:
        InputError: a file that is not the catalogue's own has the path of one.
    """
    new = {path: data for path, data in files.items() if data is not None and _differs(directory, path, data)}
    for path in new.keys() - set(made.files):
        if os.path.lexists(directory / path):
            raise InputError(
                f"{directory / path} is not a file of the catalogue, which needs this name",
                hint="move it away, or name another directory with -o",
            )
    return Difference(new, tuple(sorted(set(made.files) - set(files))))


def put(directory: Path, made: Made, files: Collection[str], changed: Difference) -> None:
    """Put new files in place and remove stale ones.

    Args:
        made: its present files.
        files: the paths of all that it has then.

    Raises:
        StackyardError: the file system failed; on a full one nothing was changed.
    """
    new = changed.new
    if not new and not changed.stale:
        return
    with disk.during(f"writing the catalogue in {directory}"), _stage(directory) as stage:
        for number, data in enumerate(new.values()):  # not flushed: a page that a crash cut short is made again
            atomic.write_bytes(stage / str(number), data, top=directory, synced=False)
        for parent in sorted({str(Path(path).parent) for path in new}):
            within.make(directory, directory / parent)
        kept.write_made(directory, replace(made, files=tuple({*made.files, *files})))
        for number, path in enumerate(new):
            atomic.fault_point("catalogue-rename")
            within.rename(directory, stage / str(number), directory / path)
        _remove(directory, changed.stale)
        kept.write_made(directory, replace(made, files=tuple(files)))


def size_of(path: Path) -> int | None:
    """The bytes of a file; None without one."""
    try:
        return path.lstat().st_size
    except OSError:
        return None


def _differs(directory: Path, path: str, data: bytes) -> bool:
    try:
        with at.parent(directory, directory / path) as place:
            return at.read_bounded(*place, len(data))[0] != data
    except OSError:
        return True


def _remove(directory: Path, paths: Sequence[str]) -> None:
    """Remove files, and directories that this leaves empty."""
    for path in paths:
        with suppress(FileNotFoundError, NotADirectoryError):
            within.unlink(directory, directory / path)
    for parent in sorted({str(above) for path in paths for above in Path(path).parents}, key=len, reverse=True):
        if parent != ".":
            with suppress(OSError):
                within.rmdir(directory, directory / parent)
