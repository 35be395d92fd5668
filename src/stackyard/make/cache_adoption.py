"""Takes what another account or yard has in its cache into this account's: once, instead of for each revision."""

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
    """Copy a complete cache entry (hard links where they can be made), whole or not at all, and check the copy.

    Args:
        target: its path in this account's cache; what is copied gets the modes of this yard.

    Returns:
        False, and nothing is left, where the entry is damaged or may not be read.
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
    """Copy an entry and check the copy; False where it is damaged or cannot be read."""
    try:
        disk.copy_tree(source, target)
        return next(kind.audited(target), None) is None
    except OSError as error:
        if space.is_full(error):
            raise
        return False
