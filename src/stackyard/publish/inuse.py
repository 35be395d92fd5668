"""What may be in use: by whom, and what could not be seen. Whoever is found holds a removal back.

- A note of a process or of a batch job (`yard.uses`), in the yard or in that of a user.
- A process of this host that names a file of the revision.
- An extension in another yard (`yard.children`).

A process of another host that left no note is not seen, as one is that only loaded a module there.
"""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from stackyard.errors import StackyardError
from stackyard.findings import counted
from stackyard.host import clock, supervised
from stackyard.spec.models import Site
from stackyard.spec.siteyard import is_sites
from stackyard.yard import children, disk, generations, trash, uses
from stackyard.yard.folders import RevisionPaths
from stackyard.yard.layout import Yard, place_of
from stackyard.yard.same import is_same
from stackyard.yard.uses import Use

USERS_YARD = "~/.local/share/stackyard"
"""Where a user's yard is if the site names no place."""

IsOver = Callable[[str, str], bool | None]
"""Whether a job, given its scheduler and its id, has ended; None where that is not known."""


@dataclass
class Evidence:
    """Who uses what, by the place of the revision, in words; what could not be seen; the yards of others."""

    users: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    unseen: list[str] = field(default_factory=list)
    yards: list[Yard] = field(default_factory=list)

    def of(self, folder: str | Path) -> tuple[str, ...]:
        """Who may be using a revision."""
        return tuple(self.users.get(place_of(folder), ()))


@dataclass(frozen=True)
class Watch:
    """Looks for users of the revisions of a yard.

    Attributes:
        is_over: asks schedulers about jobs.
        tidy: remove the notes of uses that are over.
    """

    yard: Yard
    site: Site
    is_over: IsOver = lambda *_: None
    tidy: bool = False

    def look(self) -> Evidence:
        """Everything that can be found: notes, processes of this host, extensions in other yards."""
        found = Evidence()
        below = children.known(self.yard, self._users_yards())
        found.unseen, found.yards = below.unseen, below.yards
        self._notes(found, [self.yard, *below.yards])
        self._processes(found)
        self._extensions(found, [self.yard, *below.yards])
        return found

    def _users_yards(self) -> str:
        """Where yards of others may be; empty for a yard that others cannot read, which they cannot extend either."""
        mode = self.yard.root.stat().st_mode if self.yard.root.exists() else 0
        shared = is_sites(self.yard, self.site) or mode & (stat.S_IXOTH | stat.S_ISGID)
        return (self.site.user_yard or USERS_YARD) if shared else ""

    def look_again(self, first: Evidence) -> Evidence:
        """The notes alone, where the first look was: quick, for what began since then."""
        found = Evidence(yards=first.yards)
        self._notes(found, [self.yard, *first.yards])
        return found

    def _notes(self, found: Evidence, yards: Iterable[Yard]) -> None:
        asked, is_ours = cache(self.is_over), self._is_ours()
        for each in yards:
            try:
                for use in uses.found(each.uses):
                    paths = RevisionPaths.of(use.folder)
                    if is_ours(paths.yard):
                        if reason := standing(use, asked, self.site.removal.unseen_days):
                            found.users[place_of(paths.root)].append(reason)
                        elif self.tidy and each == self.yard:
                            uses.release(use.file)
            except OSError as error:
                found.unseen.append(f"cannot read {each.uses}: {error.strerror}")

    def _processes(self, found: Evidence) -> None:
        seen, hidden = supervised.processes(self._spellings())
        removed = {place_of(item.folder): place_of(item.origin) for item in trash.items(self.yard)}
        for process in seen:
            named = {place_of(os.fsdecode(path)) for path in process.paths}
            for place in sorted({removed.get(each, each) for each in named}):
                me = "this shell" if process.pid == os.getpid() else str(process)
                found.users[place].append(me)
        if hidden:
            found.unseen.append(f"permission denied: {counted(hidden, 'other process', 'es')} of this host")

    def _extensions(self, found: Evidence, yards: Iterable[Yard]) -> None:
        is_ours = self._is_ours()
        for base, module in children.bases(yards):
            yard, name = base.get("yard"), base.get("id")
            if isinstance(yard, str) and isinstance(name, str) and is_ours(Path(yard)):
                found.users[place_of(name)].append(f"base of {module}")

    def _spellings(self) -> set[Path]:
        """The paths by which the yard is named: now, without links, and when its revisions were published."""
        published = (RevisionPaths.of(e.folder).yard for e in generations.entries(self.yard))
        return {self.yard.root, self.yard.root.resolve(), *published}

    def _is_ours(self) -> Callable[[Path], bool]:
        """Whether a path that somebody wrote down is that of this yard."""
        known = self._spellings()

        @cache
        def is_ours(root: Path) -> bool:
            return root in known or _is_same(root, self.yard.root)

        return is_ours


def _is_same(root: Path, yard: Path) -> bool:
    """Whether a path leads to a yard. It is opened first: anybody may have written it, and its disk may hang."""
    try:
        disk.look_into(root)
        return is_same(root, yard)
    except (OSError, StackyardError):
        return False


def standing(use: Use, is_over: IsOver, unseen_days: float) -> str:
    """Why a use holds back a removal, in words; empty where it is over."""
    if use.what == "job" and use.job:
        return _of_job(use, is_over, unseen_days)
    fate = use.owner.fate
    if fate != "unknown":
        return str(use) if fate == "running" else ""
    if use.owner.before_restart:
        return ""
    if use.job:
        return _of_job(use, is_over, unseen_days)
    return _unseen(use, unseen_days)


def _of_job(use: Use, is_over: IsOver, unseen_days: float) -> str:
    over = is_over(use.scheduler, use.job)
    if over is None:
        return _unseen(use, unseen_days)
    return "" if over else str(use)


def _unseen(use: Use, unseen_days: float) -> str:
    """A use of which nothing can be said from here: it holds for some days."""
    days = use.age_s / clock.DAY_S
    return "" if days > unseen_days else f"{use}, which cannot be asked from here (noted {days:.0f} days ago)"
