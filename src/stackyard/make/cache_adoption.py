"""Adopts cache entries of another account or yard into this account's cache: once, instead of for each revision."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from stackyard.host.files import space
from stackyard.make.job import Job
from stackyard.yard import disk
from stackyard.yard.cache import caches
from stackyard.yard.cache.caches import Kind
from stackyard.yard.write import atomic, within
from stackyard.yard.write.permissions import settle


def adopt(job: Job, kind: Kind, source: Path, target: Path) -> bool:
    """Copy a complete cache entry (with hard links if possible), completely or not at all, and verify the copy.

    Args:
        target: its path in this account's cache; copied files get this yard's modes.

    Returns:
        False if the entry is damaged or unreadable; no file is left.
    """
    draft, top = atomic.temporary(target), caches.trusted(job.yard)
    disk.delete_tree(draft, top)
    try:
        if not _copied(kind, source, draft):
            return False
        settle(draft, job.policy, linked=False, top=top)
        atomic.fault_point("cache")
        within.rename(top, draft, target)
    except OSError:
        if not target.exists():  # else another process was faster: its result stays
            raise
    finally:
        with suppress(OSError):
            disk.delete_tree(draft, top)
    return True


def _copied(kind: Kind, source: Path, target: Path) -> bool:
    """Copy an entry and verify the copy; False if it is damaged or unreadable."""
    try:
        disk.copy_tree(source, target)
        return next(kind.audited(target), None) is None
    except OSError as error:
        if space.is_full(error):
            raise
        return False
