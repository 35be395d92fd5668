"""The entries of the next generation: what is published now, what joins it, and the labels of each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from stackyard.publish import names
from stackyard.publish.labels import labels
from stackyard.publish.plan import Task
from stackyard.spec.models import Site
from stackyard.yard import generations
from stackyard.yard.layout import Yard
from stackyard.yard.record import Entry, now


def present(yard: Yard) -> dict[str, Entry]:
    """The current generation's entries whose files still exist, by module name."""
    manifest = generations.current(yard)
    return {e.module: e for e in manifest.entries if Path(e.folder).exists()} if manifest else {}


def entries_after(yard: Yard, site: Site, tasks: Iterable[Task], unverified: Collection[str] = ()) -> tuple[Entry, ...]:
    """All entries of the generation that follows the current one, with their short names.

    Args:
        tasks: the revisions that join it, and the published ones whose labels their file may have changed.
        unverified: modules among them for which a required check was skipped.

    Raises:
        InputError: two revisions would claim one name.
    """
    entries = present(yard)
    for task in tasks:
        old = entries.get(task.module) if task.action == "unchanged" else None
        entries[task.module] = replace(old, **_labelled(task, site)) if old else _new(task, site, unverified)
        entries |= _older(entries, entries[task.module])
    return names.claim(entries.values())


def relabelled(before: Mapping[str, Entry], after: Iterable[Entry]) -> set[str]:
    """The published modules whose labels or rank change in the next generation; short names do not count."""
    plain = {e.module: replace(e, aliases=(), default=False) for e in after}
    return {
        module
        for module, entry in before.items()
        if module in plain and plain[module] != replace(entry, aliases=(), default=False)
    }


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
        **_labelled(task, site),
    )


def _labelled(task: Task, site: Site) -> dict[str, Any]:
    """What a file gives a revision beside its build: its labels, and its rank among the variants."""
    if task.stack.default == task.variant.name:
        rank = len(task.stack.variants)
    elif site.modules.default == "first":
        rank = len(task.stack.variants) - 1 - task.rank
    else:
        rank = task.rank
    return {"rank": rank, **labels(task.variant)}


def _older(entries: Mapping[str, Entry], newest: Entry) -> dict[str, Entry]:
    """The older revisions of the same variant: a deprecation concerns the version, so all its revisions have it."""
    same = (newest.stack, newest.version, newest.variant)
    return {
        e.module: replace(e, deprecated=newest.deprecated)
        for e in entries.values()
        if (e.stack, e.version, e.variant) == same and e.revision < newest.revision
    }
