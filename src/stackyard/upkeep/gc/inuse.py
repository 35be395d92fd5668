"""Finds what may be in use, by whom, and which places could not be read. Any use that is found prevents removal.

- A note of a process or of a batch job (`yard.others.uses`), in the yard or in that of a user.
- A process of this host that names a file of the revision.
- An extension in another yard (`yard.others.children`); `upkeep.gc.unseen` has what holds where one cannot be looked
into.

A process on another host without a note is not found, for example one that only loaded a module.
"""

from __future__ import annotations

import os
import stat
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from stackyard.core import grammar
from stackyard.core.errors import cause
from stackyard.core.findings import counted
from stackyard.core.quoting import LONG, plain
from stackyard.host.account import reading, supervised
from stackyard.host.run import clock
from stackyard.inputs.sites.siteyard import is_sites
from stackyard.inputs.workspace import Workspace
from stackyard.upkeep.gc import unseen as unlooked
from stackyard.yard import disk
from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard, place_of
from stackyard.yard.others import basesinuse, children, uses
from stackyard.yard.others.children import BlindSpot, Child, Children
from stackyard.yard.others.same import is_same
from stackyard.yard.others.uses import Use
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.write import trash

USERS_YARD = "~/.local/share/stackyard"
"""Where a user's yard is if the site names no place."""

THIS_SHELL = "this shell"
"""The user of what the shell of this command has loaded."""

_MOST_JOBS = 500
"""Jobs of an account about which its scheduler is asked: each is a program that runs."""
IsOver = Callable[[str, str], bool | None]
"""Whether a job, given its scheduler and its id, has ended; None where that is not known."""


@dataclass
class Evidence:
    """Which revisions are used by whom, and which places could not be read.

    Attributes:
        users: descriptions of the users, by the path of the revision.
        everything: descriptions of unreadable places, which may use any revision.
        unseen: messages about the places that were not read.
        below: the yards below this one.
        extends: the roots of yards that extend revisions, each with the path of one such revision.
        extends_others: whether the yard itself extends other yards' revisions.
        bases: the number of extensions of a revision in these yards, by its name.
        began: the `basesinuse.moment` before the search, if requested.
    """

    users: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    everything: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    below: Children = field(default_factory=Children)
    extends: set[tuple[Path, str]] = field(default_factory=set)
    extends_others: bool = False
    bases: Counter[str] = field(default_factory=Counter)
    began: float | None = None

    def of(self, directory: str | Path) -> tuple[str, ...]:
        """The possible users of a revision."""
        return (*self.users.get(place_of(directory), ()), *self.everything)


@dataclass(frozen=True)
class Watch(Workspace):
    """Looks for users of the revisions of a yard.

    Attributes:
        is_over: asks a scheduler whether a job is over.
        tidy: remove the notes of ended uses, and of yards that no longer extend anything.
        despite: accounts whose notes and yards are ignored.
    """

    is_over: IsOver = lambda *_: None
    tidy: bool = False
    despite: frozenset[int] = frozenset()

    def look(self) -> Evidence:
        """Collect all evidence: notes, processes of this host, extensions in other yards."""
        evidence = Evidence(began=basesinuse.moment(self.yard) if self.tidy else None)
        evidence.below = children.known(self.yard, self._users_yards(), self.despite)
        evidence.unseen += evidence.below.unseen
        ours = _OwnPaths(self.yard)
        self._notes(evidence, ours, evidence.below.seen)
        self._processes(evidence, ours)
        self._extensions(evidence, ours)
        evidence.below.blind += [crowd for crowd in ours.crowds(str(self.yard.root)) if crowd.uid not in self.despite]
        unlooked.judge(evidence, self.yard, self.site.removal.unseen_days, tidy=self.tidy)
        return evidence

    def _users_yards(self) -> str:
        """The directory with users' yards; empty for a yard that other users cannot read or extend."""
        mode = self.yard.root.stat().st_mode if self.yard.root.exists() else 0
        shared = is_sites(self) or mode & (stat.S_IXOTH | stat.S_ISGID)
        return (self.site.user_yard or USERS_YARD) if shared else ""

    def look_again(self, first: Evidence) -> Evidence:
        """Read only the notes again, where the first search found them: a quick check for new uses."""
        evidence = Evidence(everything=first.everything)
        self._notes(evidence, _OwnPaths(self.yard), _uses_again(first.below.seen))
        return evidence

    def _notes(self, evidence: Evidence, ours: _OwnPaths, yards: Iterable[Child]) -> None:
        """Add the uses noted in this yard and in users' yards."""
        jobs, unknown = _Jobs(self.is_over), uses.UnreadNotes()
        noted: list[tuple[Use, bool]] = []
        try:
            noted = [(use, True) for use in uses.found(self.yard.uses, unknown)]
        except OSError as error:
            evidence.below.blind.append(BlindSpot(None, str(self.yard.uses), cause(error), always=True))
            evidence.unseen.append(f"cannot read {self.yard.uses}: {cause(error)}")
        noted += [(use, False) for child in yards for use in _uses_in(child)]
        # an unreadable note is a possible use of every revision of its owner, unless the caller said otherwise
        evidence.unseen += unknown.left
        unread = ((uid, why) for uid, why in unknown.unread.items() if uid not in self.despite)
        evidence.below.blind += [BlindSpot(uid, str(self.yard.uses), why, always=True) for uid, why in unread]
        ours.learn((use.uid, RevisionPaths.of(use.directory).yard) for use, _ in noted)
        # a note whose job is over is deleted, but only in this yard
        for use, is_own in noted:
            paths = RevisionPaths.of(use.directory)
            if use.uid not in self.despite and ours(paths.yard):
                if reason := standing(use, jobs.of(use.uid), self.site.removal.unseen_days):
                    evidence.users[place_of(paths.root)].append(reason)
                elif self.tidy and is_own:
                    uses.release(use.file)

    def _processes(self, evidence: Evidence, ours: _OwnPaths) -> None:
        seen, hidden = supervised.processes(ours.spellings)
        removed = {place_of(item.directory): place_of(item.origin) for item in trash.items(self.yard)}
        for process in seen:
            named = {place_of(os.fsdecode(path)) for path in process.paths}
            for place in sorted({removed.get(path, path) for path in named}):
                me = THIS_SHELL if process.pid == os.getpid() else str(process)
                evidence.users[place].append(me)
        if hidden:
            evidence.unseen.append(f"permission denied: {counted(hidden, 'other process', 'es')} of this host")

    def _extensions(self, evidence: Evidence, ours: _OwnPaths) -> None:
        own = list(children.own_bases(self.yard))
        ours.learn((os.geteuid(), Path(yard)) for yard, _, _ in own)
        for yard, name, module in own:
            if ours(Path(yard)):
                evidence.users[place_of(name)].append(f"base of {_module(module)} in {self.yard.root}")
            else:
                evidence.extends_others = True
        said = [(child, item) for child, item in evidence.below.of("base") if len(item) == 3]
        ours.learn((child.uid, Path(item[0])) for child, item in said)
        for child, (yard, name, module) in said:
            if ours(Path(yard)):
                evidence.users[place_of(name)].append(f"base of {_module(module)} in {plain(str(child.root), LONG)}")
                evidence.extends.add((child.root, place_of(name)))
                evidence.bases[place_of(name)] += 1


