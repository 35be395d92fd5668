"""`gc`: plans what can be removed, why, and how much space that frees; then removes it. Nothing in use is removed.

Removal has the two steps of `yard.write.trash`: a collection moves files to the trash, and a later one deletes them
after the grace time. Revisions are removed stack by stack, as by `remove` (`upkeep.gc.remove`); a stack that is being
built is skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.deploy.entries import present
from stackyard.deploy.writing import DeployLeases, building, writing
from stackyard.host.run import clock
from stackyard.upkeep.gc import garbage, tidy
from stackyard.upkeep.gc.garbage import Garbage
from stackyard.upkeep.gc.inuse import Evidence, Watch
from stackyard.upkeep.gc.remove import CHANGED, Outcome, Removal, publish_states, repair, size_of
from stackyard.upkeep.gc.unused import Unused
from stackyard.yard import catalogue, disk
from stackyard.yard.cache import caches, notes
from stackyard.yard.generation import generations
from stackyard.yard.generation.origin import Origin
from stackyard.yard.layout import Yard
from stackyard.yard.revision import revisions as built
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import BuildRecord
from stackyard.yard.write import atomic, idleleases, lease, temporaries, trash, within
from stackyard.yard.write.trash import Item


@dataclass(frozen=True)
class RemovalCandidate:
    """A revision to remove: the reason, its own bytes and inodes, and the shared ones."""

    entry: Entry
    why: str
    bytes: int = 0
    inodes: int = 0
    shared_bytes: int = 0
    shared_inodes: int = 0


@dataclass(frozen=True)
class Rules:
    """Which revisions a collection keeps.

    `keep`: the number of generations whose revisions stay; `unused`: why a revision counts as unused. `now`: ignore the
    grace time and the age of cache entries, and delete from the trash in the same collection.
    """

    keep: int
    unused: Unused = lambda _: ""
    now: bool = False


@dataclass
class Plan:
    """The plan of a collection.

    Attributes:
        rules: the rules that it follows.
        revisions, garbage: what is moved to the trash; `kept`: removable revisions that are in use, with their users.
        hide: retired revisions to hide.
        due: trash to delete now; `waiting`: trash to delete later.
        leases: directories of leases that have not been held for a long time.
        temporaries: temporary files of killed processes (`yard.write.temporaries`).
        packed: manifests of old generations to compress, each with the bytes that this frees.
        cache_bytes, cache_inodes: size of the cache entries that only the removed revisions use; a later collection
            removes them.
        counts: files with usage counts of past months, deleted at once.
        unseen: places that could not be read, and what is kept because of that.
        seen: the evidence of use that was found.
    """

    rules: Rules
    revisions: list[RemovalCandidate] = field(default_factory=list)
    garbage: list[Garbage] = field(default_factory=list)
    counts: list[Garbage] = field(default_factory=list)
    hide: list[str] = field(default_factory=list)
    due: list[Item] = field(default_factory=list)
    waiting: list[Item] = field(default_factory=list)
    kept: dict[str, tuple[str, ...]] = field(default_factory=dict)
    packed: dict[Path, int] = field(default_factory=dict)
    leases: list[Path] = field(default_factory=list)
    temporaries: list[Path] = field(default_factory=list)
    cache_bytes: int = 0
    cache_inodes: int = 0
    unseen: list[str] = field(default_factory=list)
    seen: Evidence = field(default_factory=Evidence)

    @property
    def is_empty(self) -> bool:
        """Whether nothing would change."""
        aside = self.revisions or self.garbage
        at_once = self.counts or self.due or self.packed or self.leases or self.temporaries
        return not (aside or self.hide or at_once)


def plan(watch: Watch, rules: Rules) -> Plan:
    """Find what can be removed. Writes nothing, and walks only garbage: records have the sizes of revisions."""
    yard, site, removal_plan = watch.yard, watch.site, Plan(rules)
    limits = site.model_copy(update={"cache": site.cache.model_copy(update={"max_age_days": 0})}) if rules.now else site
    removal_plan.seen = seen = watch.look()
    removal_plan.unseen += seen.unseen
    # revisions: those of the current generation, and those that no generation lists
    entries = present(generations.entries(yard))
    records = {record.module: record for record in _records(yard)}
    removal_plan.hide = [e.module for e in entries.values() if _is_hidden(e, watch)]
    unlisted = [catalogue.entry_of(record) for module, record in records.items() if module not in entries]
    _choose(removal_plan, watch, [*entries.values(), *unlisted], records, seen)
    # what their removal frees in the caches depends on which revisions are left
    gone = {doomed.entry.module for doomed in removal_plan.revisions}
    doomed = [records[module] for module in gone if module in records]
    left = [record for module, record in records.items() if module not in gone]
    removal_plan.cache_bytes, removal_plan.cache_inodes = garbage.freed_in_cache(yard, doomed, left)
    # what no revision owns; caches only while no other process can be building with them
    removal_plan.garbage = [
        *garbage.interrupted_builds(yard),
        *garbage.old_modules(yard, rules.keep),
    ]
    removal_plan.counts, strange = garbage.old_counts(watch)
    removal_plan.unseen += strange
    removal_plan.leases = idleleases.idle(yard)
    removal_plan.temporaries = temporaries.found(yard)
    removal_plan.packed = garbage.long_manifests(yard, rules.keep)
    if DeployLeases(yard, ()).is_alone:
        removal_plan.garbage += garbage.leftovers(yard)
        removal_plan.garbage += garbage.unshared(replace(watch, site=limits), records.values(), seen.below)
        removal_plan.garbage += garbage.solutions(watch, seen.below)
    else:
        removal_plan.unseen.append("the caches and kept locks: another process is building")
    # what was removed earlier, and is deleted after the days of grace
    for item in trash.items(yard):
        used = seen.of(item.origin) if item.what.sort == "revision" else ()
        due = (rules.now or item.is_due(site.removal.grace_days)) and not used
        (removal_plan.due if due else removal_plan.waiting).append(item)
    removal_plan.unseen += [f"{directory}: its what.json cannot be read" for directory in trash.unreadable(yard)]
    return removal_plan


def _choose(
    removal_plan: Plan, watch: Watch, entries: Sequence[Entry], records: Mapping[str, BuildRecord], seen: Evidence
) -> None:
    """Sort removable revisions into unused ones, which the plan removes, and used ones, which it keeps."""
    for entry, why in _reasons(watch, removal_plan.rules, entries):
        if users := seen.of(entry.folder):
            removal_plan.kept[entry.module] = users
        else:
            removal_plan.revisions.append(RemovalCandidate(entry, why, *size_of(records.get(entry.module))))


def _reasons(watch: Watch, rules: Rules, entries: Sequence[Entry]) -> Iterator[tuple[Entry, str]]:
    """The entries that the present publication allows to remove, each with the reason."""
    published, removal = present(generations.entries(watch.yard)), watch.site.removal
    shown = _shown_lately(watch.yard, rules.keep)
    for entry in entries:
        now = published.get(entry.module)
        why = _why(now, shown, rules, removal.remove_days) if now else _never_published(entry, removal.failed_days)
        if why:
            yield entry, why


def _why(entry: Entry, shown: set[str], rules: Rules, remove_days: float) -> str:
    if entry.pinned or entry.state in ("removed", "missing"):
        return ""
    if _days_since(entry.retired) >= remove_days:
        return f"retired since {entry.retired}"
    if entry.module not in shown:
        return "withdrawn"
    return "" if entry.default else rules.unused(entry)


def _never_published(entry: Entry, days: float) -> str:
    age = clock.now() - datetime.fromisoformat(entry.created)
    return f"built {age.days} days ago and never published" if age > timedelta(days=days) else ""


def _shown_lately(yard: Yard, keep: int) -> set[str]:
    """The revisions that one of the last generations shows; all of a generation that cannot be read."""
    last = islice(generations.readable(yard), keep + 1)
    now = generations.entries(yard)
    return {e.module for entries in (now, *(m.entries for m in last)) for e in entries if e.is_visible}


def _is_hidden(entry: Entry, watch: Watch) -> bool:
    """Whether a retired revision has been shown longer than the site's policy allows."""
    return entry.is_visible and _days_since(entry.retired) >= watch.site.removal.hide_days


