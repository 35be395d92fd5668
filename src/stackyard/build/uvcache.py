"""Wheels in a parent's uv cache are linked (or copied) into this yard's instead of being downloaded again.

uv cannot use a second cache that it may not write to. In its cache a wheel is a pointer
(``wheels-v*/.../<name>/<file>.http`` or ``.rev``, next to a symlink) to an unpacked archive (``archive-v*/<id>``).
Both are taken over for exactly the wheels that are needed. Where the layout of another version of uv differs nothing is
found, and uv downloads: what is installed is checked by its hash in both cases.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.build.job import Job
from stackyard.host.names import canonical
from stackyard.yard import disk
from stackyard.yard.atomic import fault_point

if TYPE_CHECKING:
    from stackyard.build.pip import Wheel


def take_from_parents(job: Job, wheels: Sequence[Wheel]) -> None:
    """Add these wheels from the parents' caches to this yard's cache."""
    for parent in job.yard.lineage()[1:]:
        source = parent.cache / "uv"
        if source.is_dir():
            for wheel in wheels:
                _take(source, job.uv_cache, wheel)


def holds(cache: Path, wheel: Wheel) -> bool:
    """Whether a uv cache has a wheel of this name and version; uv itself checks whether it is the locked one."""
    return any(entry.exists() for entry in _entries(cache, wheel))


def _take(source: Path, target: Path, wheel: Wheel) -> None:
    for link in _entries(source, wheel):
        archive = (link.parent / link.readlink()).resolve()
        pointer = target / link.relative_to(source)
        if pointer.is_symlink() or not archive.is_dir():
            continue
        _adopt(archive, target / archive.relative_to(source.resolve()))
        pointer.parent.mkdir(parents=True, exist_ok=True)
        for companion in link.parent.glob(f"{_escaped(link.name)}.*"):
            if companion.suffix != ".lock":
                shutil.copy2(companion, pointer.parent / companion.name)
        fault_point("cache")
        pointer.symlink_to(link.readlink())


def _entries(cache: Path, wheel: Wheel) -> Iterator[Path]:
    """The links of one wheel: named ``<version>-<tags>`` in a directory named after the package."""
    name = canonical(wheel.name)
    for folder in (*cache.glob(f"wheels-v*/*/{name}"), *cache.glob(f"wheels-v*/*/*/{name}")):
        for entry in folder.glob(f"{_escaped(wheel.version)}-*"):
            if entry.is_symlink():
                yield entry


def _adopt(archive: Path, target: Path) -> None:
    """Link or copy an unpacked wheel into this yard's cache, whole or not at all."""
    if target.exists():
        return
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    disk.copy_tree(archive, temporary)
    fault_point("cache")
    try:
        os.replace(temporary, target)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        if not target.exists():
            raise


def _escaped(text: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", text)