def _module(text: str) -> str:
    """The module name in a note that its owner wrote."""
    return text if all(grammar.LABEL.accepts(part) for part in text.split("/")) else "an extension"


def _uses_in(child: Child) -> Iterator[Use]:
    """The uses that a user's yard notes."""
    for item in child.of("use"):
        if len(item) == 3 and item[1].isdecimal() and item[2].isdecimal():
            text, age_s, uid = item
            use = uses.parsed(text, Yard(child.root).uses, int(uid), float(age_s))
            if use is not None:
                yield use


def _uses_again(seen: Iterable[Child]) -> Iterator[Child]:
    """The uses in the same yards, read a second time."""
    seen = list(seen)
    closed = [child for child in seen if child.closed]
    answers = supervised.read([(child.uid, child.root) for child in closed])
    again = dict(zip((child.root for child in closed), answers, strict=True))
    for child in seen:
        read = again[child.root] if child.closed else reading.read_yard(child.root, records=False)
        yield Child(child.root, child.uid, tuple(read.items), child.closed)


class _Jobs:
    """Asks schedulers about jobs: each job once, and a limited number for each account."""

    def __init__(self, is_over: IsOver) -> None:
        self._is_over = cache(is_over)
        self._asked: dict[int, set[tuple[str, str]]] = defaultdict(set)

    def of(self, uid: int) -> IsOver:
        """The function that asks about the jobs noted by this account; jobs beyond the limit count as unknown."""

        def is_over(scheduler: str, job: str) -> bool | None:
            jobs = self._asked[uid]
            if len(jobs) < _MOST_JOBS:
                jobs.add((scheduler, job))
            return self._is_over(scheduler, job) if (scheduler, job) in jobs else None

        return is_over


class _OwnPaths:
    """Recognises which foreign paths lead to a given yard."""

    def __init__(self, yard: Yard) -> None:
        published = (RevisionPaths.of(e.folder).yard for e in generations.entries(yard))
        self.spellings = {yard.root, yard.root.resolve(), *published}
        self._yard, self._same = yard, set[Path]()
        self._asked: dict[int, set[Path]] = defaultdict(set)

    def __call__(self, root: Path) -> bool:
        return root in self.spellings or root in self._same

    def learn(self, named: Iterable[tuple[int, Path]]) -> None:
        """Resolve the paths that accounts noted: all at once, since a disk may hang, and few for each account."""
        new = set()
        for uid, root in named:
            of = self._asked[uid]
            if root not in self.spellings and root not in of and len(of) <= reading.MOST_YARDS:
                of.add(root)
                new.add(root)
        for root, error in disk.looked_into(sorted(new)):
            if error is None and _is_same(root, self._yard.root):
                self._same.add(root)

    def crowds(self, place: str) -> list[BlindSpot]:
        """The accounts that name more yards than are read."""
        most = reading.MOST_YARDS
        over = [uid for uid, roots in self._asked.items() if len(roots) > most]
        return [BlindSpot(uid, place, f"names more than {most} yards", always=True) for uid in over]


def _is_same(root: Path, yard: Path) -> bool:
    """Whether a path leads to a yard."""
    try:
        return is_same(root, yard)
    except OSError:
        return False


def standing(use: Use, is_over: IsOver, unseen_days: float) -> str:
    """Why a use prevents a removal, as a phrase; empty if the use is over."""
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
    """The phrase for a use whose state cannot be determined here: it counts for some days."""
    days = use.age_s / clock.DAY_S
    return "" if days > unseen_days else f"{use}, which cannot be asked from here (noted {days:.0f} days ago)"
