"""``stackyard gc``: remove unused revisions, failed builds and cache entries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Protocol

import click

from stackyard.cli.catalogued import catalogued
from stackyard.cli.context import Context
from stackyard.cli.help import verb
from stackyard.cli.output import echo, show_json, show_notice
from stackyard.core.errors import InputError
from stackyard.core.findings import human_bytes
from stackyard.core.quoting import LONG, plain
from stackyard.yard.api import is_directory

if TYPE_CHECKING:
    from stackyard.upkeep.api import CollectionPlan, Watch

_MOST_DIGITS = 6  # no yard has existed for as many days as a longer number has


class _DiskItem(Protocol):
    """Anything with a size: a revision, garbage, an item in the trash."""

    @property
    def bytes(self) -> int:
        """Bytes on disk."""
        ...

    @property
    def inodes(self) -> int:
        """Files and directories."""
        ...


@verb(
    ("what would go, why, and how much room that gives", "stackyard gc --dry-run"),
    ("every night; what the last five generations showed stays", "stackyard gc --keep 5"),
    ("make room where the disk is full", "stackyard gc --now"),
    ("bring back what the last collection or removal put aside", "stackyard gc --undo"),
)
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="What the last N generations showed stays.")
@click.option(
    "--unused-for", "unused_for", metavar="DAYS", help="Also revisions that were not used for so long, e.g. 180d."
)
@click.option("--now", is_flag=True, help="Delete at once; nothing of it can be brought back.")
@click.option("--undo", is_flag=True, help="Bring back what the last collection or removal put aside.")
@click.option("--dry-run", is_flag=True, help="Print what would be done; change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@catalogued
def command(
    context: Context, keep: int | None, unused_for: str | None, now: bool, undo: bool, dry_run: bool, as_json: bool
) -> None:
    """Move unused files to the trash, and delete what has been there for longer than the grace time.

    Revisions that the last generations did not show, retired ones whose time is over, interrupted builds, leftovers of
    killed processes, cache entries and interpreters that no revision needs, kept solutions that none was built from,
    modulefiles of old generations. What is in use stays and is named. Manifests of old generations are packed, leases
    that were not held for 30 days are removed. `removal:` and `cache:` of the site's file have the times and sizes.

    With --now nothing waits: what is in the trash, what is put aside, and entries of the caches that no revision
    shares, whatever their age, are deleted. It works on a full file system, and is the way to make room there.
    """
    from stackyard.cli.yard import removing
    from stackyard.upkeep.api import CollectionRules, plan_collection, why_unused

    watch = removing.watch(context, tidy=not dry_run)
    if not is_directory(watch.yard.root):
        raise InputError(f"no such yard: {watch.yard.root}", hint="choose one with --yard or $STACKYARD_HOME")
    if undo:
        _undo(context, watch, now=now, dry_run=dry_run, as_json=as_json)
        return
    keep, days = watch.site.removal.keep if keep is None else keep, watch.site.usage.keep_days
    unused = why_unused(watch.yard, _days(unused_for), days) if unused_for else lambda _: ""
    plan = plan_collection(watch, CollectionRules(keep, unused, now))
    if dry_run:
        _show_plan(watch, plan, as_json)
    else:
        _collect(context, watch, plan, as_json)


def _undo(context: Context, watch: Watch, *, now: bool, dry_run: bool, as_json: bool) -> None:
    from stackyard.cli.yard import removing
    from stackyard.upkeep.api import last_put_aside

    if now:
        raise InputError("--now and --undo exclude each other", hint="what --now deletes cannot be brought back")
    items = last_put_aside(watch.yard)
    if not items:
        hint = "what was deleted cannot be brought back: deploy its file again"
        raise InputError(f"nothing was put aside in {watch.yard.root}", hint=hint)
    removing.bring_back(context, watch, items, dry_run=dry_run, as_json=as_json)


def _collect(context: Context, watch: Watch, plan: CollectionPlan, as_json: bool) -> None:
    from stackyard.cli.yard import removing
    from stackyard.upkeep.api import collect, despite_full
    from stackyard.yard.api import origin

    act = partial(collect, watch, plan, origin(context.command))
    outcome = despite_full(watch.yard, act, show_notice)
    if as_json:
        show_json(removing.to_json(outcome))
        return
    removing.show(outcome)
    if plan.is_empty:
        echo("nothing to collect")


def _days(text: str) -> int:
    """A number of days: ``180d``, or ``26w`` for weeks."""
    unit = {"d": 1, "w": 7}.get(text[-1:], 0)
    if not unit or not text[:-1].isdecimal() or len(text) > _MOST_DIGITS:
        raise InputError(f"not a number of days: {text}", hint="write 180d, or 26w for weeks")
    return int(text[:-1]) * unit


def _show_plan(watch: Watch, plan: CollectionPlan, as_json: bool) -> None:
    from stackyard.cli.yard import removing

    if as_json:
        show_json(_to_json(watch, plan))
        return
    for doomed in plan.revisions:
        echo(f"remove {doomed.entry.module}  {_size(doomed.bytes, doomed.inodes)}  {doomed.why}")
    for garbage in plan.garbage:
        place = plain(str(garbage.path.relative_to(watch.yard.root)), LONG)
        echo(f"remove {place}  {_size(garbage.bytes, garbage.inodes)}  {garbage.why}")
    for count in plan.counts:
        place = plain(str(count.path.relative_to(watch.yard.root)), LONG)
        echo(f"delete {place}  {_size(count.bytes, count.inodes)}  {count.why}")
    for item in plan.due:
        echo(f"delete {item.what.module or plain(item.what.path, LONG)}  {_size(item.what.bytes, item.what.inodes)}")
    if plan.packed:
        echo(f"pack {removing.manifests(plan.packed)}")
    if plan.leases:
        echo(f"remove {removing.leases(plan.leases)}")
    if plan.temporaries:
        echo(f"remove {removing.temporaries(plan.temporaries)}")
    for module in plan.hide:
        echo(f"hide {module}  retired")
    for module, users in plan.kept.items():
        echo(f"keep {module}  used by {'; '.join(users)}")
    for text in _totals(plan):
        echo(text)
    for sentence in plan.unseen:
        show_notice(f"not looked at: {sentence}")


def _totals(plan: CollectionPlan) -> list[str]:
    aside: list[_DiskItem] = [*plan.revisions, *plan.garbage]
    texts = [
        f"deleted now: {_total([*(item.what for item in plan.due), *plan.counts])}",
        f"put aside, and deleted {'at once' if plan.rules.now else 'after the grace time'}: {_total(aside)}",
    ]
    if plan.cache_inodes:
        texts.append(f"in the cache, once these are deleted: {_size(plan.cache_bytes, plan.cache_inodes)}")
    if plan.waiting:
        texts.append(f"waiting in the trash: {_total(item.what for item in plan.waiting)}")
    shown = plan.due or plan.waiting or plan.packed or plan.leases
    is_something = aside or shown or plan.counts or plan.temporaries
    return texts if is_something else [*texts[2:], "nothing to collect"]


def _total(sized: Iterable[_DiskItem]) -> str:
    pairs = [(item.bytes, item.inodes) for item in sized]
    return _size(sum(size for size, _ in pairs), sum(count for _, count in pairs))


def _size(size: int, inodes: int) -> str:
    return f"{human_bytes(size)} in {inodes:,} files"


def _to_json(watch: Watch, plan: CollectionPlan) -> dict[str, object]:
    return {
        "dry_run": True,
        "revisions": [{**asdict(doomed), "entry": doomed.entry.module} for doomed in plan.revisions],
        "garbage": [
            {"path": str(g.path), "sort": g.sort, "why": g.why, "bytes": g.bytes, "inodes": g.inodes}
            for g in plan.garbage
        ],
        "counts": [{"path": str(g.path), "why": g.why, "bytes": g.bytes} for g in plan.counts],
        "pack": {str(path): freed for path, freed in plan.packed.items()},
        "leases": [str(directory) for directory in plan.leases],
        "temporaries": [str(path) for path in plan.temporaries],
        "hide": plan.hide,
        "delete": [asdict(item.what) for item in plan.due],
        "waiting": [asdict(item.what) for item in plan.waiting],
        "kept": plan.kept,
        "cache": {"bytes": plan.cache_bytes, "inodes": plan.cache_inodes},
        "unseen": plan.unseen,
        "yard": str(watch.yard.root),
    }
