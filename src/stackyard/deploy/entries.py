"""The entries of the next generation: those published now, new ones, and their labels from the stacks' files.

Deploying is declarative: the revision that a file describes now counts as the newest of its variant, even if another
was published later. The other one is superseded: it stays published, with lower precedence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from stackyard.deploy.plan import Task
from stackyard.deploy.published import names
from stackyard.deploy.published.labels import labels
from stackyard.inputs.models import Site, Stack
from stackyard.yard import disk
from stackyard.yard.layout import Yard, place_of
from stackyard.yard.revision import revisions
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import now
from stackyard.yard.write import trash

NOT_SHOWN: dict[str, Any] = {"aliases": (), "default": False, "input_hash": "", "file": "", "dated": False}
"""The fields of an entry that alone are no reason for a new generation."""


def present(entries: Iterable[Entry]) -> dict[str, Entry]:
    """The entries of a generation by module name, with their state updated from the files on disk."""
    removed = cache(lambda yard: trash.removed(Yard(yard)))  # the trash is read once, and only where a file is missing
    return {e.module: _as_found(e, removed) for e in entries}


def _as_found(entry: Entry, removed: Callable[[Path], Mapping[str, RevisionPaths]]) -> Entry:
    """The entry, removed or missing if its record is in the trash or does not exist; a restored one is withdrawn.

    Raises:
        OSError: the file system failed, so it is unknown whether the file exists.
    """
    paths = RevisionPaths.of(entry.folder)
    if revisions.condition(paths) == "missing":
        in_trash = place_of(paths.root) in removed(paths.yard)
        return replace(entry, state="removed" if in_trash else "missing", pinned=False)
    return replace(entry, state="withdrawn") if entry.state in ("removed", "missing") else entry


def entries_after(
    before: Iterable[Entry], site: Site, tasks: Iterable[Task], unverified: Collection[str] = ()
) -> tuple[Entry, ...]:
    """All entries of the next generation, with their short names.

    Args:
        before: the entries of the current one.
        tasks: new revisions, published ones whose labels may have changed, and those that a parent yard publishes,
            which replace this yard's own revisions of the same variant.
        unverified: modules among them for which a required check was skipped.

    Raises:
        InputError: two revisions would claim one name.
    """
    entries = present(before)
    before_of = {module: e for module, e in entries.items() if e.is_visible}
    described = list(tasks)
    for task in described:
        if task.action == "inherited":
            continue
        old = entries.get(task.module) if task.action == "unchanged" else None
        entries[task.module] = replace(old, **_described(task, site)) if old else _new(task, site, unverified)
        entries[task.module] = _as_set(entries[task.module], before_of.get(task.module))
        entries |= _older(entries, entries[task.module])
    entries |= _superseded(entries, described)
    return names.claim(entries.values())


def kept_status(entries: Iterable[Entry], after: Iterable[Entry]) -> dict[str, str]:
    """The change of each published revision that is not built again, by module; short names do not count.

    Args:
        entries: the entries of the current generation.
        after: the entries of the next generation.

    Returns:
        updated (its labels, its rank), reinstated (it was superseded), superseded, withdrawn (a parent yard publishes
        its variant), removed or missing.
    """
    before = {e.module: e for e in entries}
    states = {e.module: _status(before[e.module], e) for e in after if e.module in before}
    return {module: status for module, status in states.items() if status}


def _status(old: Entry, new: Entry) -> str:
    if replace(old, **NOT_SHOWN) == replace(new, **NOT_SHOWN):
        return ""
    if new.state in ("missing", "removed"):
        return new.state
    if old.is_visible and new.state == "withdrawn":
        return "withdrawn"
    if old.superseded != new.superseded:
        return "superseded" if new.superseded else "reinstated"
    return "updated"


def identity(file: str) -> str:
    """The identity of a file among others of the same name: its path in its git work tree, else its absolute path."""
    path = Path(file).absolute()
    top = next((directory for directory in path.parents if disk.is_there(directory / ".git")), None)
    return str(path.relative_to(top)) if top else str(path)


def _new(task: Task, site: Site, unverified: Collection[str]) -> Entry:
    return Entry(
        stack=task.stack.name,
        version=task.record.version if task.record else task.variant.version,
        variant=task.variant.name,
        revision=task.revision,
        module=task.module,
        folder=str(task.paths.root),
        created=task.record.created if task.record else now(),
        state="unverified" if task.module in unverified else "published",
        **_described(task, site),
    )


def _as_set(entry: Entry, before: Entry | None) -> Entry:
    """Keep the settings that staff made for a published revision, also when it is verified again."""
    if before is None:
        return entry
    return replace(entry, pinned=before.pinned, retired=before.retired, successor=before.successor)


def _described(task: Task, site: Site) -> dict[str, Any]:
    """The properties that a file sets for a revision apart from its build: labels, rank, place as the newest."""
    if task.stack.default == task.variant.name:
        rank = len(task.stack.variants)
    elif site.modules.default == "first":
        rank = len(task.stack.variants) - 1 - task.rank
    else:
        rank = task.rank
    return {
        "rank": rank,
        "input_hash": task.input_hash,
        "file": identity(task.stack.file),
        "dated": task.stack.dated,
        "superseded": False,
        **labels(task.variant),
    }


def _older(entries: Mapping[str, Entry], newest: Entry) -> dict[str, Entry]:
    """The other revisions of the same variant and version, which share its deprecation."""
    same = (newest.stack, newest.version, newest.variant)
    return {
        e.module: replace(e, deprecated=newest.deprecated)
        for e in entries.values()
        if (e.stack, e.version, e.variant) == same
    }


def _superseded(entries: Mapping[str, Entry], tasks: Iterable[Task]) -> dict[str, Entry]:
    """The entries that the files of these tasks no longer describe, in their new state."""
    of_stack: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        of_stack[task.stack.name].append(task)
    return {e.module: e for name, group in of_stack.items() for e in _superseded_in(name, group, entries.values())}


def _not_asked_for(stack: Stack) -> Iterator[tuple[str, str]]:
    """Version and name of the variants that a deploy does not touch."""
    for n, variant in enumerate(stack.variants):
        if stack.chosen and n not in stack.chosen:
            yield variant.version, variant.name


def _superseded_in(name: str, tasks: Collection[Task], entries: Iterable[Entry]) -> Iterator[Entry]:
    """The superseded entries of one stack: another revision replaced them, or the file no longer has their variant."""
    lines = {(t.stack.file, t.variant.version, t.stack.dated) for t in tasks}
    files, versions = {identity(file) for file, _, _ in lines}, {version for _, version, _ in lines}
    dated = any(is_superseded for _, _, is_superseded in lines)
    variants = {variant.name for task in tasks for variant in task.stack.variants}
    own = {task.module for task in tasks if task.action != "inherited"}
    replaced = {task.variant.name for task in tasks}
    # variants that were not asked for stay as they are
    left = {key for task in tasks for key in _not_asked_for(task.stack)}
    above = {task.variant.name for task in tasks if task.action == "inherited"}
    for e in entries:
        is_of_line = e.version in versions or e.file in files or (e.dated and dated)
        if e.stack != name or e.module in own or not is_of_line or not e.is_visible or (e.version, e.variant) in left:
            continue
        if e.variant in above:
            yield replace(e, state="withdrawn")
        elif e.variant in replaced or e.variant not in variants:
            yield replace(e, superseded=True)
