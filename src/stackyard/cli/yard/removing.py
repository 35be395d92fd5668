"""Removes and restores revisions, with output, for `remove` and `gc`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stackyard.cli.context import Context
from stackyard.cli.output import echo, show_json, show_notice
from stackyard.core.errors import StackyardError
from stackyard.core.findings import counted, human_bytes, some
from stackyard.core.quoting import LONG, plain
from stackyard.yard.api import IDLE_LEASE_DAYS

if TYPE_CHECKING:
    from stackyard.upkeep.api import RemovalOutcome, Watch
    from stackyard.yard.api import TrashItem, Yard

SIZES = ("bytes", "inodes", "shared_bytes", "shared_inodes")


def watch(context: Context, *, tidy: bool = False, despite: Collection[str] = ()) -> Watch:
    """The `Watch` for this yard's revisions; it queries the schedulers about jobs.

    Args:
        despite: names of accounts whose notes and yards are ignored.
    """
    from stackyard.launch.api.asking import is_over
    from stackyard.upkeep.api import watch_yard

    return watch_yard(context.workspace(), is_over, tidy=tidy, despite=despite)


def undo(context: Context, modules: Sequence[str], *, dry_run: bool, as_json: bool) -> None:
    """Restore removed revisions by their full names."""
    from stackyard.upkeep.api import removed_revision

    looker = watch(context)
    items = [removed_revision(looker, module) for module in modules]
    bring_back(context, looker, items, dry_run=dry_run, as_json=as_json)


def bring_back(context: Context, looker: Watch, items: Sequence[TrashItem], *, dry_run: bool, as_json: bool) -> None:
    """Restore items of the trash, and show them.

    Raises:
        StackyardError: an item cannot be moved back.
    """
    from stackyard.upkeep.api import RemovalOutcome
    from stackyard.upkeep.api import bring_back as back

    outcome = RemovalOutcome(items=list(items))
    if not dry_run:
        outcome = back(looker, items, show_notice, command=context.command)
    if as_json:
        show_json({"dry_run": dry_run, **to_json(outcome)})
    else:
        for item in outcome.items:
            echo(f"{'would bring' if dry_run else 'brought'} back {item.what.module or plain(item.what.path, LONG)}")
            _tell_default(looker.yard, item)
    if outcome.kept:
        raise StackyardError("; ".join(why for reasons in outcome.kept.values() for why in reasons))


def _tell_default(yard: Yard, item: TrashItem) -> None:
    """Report if another revision has become the default since the restored one was removed."""
    from stackyard.yard.api import current_entries

    stack = item.what.module.partition("/")[0]
    default = next((e.module for e in current_entries(yard) if e.stack == stack and e.default), "")
    if item.what.pinned and default not in ("", item.what.module):
        show_notice(f"{stack} loads {default}, not {item.what.module}, which was its default when it was removed")


def show(outcome: RemovalOutcome) -> None:
    """Print what was removed, what is kept and why, and which places could not be read."""
    for word, items in (("removed", outcome.items), ("deleted", outcome.deleted)):
        for item in items:
            size = f"{human_bytes(item.what.bytes)} in {item.what.inodes:,} files"
            echo(f"{word} {item.what.module or plain(item.what.path, LONG)}  {size}")
    if outcome.counts:
        echo(f"removed {counts([path.name for path in outcome.counts])}")
    if outcome.packed:
        echo(f"packed {manifests(outcome.packed)}")
    if outcome.leases:
        echo(f"removed {leases(outcome.leases)}")
    if outcome.temporaries:
        echo(f"removed {temporaries(outcome.temporaries)}")
    for module, reasons in outcome.kept.items():
        echo(f"kept {module}: {'; '.join(reasons)}")
    for sentence in outcome.unseen:
        show_notice(f"not looked at: {sentence}")


def manifests(packed: Mapping[Path, int]) -> str:
    """The number of compressed manifests, and the bytes that this frees."""
    return f"{counted(len(packed), 'manifest')} of old generations  {human_bytes(sum(packed.values()))} freed"


def leases(directories: Sequence[Path]) -> str:
    """The number of unused leases."""
    return f"{counted(len(directories), 'lease')} not held for {IDLE_LEASE_DAYS} days"


def temporaries(paths: Sequence[Path]) -> str:
    """The number of temporary files of killed processes."""
    return f"{counted(len(paths), 'temporary file')} of killed processes"


def counts(names: Sequence[str]) -> str:
    """The files with usage counts, as a phrase."""
    return f"{counted(len(names), 'old count')} of uses: {some(names, 3)}"


def to_json(outcome: RemovalOutcome) -> dict[str, Any]:
    """An outcome as plain objects."""
    return {
        "removed": [{**asdict(item.what), "trash": str(item.directory)} for item in outcome.items],
        "deleted": [asdict(item.what) for item in outcome.deleted],
        "packed": {str(path): freed for path, freed in outcome.packed.items()},
        "leases": [str(directory) for directory in outcome.leases],
        "temporaries": [str(path) for path in outcome.temporaries],
        "counts": [str(path) for path in outcome.counts],
        "kept": outcome.kept,
        "unseen": outcome.unseen,
    }
