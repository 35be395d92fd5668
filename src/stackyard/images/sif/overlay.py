"""The upper layers of a container: a revision at its path in the image, as two SquashFS files.

The first one holds the prefix as it is: of a revision that is an image the packed data are taken over, and only the
tables of the SquashFS are written again, with the directories above the prefix (mksquashfs's ``-root-becomes``). The
second one holds what differs at the new path, by `images.relocation`, and what is left out there (as character devices
0:0, by which overlayfs hides a file). Both together are the prefix that an OCI image has.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from stackyard.core.errors import StackyardError
from stackyard.host.run.command import CommandError, run, which
from stackyard.images.oci.layers import Entry
from stackyard.images.relocation import parts
from stackyard.images.relocation.paths import Moves
from stackyard.images.squashfs import file as squashfs
from stackyard.images.squashfs import within
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord

WRAP_S = 3600.0
OWN = ".stackyard"
"""The directory of the prefix for what a revision has beside it: settings, commands, the lock."""


@dataclass(frozen=True)
class Move:
    """A revision on its way into an image: its record, its path there, the container's ``/``, an empty directory."""

    record: BuildRecord
    place: str
    root: Path
    work: Path


def moves_of(record: BuildRecord, place: str) -> Moves:
    """The paths of all parts of a revision in an image."""
    return Moves.of([*parts.pairs(record, place), *((str(path), to) for path, to in _beside(record, place))])


def _beside(record: BuildRecord, place: str) -> list[tuple[Path, str]]:
    paths = RevisionPaths.of(record.path)
    own = (paths.condarc, paths.commands, paths.lock)
    return [(path, f"{place}/{OWN}/{path.name}") for path in own if path.exists()]


def pack(move: Move) -> tuple[Path, Path]:
    """Make both layers.

    Raises:
        InputError: a binary file has no room for the new path.
        MissingError: mksquashfs is missing, or the revision is an image that cannot be mounted here.
        StackyardError: the prefix cannot be packed; the disk is full.
    """
    record, work = move.record, move.work
    lower, upper = work / "prefix.sqsh", work / "changes.sqsh"
    what = f"moving {record.module} to {move.place}"
    with ThreadPoolExecutor(1) as pool:  # what reads and what packs take no time from each other on two processors
        staged = pool.submit(within.call, record.payload, stage, move, what, again=False)  # it has moved files
        _take(record, lower)
        dropped = staged.result()
    _wrap(lower, PurePosixPath(move.place), work / "above")
    squashfs.pack(
        move.root, upper, hidden=[f"{move.place}/{name}".lstrip("/") for name in dropped], level=squashfs.QUICK
    )
    return lower, upper


def _take(record: BuildRecord, file: Path) -> None:
    """Write the prefix of a revision as a SquashFS file: a copy of its image, or packed."""
    if not record.payload.is_packed:
        squashfs.pack(Path(record.prefix), file, level=squashfs.QUICK)
        return
    image = RevisionPaths.of(record.path).image
    shutil.copyfile(image, file)
    if bad := record.payload.changed(image, read=file):
        raise StackyardError(bad, hint=f"`stackyard image check {record.module}`; then deploy again")  # fmt: skip


def stage(move: Move) -> list[str]:
    """Put what differs at the new path below the container's ``/``; returns the files of the prefix to be hidden."""
    record, moves = move.record, moves_of(move.record, move.place)
    dropped: list[str] = []
    for tree, prefix in parts.relocated(record, move.place, moves, move.work):
        own = str(tree) == record.prefix
        for name in prefix.changed if own else prefix.entries:
            _put(prefix.entries[name], move.root, move.work)
        dropped += prefix.dropped if own else []
    for path, place in _beside(record, move.place):
        for source in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if source.is_file():
                target = move.root / place.lstrip("/") / source.relative_to(path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(moves.in_text(source.read_bytes()))
                shutil.copymode(source, target)
    for name in dropped:
        (move.root / move.place.lstrip("/") / name).parent.mkdir(parents=True, exist_ok=True)
    return dropped


def _put(entry: Entry, root: Path, work: Path) -> None:
    target = root / entry.name
    if entry.directory:
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if entry.target:
        target.symlink_to(entry.target)
        return
    source = Path(entry.source)
    if source.is_relative_to(work):
        source.rename(target)
    else:
        shutil.copyfile(source, target)
    target.chmod(entry.mode)


def _wrap(file: Path, prefix: PurePosixPath, work: Path) -> None:
    """Put the directories above a prefix into its SquashFS."""
    program = which("mksquashfs")
    work.mkdir()
    for below in (prefix, *_directories(prefix)):
        words = [str(program), str(work), str(file), "-root-becomes", below.name, *squashfs.APPEND]
        try:
            run(words, env={**os.environ, **squashfs.EPOCH}, timeout_s=WRAP_S)
        except CommandError as error:
            raise squashfs.failure(error, file) from error


def _directories(prefix: PurePosixPath) -> Iterable[PurePosixPath]:
    return prefix.parents[:-1]
