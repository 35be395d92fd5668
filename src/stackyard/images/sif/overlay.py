"""The upper layer of a container: the files of a revision at their own path, as one SquashFS.

A revision's image has only its prefix. mksquashfs's ``-root-becomes`` adds the directories above it, one after the
other, rewriting only the tables of the SquashFS and not the packed data.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.host.run.command import CommandError, run, which
from stackyard.images.squashfs import file as squashfs
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord

WRAP_S = 3600.0


@dataclass(frozen=True)
class SideFiles:
    """Files outside of the prefix, each at its absolute path inside."""

    sources: Mapping[str, Path]

    @classmethod
    def of(cls, record: BuildRecord) -> SideFiles:
        """The files that a revision uses outside its prefix: commands and settings, and an interpreter of the yard."""
        paths = RevisionPaths.of(record.path)
        own = {str(place): place for place in (paths.condarc, paths.commands, paths.lock) if place.exists()}
        return cls({**own, **interpreter(record)})


def interpreter(record: BuildRecord) -> dict[str, Path]:
    """The directory of a Python that uv installed outside of the prefix, and the links to it."""
    if record.interpreter.get("source") != "uv":
        return {}
    home = Path(record.interpreter["path"]).resolve().parent.parent
    links = (link for link in home.parent.iterdir() if link.is_symlink() and link.resolve() == home)
    return {str(path): path for path in (home, *links)}


def pack(record: BuildRecord, root: Path, beside: SideFiles, work: Path) -> Path:
    """Create the overlay.

    Args:
        root: a directory with more of the container's ``/``, e.g. ``.singularity.d``.
        work: a directory for temporary files and the result.

    Raises:
        MissingError: mksquashfs is missing.
        StackyardError: the prefix cannot be packed; the disk is full.
    """
    paths, file = RevisionPaths.of(record.path), work / "overlay.sqsh"
    if record.payload.is_packed:
        shutil.copyfile(paths.image, file)
        if bad := record.payload.changed(paths.image, read=file):
            raise StackyardError(bad, hint=f"`stackyard image check {record.module}`; then deploy again")  # fmt: skip
    else:
        squashfs.pack(paths.prefix, file)
    _wrap(file, Path(record.prefix), _levels(Path(record.prefix), root, beside, work / "levels"))
    return file


def _levels(prefix: Path, root: Path, beside: SideFiles, work: Path) -> dict[Path, Path]:
    """For each directory above the prefix, a directory with its other files."""
    levels = {}
    for number, above in enumerate(prefix.parents):
        levels[above] = work / str(number)
        levels[above].mkdir(parents=True)
    for entry in root.iterdir():
        entry.rename(levels[Path("/")] / entry.name)
    for inside, source in beside.sources.items():
        above = next(parent for parent in prefix.parents if Path(inside).is_relative_to(parent))
        _place(source, levels[above] / Path(inside).relative_to(above))
    return levels


def _place(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        target.symlink_to(source.readlink())
    elif source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copyfile(source, target)


def _wrap(file: Path, prefix: Path, levels: Mapping[Path, Path]) -> None:
    program = which("mksquashfs")
    below = prefix
    for above in prefix.parents:
        words = [str(program), str(levels[above]), str(file), "-root-becomes", below.name, *squashfs.APPEND]
        try:
            run(words, env={**os.environ, **squashfs.EPOCH}, timeout_s=WRAP_S)
        except CommandError as error:
            raise squashfs.failure(error, file) from error
        below = above