def _days_since(day: str) -> float:
    """Days since a date; negative infinity for a revision that is not retired."""
    return (clock.today() - date.fromisoformat(day)).days if day else float("-inf")


def _records(yard: Yard) -> Iterator[BuildRecord]:
    """The readable records of all revisions; a revision with an unreadable record is left alone."""
    for paths in built.directories(yard):
        with suppress(StackyardError):
            record = built.readable(paths)
            if record is not None:
                yield record


# --------------------------------------------------------------------------- doing it


def collect(watch: Watch, removal_plan: Plan, made_by: Origin) -> Outcome:
    """Carry out a plan as far as it still holds. Items that cannot be removed are kept, with the reason.

    Raises:
        StackyardError: the yard cannot be written to, or a generation cannot be published.
    """
    removal = Removal(watch, made_by, os.urandom(6).hex(), "gc", partial(_spared, watch, removal_plan.rules))
    outcome = Outcome(kept=dict(removal_plan.kept), unseen=list(removal_plan.unseen))
    with writing(watch):
        _delete(removal_plan.due, outcome)
        trash.sweep(watch.yard)
    _remove(removal, removal_plan, outcome)
    if removal_plan.rules.now:
        with writing(watch):
            _delete_aside(outcome)
        removal_plan = plan(watch, removal_plan.rules)  # what only these shared with a cache is unused now
    with writing(watch):
        _hide(watch, removal_plan.hide, made_by)
        _put_aside(removal, removal_plan.garbage, outcome)
        if removal_plan.rules.now:
            _delete_aside(outcome)
        tidy.up(watch.yard, removal_plan, outcome)
    return outcome


