"""Removing revisions that are not in use, and restoring them.

The order matters. (1) Search for users of the revision. (2) Publish a generation whose modulefile refuses to load it.
(3) Move its directory to the trash by one rename. (4) Search for users again, because a process may have noted its use
in between; if so, move it back. A starting process notes its use before it opens the files (`yard.others.uses`), so one
of the two sees the other. A kill at any point leaves the revision complete, in its place or in the trash.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from stackyard.core.errors import InputError, StackyardError
from stackyard.deploy.entries import present
from stackyard.deploy.generation import Step
from stackyard.deploy.published import names
from stackyard.deploy.published.rollback import publish
from stackyard.deploy.writing import building
from stackyard.host.account import supervised
from stackyard.inputs.workspace import Workspace
from stackyard.upkeep.gc.full_disk import despite_full
from stackyard.upkeep.gc.inuse import THIS_SHELL, Evidence, IsOver, Watch
from stackyard.upkeep.gc.unseen import LET_ROOT_LOOK
from stackyard.yard import catalogue, disk
from stackyard.yard.generation import generations
from stackyard.yard.generation.generations import Base
from stackyard.yard.generation.origin import Origin, origin
from stackyard.yard.layout import Yard
from stackyard.yard.others import moved
from stackyard.yard.revision import revisions
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import BuildRecord
from stackyard.yard.write import atomic, trash
from stackyard.yard.write.trash import Item

_MOST_DIGITS = 10  # of the number of an account
_Tell = Callable[[str], None]


@dataclass
class Outcome:
    """The result of a removal: items moved to the trash, restored, deleted, or kept with the reason, by module or path.

    `packed`: compressed manifests of old generations, each with the bytes freed; `leases`: directories of leases not
    held for a long time; `temporaries`: temporary files of killed processes; `counts`: files with usage counts.
    `blind`: why everything may be in use.
    """

    items: list[Item] = field(default_factory=list)
    deleted: list[Item] = field(default_factory=list)
    kept: dict[str, tuple[str, ...]] = field(default_factory=dict)
    temporaries: list[Path] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    packed: dict[Path, int] = field(default_factory=dict)
    leases: list[Path] = field(default_factory=list)
    counts: list[Path] = field(default_factory=list)
    blind: tuple[str, ...] = ()


@dataclass(frozen=True)
class Removal:
    """One command that removes items from a yard.

    Attributes:
        batch: the identifier that all its items share.
        reason: the reason that the history shows.
        spared: returns the unused revisions to keep, by module with the reason, given the present publication.
    """

    watch: Watch
    made_by: Origin
    batch: str
    reason: str
    spared: Callable[[Sequence[Entry]], Mapping[str, str]] = lambda _: {}

    def revisions(self, entries: Sequence[Entry]) -> Outcome:
        """Remove unused revisions. The caller has write access to the yard and holds the leases of their stacks.

        Raises:
            StackyardError: the generation without them cannot be published; nothing was removed.
        """
        repair(self.watch, {e.stack for e in entries}, self.made_by)
        seen = self.watch.look()  # this can take a while
        published = present(generations.base(self.watch.yard).entries)
        entries = [e for e in entries if disk.is_there(RevisionPaths.of(e.folder).root)]  # another removal was faster
        used_now = {e.module: used for e in entries if (used := seen.of(e.folder))}
        outcome = Outcome(kept=used_now, unseen=seen.unseen, blind=tuple(seen.everything))
        outcome.kept |= {module: (why,) for module, why in self.spared(entries).items()}
        # noted in the trash before the generation changes: a crash in between is repaired from the note
        going = {e.module: published.get(e.module, e) for e in entries if e.module not in outcome.kept}
        noted = [item for e in going.values() if (item := self._noted(e, outcome))]
        gone = {i.what.module: replace(going[i.what.module], state="removed", pinned=False) for i in noted}
        publish_states(self.watch, gone, self.reason, self.made_by, before=going)
        atomic.fault_point("remove-published")
        # another process can have published one of them again meanwhile
        changed = {e.module for e in generations.entries(self.watch.yard) if e.module in gone and e.state != "removed"}
        for item in noted:
            if item.what.module in changed:
                outcome.kept[item.what.module] = (CHANGED,)
            else:
                self._move(item, outcome)
        self._look_again(seen, outcome)
        # a use that began while they were moved: these are published again
        back = {m: going[m] for m in gone.keys() & outcome.kept.keys() - changed}
        publish_states(self.watch, back, f"kept {', '.join(outcome.kept)}", self.made_by)
        for item in noted:
            if item not in outcome.items:
                trash.forget(item)
        return outcome

    def _noted(self, entry: Entry, outcome: Outcome) -> Item | None:
        yard, paths = self.watch.yard, self.watch.yard.named(entry.folder)
        own = size_of(revisions.readable(paths))
        what = trash.note_of(
            "revision", yard, paths.root, self.batch, module=entry.module, state=entry.state, pinned=entry.pinned,
            bytes=own[0], inodes=own[1], reason=self.reason,
        )  # fmt: skip
        try:
            return trash.begin(yard, paths.root, what)
        except disk.DiskFull:
            raise  # the yard may give up some room for it
        except StackyardError as error:
            outcome.kept[entry.module] = (error.message,)
            return None

    def _move(self, item: Item, outcome: Outcome) -> None:
        try:
            trash.move(item)
            outcome.items.append(item)
        except StackyardError as error:
            outcome.kept[item.what.module] = (error.message,)

    def _look_again(self, first: Evidence, outcome: Outcome) -> None:
        """Move back revisions that a process began to use in the meantime."""
        again = self.watch.look_again(first)
        for item in list(outcome.items):
            used = again.of(item.origin)
            if used:
                trash.bring_back(item)
                outcome.items.remove(item)
                outcome.kept[item.what.module] = used
            else:
                trash.settle(item)


CHANGED = "what is published of it was changed meanwhile"


def publish_states(
    watch: Watch,
    changed: Mapping[str, Entry],
    reason: str,
    made_by: Origin,
    before: Mapping[str, Entry] = MappingProxyType({}),
) -> None:
    """Publish revisions with the state and the mark of these entries; unpublished revisions are skipped.

    Args:
        before: the entries as read earlier; an entry that has changed since is not touched.
    """

    def step(base: Base) -> Step:
        entries = present(base.entries)
        for module in changed.keys() & entries.keys():
            if _standing(entries[module]) == _standing(before.get(module, entries[module])):
                entries[module] = replace(entries[module], state=changed[module].state, pinned=changed[module].pinned)
        return Step(names.claim(entries.values()), reason)

    now = {e.module: (e.state, e.pinned) for e in generations.base(watch.yard).entries}
    if any(now.get(module, (e.state, e.pinned)) != (e.state, e.pinned) for module, e in changed.items()):
        publish(watch, step, made_by)


def _standing(entry: Entry) -> tuple[str, bool, str]:
    """The settings of a revision that people change."""
    return entry.state, entry.pinned, entry.retired


def repair(watch: Watch, stacks: Collection[str], made_by: Origin) -> None:
    """Finish a killed removal of revisions of these stacks: those still in place are published as before.

    A revision that a deploy was restoring is left to the next deploy, which verifies it. The caller has write access to
    the yard and holds the leases of the stacks.
    """
    there = [i for i in trash.interrupted(watch.yard) if i.what.module.partition("/")[0] in stacks]
    left = [item for item in there if not item.is_deployed_again]
    for item in there:
        if item.is_deployed_again:
            trash.forget(item)
    _publish_back(watch, left, f"not removed: {', '.join(i.what.module for i in left)}", made_by)


def _publish_back(watch: Watch, items: Sequence[Item], reason: str, made_by: Origin) -> None:
    """Publish restored revisions again with the state in their notes, and delete the notes."""
    noted = {item.what.module: item.what for item in items if item.what.sort == "revision"}
    entries = generations.base(watch.yard).entries  # also those of one that a killed process did not show
    others = {e.stack for e in entries if e.pinned and e.is_visible}  # a default that was set meanwhile
    back = {
        e.module: replace(e, state=noted[e.module].state, pinned=noted[e.module].pinned and e.stack not in others)
        for e in entries
        if e.module in noted and not e.is_visible
    }
    publish_states(watch, back, reason, made_by)
    for item in items:
        trash.forget(item)


def removed(watch: Watch, name: str) -> Item:
    """The revision of this name in the trash, or being restored from it; short names such as `own/1` are accepted.

    Raises:
        InputError: no revision matches, or several do.
    """
    known = [*trash.interrupted(watch.yard), *trash.items(watch.yard)]
    there = dict.fromkeys(sorted(item.what.module for item in known if item.what.module))
    meant = [name] if name in there else [m for m in there if m.startswith((f"{name}-", f"{name}/"))]
    if not meant:
        hint = f"it holds {', '.join(there) or 'no revision'}"
        raise InputError(f"{name} is not in the trash of {watch.yard.root}", hint=hint)
    if len(meant) > 1:
        raise InputError(f"{name} is the name of several removed revisions", hint=f"name one: {', '.join(meant)}")
    return next(item for item in reversed(known) if item.what.module == meant[0])


def bring_back(watch: Watch, items: Sequence[Item], tell: _Tell, *, command: Sequence[str] = ()) -> Outcome:
    """Move items from the trash back to their places, and publish the revisions among them with their former state.

    Items that cannot be moved back stay in the trash; `kept` has the reasons.

    Args:
        tell: is called with a sentence about a lease that is waited for.

    Raises:
        StackyardError: the yard cannot be written to.
    """
    with building(watch, {item.what.module.partition("/")[0] for item in items if item.what.module}, on_wait=tell):
        outcome, there = Outcome(), trash.interrupted(watch.yard)
        for item in items:
            try:
                _require_its_place(item)
                if item not in there:
                    trash.bring_back(item)
                outcome.items.append(item)
            except StackyardError as error:
                outcome.kept[item.what.module or item.what.path] = (error.message,)
        back = ", ".join(item.what.module for item in outcome.items if item.what.module)
        _publish_back(watch, outcome.items, f"bring back {back}", origin(command))
        return outcome


def _require_its_place(item: Item) -> None:
    """Raise StackyardError for a revision that was built at another path: the yard was moved since it was removed."""
    places = (item.content, item.origin) if item.what.sort == "revision" else ()
    record = next((candidate for place in places if (candidate := revisions.readable(RevisionPaths(place)))), None)
    if record is not None and moved.is_elsewhere(item.yard, record.path):
        raise StackyardError(f"cannot bring back {item.what.module}: its files name {record.path}, where the yard was "
                             "before it was moved; deploy its file again")  # fmt: skip


def size_of(record: BuildRecord | None) -> tuple[int, int, int, int]:
    """Bytes and inodes of a revision, its own and the shared ones; zeros if the record cannot be read."""
    if record is None:
        return 0, 0, 0, 0
    use = record.payload.use(record.disk)
    return use.bytes_new, use.inodes_new, use.bytes_shared, use.inodes_shared


def watch_yard(workspace: Workspace, is_over: IsOver, *, tidy: bool = False, despite: Collection[str] = ()) -> Watch:
    """The `Watch` for a yard's revisions; it creates no cache.

    Args:
        is_over: asks a scheduler whether a job is over.
        despite: names of accounts whose notes and yards are ignored.

    Raises:
        InputError: only root may leave out an account, or no account has this name.
    """
    yard = replace(workspace.yard, account=workspace.yard.account or "")
    return Watch(workspace.site, yard, is_over, tidy, frozenset(map(_account, despite)))


def _account(name: str) -> int:
    if not supervised.is_active():
        hint = "ask root to type it; or move your extensions to another base: `stackyard rebase NAME --on REV`"
        raise InputError(f"--despite {name}: only root removes what another account may be using", hint=hint)
    try:
        return int(name) if name.isdecimal() and len(name) <= _MOST_DIGITS else pwd.getpwnam(name).pw_uid
    except KeyError:
        raise InputError(f"--despite: no such account: {name}", hint="name an account, or its number") from None


def own_revision(yard: Yard, rev: str) -> Entry:
    """The revision of a name; it must be in this yard and not removed.

    Raises:
        InputError: no such revision; it is in another yard, or removed already.
    """
    entry = catalogue.resolve(yard, rev)
    if not revisions.is_in(yard, entry.folder):
        raise InputError(
            f"cannot remove {entry.module}: it is in another yard, {entry.folder}", hint="its owner can, with --yard"
        )
    if not disk.is_there(RevisionPaths.of(entry.folder).record):
        raise InputError(f"{entry.module} is removed already", hint=f"bring it back: stackyard remove {rev} --undo")
    return entry


def remove_unused(
    watch: Watch, entries: Sequence[Entry], tell: _Tell, *, despite: Collection[str] = (), command: Sequence[str] = ()
) -> Outcome:
    """Remove the unused ones of these revisions.

    Args:
        tell: is called with a sentence about a lease that is waited for.
        despite: as in `watch_yard`; the history shows it in the reason.

    Raises:
        StackyardError: the yard cannot be written to, or the generation without them cannot be published.
    """
    reason = ", ".join([f"remove {', '.join(e.module for e in entries)}", *(f"despite {name}" for name in despite)])

    def act() -> Outcome:
        with building(watch, {entry.stack for entry in entries}, on_wait=tell):
            return Removal(watch, origin(command), os.urandom(6).hex(), reason).revisions(entries)

    return despite_full(watch.yard, act, tell)


def kept_error(outcome: Outcome, revs: Sequence[str]) -> StackyardError | None:
    """The error that reports revisions which could not be removed; None if all are removed."""
    if not outcome.kept:
        return None
    loaded = [module for module, users in outcome.kept.items() if users == (THIS_SHELL,)]
    hint = "try again once it is no longer used; see above"
    if len(loaded) == len(outcome.kept):
        hint = f"module unload {' '.join(module.partition('/')[0] for module in loaded)}; then try again"
    if outcome.blind:
        despite_it = f"stackyard remove {' '.join(revs)} --despite ACCOUNT"
        hint = despite_it if supervised.is_active() else f"{LET_ROOT_LOOK}; or, as root: {despite_it}"
    return StackyardError(f"not removed: {', '.join(outcome.kept)}", hint=hint)
