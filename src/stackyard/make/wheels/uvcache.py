"""Links (or copies) wheels from a parent's uv cache into this yard's, instead of downloading them again.

uv cannot use a second, read-only cache. In its cache a wheel is a pointer
(``wheels-v*/.../<name>/<file>.http`` or ``.rev``, beside a symlink) to an unpacked archive (``archive-v*/<id>``).
Both are copied for exactly the wheels that are needed. If another version of uv has another layout, nothing is found
and uv downloads; the hash of what is installed is checked in both cases.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.core.names import canonical
from stackyard.make.cache_adoption import adopt
from stackyard.make.job import Job
from stackyard.yard.cache.caches import UV, may_look_into, searched
from stackyard.yard.layout import Yard
from stackyard.yard.write import permissions
from stackyard.yard.write.atomic import fault_point, temporary

if TYPE_CHECKING:
    from stackyard.make.wheels.install import Wheel


def take_from_parents(job: Job, wheels: Sequence[Wheel]) -> None:
    """Copy wheels from the yard's other caches and the parents' into this account's cache."""
    for other in searched(job.yard)[1:]:
        for _, link in _links(other.uv, wheels):
            _take(other, job, link)


def settle(job: Job, wheels: Sequence[Wheel]) -> None:
    """Set permissions of newly unpacked files by the yard's policy; uv gives directories its own modes."""
    for archive in _archives(job.uv_cache, wheels):
        if not job.entries.knows(archive):
            permissions.settle(archive, job.policy)


def discard_damaged(job: Job, wheels: Sequence[Wheel]) -> None:
    """Remove damaged unpacked wheels; uv fetches them again."""
    for archive in _archives(job.uv_cache, wheels):
        if not job.entries.is_good(UV, archive):
            UV.discard(archive, job.yard)


def forget(job: Job, wheels: Sequence[Wheel]) -> None:
    """Remove uv's links to the unpacked wheels, with the files beside each that record its target."""
    for _, link in list(_links(job.uv_cache, wheels)):
        for path in (*link.parent.glob(f"{_escaped(link.name)}.*"), link):
            path.unlink(missing_ok=True)


def note(job: Job, wheels: Sequence[Wheel]) -> None:
    """Note the contents of the unpacked wheels, after installation."""
    job.entries.added(UV, _archives(job.uv_cache, wheels))


def _archives(cache: Path, wheels: Sequence[Wheel]) -> list[Path]:
    """The directories to which uv unpacked these wheels."""
    archives = dict.fromkeys((link.parent / link.readlink()).resolve() for _, link in _links(cache, wheels))
    return [cache / archive.relative_to(cache.resolve()) for archive in archives if archive.is_dir()]


def held(cache: Path, wheels: Sequence[Wheel]) -> set[Wheel]:
    """The wheels that a uv cache has by name and version; uv itself verifies them against the lock."""
    return {wheel for wheel, link in _links(cache, wheels) if link.exists()}


def _take(theirs: Yard, job: Job, link: Path) -> None:
    source, target = theirs.uv, job.uv_cache
    archive = (link.parent / link.readlink()).resolve()
    pointer = target / link.relative_to(source)
    if pointer.is_symlink() or not may_look_into(archive):
        return
    inner = archive.relative_to(source.resolve())
    if not job.entries.is_good(UV, source / inner, theirs) or not _taken(job, archive, target / inner):
        return
    pointer.parent.mkdir(parents=True, exist_ok=True)
    for companion in link.parent.glob(f"{_escaped(link.name)}.*"):
        if companion.suffix != ".lock":
            _copy(companion, pointer.parent / companion.name)
    fault_point("cache")
    with suppress(FileExistsError):  # another build was faster
        pointer.symlink_to(link.readlink())


def _copy(source: Path, target: Path) -> None:
    """Copy a file atomically: uv may read it for another build."""
    part = temporary(target)
    shutil.copyfile(source, part)
    os.replace(part, target)


def _taken(job: Job, archive: Path, place: Path) -> bool:
    """Whether a valid copy of an archive is in this cache, made now or by a killed build."""
    if place.exists() and not job.entries.is_good(UV, place):
        UV.discard(place, job.yard)
    if not place.exists():
        if not adopt(job, UV, archive, place):
            return False
        job.entries.added(UV, [place])
    return True


def _links(cache: Path, wheels: Sequence[Wheel]) -> Iterator[tuple[Wheel, Path]]:
    """uv's links for these wheels: named ``<version>-<tags>``, in directories named after the packages.

    The cache may have thousands of those, so it is listed once, not once for each wheel.
    """
    directories: dict[str, list[Path]] = {canonical(wheel.name): [] for wheel in wheels}
    for directory in (*cache.glob("wheels-v*/*/*"), *cache.glob("wheels-v*/*/*/*")):
        if directory.name in directories:
            directories[directory.name].append(directory)
    for wheel in wheels:
        for directory in directories[canonical(wheel.name)]:
            for entry in directory.glob(f"{_escaped(wheel.version)}-*"):
                if entry.is_symlink():
                    yield wheel, entry


def _escaped(text: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", text)