def _spared(watch: Watch, rules: Rules, entries: Sequence[Entry]) -> dict[str, str]:
    """The revisions that no longer need to be removed: a plan is made without a lease and can be minutes old."""
    doomed = {entry.module for entry, _ in _reasons(watch, rules, entries)}
    return {entry.module: CHANGED for entry in entries if entry.module not in doomed}


def _delete(items: Sequence[Item], outcome: Outcome) -> None:
    for item in items:
        atomic.fault_point("trash-delete")
        try:
            trash.delete(item)
            outcome.deleted.append(item)
        except StackyardError as error:
            outcome.kept[str(item.directory)] = (error.message,)


def _delete_aside(outcome: Outcome) -> None:
    """Delete the items that this collection has moved to the trash."""
    items, outcome.items = outcome.items, []
    _delete(items, outcome)


def _remove(removal: Removal, removal_plan: Plan, outcome: Outcome) -> None:
    """Remove the revisions whose stacks are not being built, and finish removals that were killed."""
    watch = removal.watch
    stacks = {doomed.entry.stack for doomed in removal_plan.revisions}
    stacks |= {item.what.module.partition("/")[0] for item in trash.interrupted(watch.yard) if item.what.module}
    free = {name for name in stacks if not lease.is_occupied(watch.yard.lease(f"stack {name}"))}
    going = [doomed.entry for doomed in removal_plan.revisions if doomed.entry.stack in free]
    for doomed in removal_plan.revisions:
        if doomed.entry.stack not in free:
            outcome.kept[doomed.entry.module] = ("its stack is being built",)
    if not free:
        return
    with building(watch, free):
        repair(watch, free, removal.made_by)
        if going:
            done = removal.revisions(going)
            outcome.items += done.items
            outcome.kept |= done.kept


