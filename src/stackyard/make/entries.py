"""The unpacked cache entries that a build links from: verified before use, and noted after creation.

A changed entry is discarded, and fetched or compiled again from the lock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.progress import Progress
from stackyard.yard.cache import notes
from stackyard.yard.cache.caches import CONDA, Kind, unchecked
from stackyard.yard.cache.notes import CheckedEntry
from stackyard.yard.layout import Yard

_CLOCK_NS = 2_000_000_000  # file systems and this host may differ by as much


class Entries:
    """The entries that one build uses, in the caches of its yard and of the yard's parents."""

    def __init__(self, yard: Yard, progress: Progress, *, deep: bool = False) -> None:
        self._yard, self._progress, self._deep = yard, progress, deep
        self._linked: dict[tuple[int, int], tuple[Path, str, int, int, str]] = {}
        self._used: set[Path] = set()
        self._started_ns = time.time_ns() - _CLOCK_NS

    def knows(self, entry: Path) -> bool:
        """Whether this build has checked or noted an entry."""
        return entry in self._used

    def is_good(self, kind: Kind, entry: Path, owner: Yard | None = None) -> bool:
        """Whether an entry is unchanged since its creation. A notice reports changed or unreadable files.

        Args:
            owner: the yard whose cache it is in, if that is not this build's.
        """
        if entry in self._used:
            return True
        yard = owner or self._yard
        checked, problems = self._checked(yard, kind, entry)
        if problems:
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            unread = "" if yard == self._yard else " or not readable by this account"
            self._progress.notice(f"damaged in the cache{unread}, so made again from the lock: {problems[0]}{more}")
            return False
        self._remember(entry, checked or self._note(yard, kind, entry))
        return True

    def added(self, kind: Kind, entries: Iterable[Path]) -> None:
        """Note entries that were fetched or compiled in this build.

        Raises:
            StackyardError: a link script wrote into a file of an entry.
        """
        for entry in entries:
            if entry not in self._used:
                checked = self._note(self._yard, kind, entry)
                if kind is CONDA and checked is not None:
                    self._require_as_unpacked(kind, entry, checked)
                self._remember(entry, checked)

    def hash_of(self, status: os.stat_result) -> str:
        """The hash of a file that is linked from an entry; empty for any other.

        Raises:
            StackyardError: it was changed since this build checked the entry.
        """
        linked = self._linked.get((status.st_dev, status.st_ino))
        if linked is None:
            return ""
        entry, name, size, mtime_ns, digest = linked
        if (status.st_size, status.st_mtime_ns) != (size, mtime_ns):
            raise written_through(f"{entry / name} has changed")
        return digest

    def _checked(self, yard: Yard, kind: Kind, entry: Path) -> tuple[CheckedEntry | None, tuple[str, ...]]:
        """An entry compared with its note, or with its own listing without one, and its problems."""
        try:
            checked = notes.check(yard, kind, entry, deep=self._deep)
        except OSError as error:
            return None, (unchecked(entry, error),)
        return checked, checked.problems if checked else tuple(kind.audited(entry))

    def _note(self, yard: Yard, kind: Kind, entry: Path) -> CheckedEntry | None:
        """Note one of our own entries; a parent's entry without a note is only used."""
        return notes.write(yard, kind, entry) if yard == self._yard else None

    def _remember(self, entry: Path, checked: CheckedEntry | None) -> None:
        self._used.add(entry)
        if checked is None:
            return
        for name, item in checked.contents.files.items():
            status = checked.tree.get(name)
            if item.sha256 and status is not None:
                known = (entry, name, status.st_size, status.st_mtime_ns, item.sha256)
                self._linked[status.st_dev, status.st_ino] = known

    def _require_as_unpacked(self, kind: Kind, entry: Path, checked: CheckedEntry) -> None:
        """Require that files have the archive's old times; a newer one was written after unpacking."""
        if any(item.mtime_ns > self._started_ns for item in checked.contents.files.values()):
            problems = list(kind.audited(entry))
            if problems:
                notes.place(self._yard, kind, entry).unlink(missing_ok=True)
                raise written_through(problems[0])


def written_through(problem: str) -> StackyardError:
    """The error for a build step that wrote into a shared file; `problem` is from an audit."""
    return StackyardError(
        f"a step of the build wrote into a file that other revisions share: {problem}",
        hint="a link script or a .pth file of a package did; leave that package out, then see what was damaged with "
        "`stackyard verify --deep`",
    )