def _hide(watch: Watch, modules: Sequence[str], made_by: Origin) -> None:
    """Withdraw retired revisions whose display time is over."""
    late = {e.module: e for e in generations.entries(watch.yard) if e.module in modules and _is_hidden(e, watch)}
    hidden = {module: replace(e, state="withdrawn", pinned=False) for module, e in late.items()}
    publish_states(watch, hidden, f"hide {', '.join(hidden)}, retired", made_by, before=late)


def _put_aside(removal: Removal, leftovers: Sequence[Garbage], outcome: Outcome) -> None:
    """Move garbage to the trash; kept locks and cache entries are restored if a build began meanwhile."""
    moved: list[Item] = []
    for lock in _without_used_locks(removal.watch, leftovers):
        if not os.path.lexists(lock.path):
            continue  # another collection was faster
        try:
            moved.append(_put(removal, lock))
        except (StackyardError, OSError) as error:
            if isinstance(error, disk.DiskFull) and not moved:
                raise  # the yard may give up some room for it
            outcome.kept[str(lock.path)] = (str(error),)
    alone = DeployLeases(removal.watch.yard, ()).is_alone
    for item in moved:
        if not alone and item.what.path.startswith((trash.PLACES["cache"], removal.watch.yard.locks.name)):
            with suppress(StackyardError):
                trash.bring_back(item)
                trash.forget(item)
                outcome.kept[item.what.path] = ("a build has begun",)
                continue
        trash.settle(item)
        outcome.items.append(item)


def _without_used_locks(watch: Watch, leftovers: Sequence[Garbage]) -> list[Garbage]:
    """Leave out kept locks from which a deploy has built since the plan was made."""
    locks = [item for item in leftovers if item.path.is_relative_to(watch.yard.locks)]
    still = {solution.path for solution in garbage.solutions(watch, watch.look().below)} if locks else set()
    return [item for item in leftovers if item not in locks or item.path in still]


def _put(removal: Removal, item: Garbage) -> Item:
    """Move one item to the trash; for an item in a stack's directory, under the lease of that stack."""
    watch = removal.watch
    if not item.path.is_relative_to(watch.yard.stacks):
        return _moved(removal, item)
    stack = item.path.parent.name
    if lease.is_occupied(watch.yard.lease(f"stack {stack}")):
        raise StackyardError(f"{stack} is being built")
    with building(watch, [stack]):
        if all(other.path != item.path for other in garbage.interrupted_builds(watch.yard, stack)):
            raise StackyardError(f"{item.path} was built meanwhile")
        return _moved(removal, item)


def _moved(removal: Removal, thing: Garbage) -> Item:
    """Move an item to the trash and remove its companion files elsewhere."""
    beside = _companions(thing)
    what = trash.note_of(
        thing.sort,
        removal.watch.yard,
        thing.path,
        removal.batch,
        bytes=thing.bytes,
        inodes=thing.inodes,
        reason=thing.why,
    )
    item = trash.put(removal.watch.yard, thing.path, what)
    for path in beside:
        within.unlink(caches.trusted(thing.yard or removal.watch.yard), path)
    return item


def _companions(item: Garbage) -> list[Path]:
    """The note of a cache entry, and the files that its program keeps for it."""
    if item.kind is None or item.yard is None:
        return []
    kind: caches.Kind = item.kind
    noted = [notes.place(item.yard, kind, item.path)] if kind.linked else []
    return [*kind.companions(item.path), *noted]


def last_batch(yard: Yard) -> list[Item]:
    """The items that the last collection or removal moved to the trash, if they are still there.

    Raises:
        StackyardError: the last batch is that of a move, which only another move can undo.
    """
    items = trash.items(yard)
    if items and items[-1].origin.is_relative_to(yard.former().root):
        raise StackyardError(
            f"cannot bring back {items[-1].what.path}: the yard was built again where it lies, in place of it",
            hint=f"look at it in {items[-1].content}; `stackyard gc` deletes it after the grace time",
        )
    return [item for item in items if item.what.batch == items[-1].what.batch] if items else []
