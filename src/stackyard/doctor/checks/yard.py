"""The yard: its rights, its room, and what killed processes have left. `fsck` looks at its files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.findings import Finding, counted
from stackyard.doctor.checks import places
from stackyard.doctor.checks.base import Surroundings, said
from stackyard.images.squashfs import possible
from stackyard.upkeep.health.fsck import check as fsck
from stackyard.upkeep.health.fsck import yardwide
from stackyard.yard import disk
from stackyard.yard.generation import generations
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.write import lease, trash

_AHEAD_S = 60.0
"""How far ahead of this clock a file's time may be."""


def look_at_rights(around: Surroundings) -> Iterator[Finding]:
    """The yard cannot be found or read, is read-only, or can be changed by others."""
    try:
        workspace = around.workspace()
        yard = workspace.yard
        if not disk.is_directory(yard.root):
            return
        disk.names(yard.root)
        generations.current(yard)
    except (StackyardError, OSError) as error:
        yield said("yard-unusable", why=error, hint=getattr(error, "hint", None) or "name another one with --yard")
        return
    status = yard.root.stat()
    if os.statvfs(yard.root).f_flag & os.ST_RDONLY:
        yield said("yard-read-only", yard=yard.root)
    elif status.st_uid == os.geteuid() and not os.access(yard.root, os.W_OK | os.X_OK):
        yield said("yard-closed", yard=yard.root)
    faults = list(yardwide.rights_of(yard, fsck.rights(workspace))) if status.st_uid == os.geteuid() else []
    if faults:
        yield said("yard-rights", file=faults[0].path, text=faults[0].text, count=counted(len(faults), "place"))
    ahead = yard.modules.lstat().st_mtime - time.time() if os.path.lexists(yard.modules) else 0
    if ahead > _AHEAD_S:
        yield said("clock-behind", file=yard.modules, seconds=f"{ahead:,.0f}")
    packed = [one.module for one in generations.entries(yard) if os.path.lexists(RevisionPaths.of(one.folder).image)]
    if packed and (lacking := possible.lacking()):
        yield said("images", module=packed[0], why="; ".join(lacking))


def look_at_rest(around: Surroundings) -> Iterator[Finding]:
    """Room, leases of dead processes, the trash, and operations that were interrupted."""
    try:
        workspace = around.workspace()
        yard = workspace.yard
        if yard.root.stat().st_uid != os.geteuid():
            yield from places.of(yard.root)
            return  # what is left there is another account's
    except (StackyardError, OSError):  # said with its rights, or it does not exist yet
        return
    yield from places.of(yard.root)
    halves = trash.interrupted(yard)
    for text in (*yardwide.left_behind(yard), *([counted(len(halves), "interrupted removal")] if halves else [])):
        yield said("left-behind", text=text)
    days = workspace.site.removal.grace_days
    due = [item for item in trash.items(yard) if item.is_due(days)]
    if due:
        size = sum(item.what.bytes for item in due) / (1 << 30)
        yield said("trash-due", what=counted(len(due), "thing"), days=f"{days:g}", gib=f"{size:.1f}")
    for directory in trash.unreadable(yard):
        yield said("trash-unreadable", directory=directory)
    for directory in disk.entries(yard.leases):
        if disk.is_directory(directory):
            yield from _lease(directory)


def _lease(directory: Path) -> Iterator[Finding]:
    last = lease.latest(directory)
    if last.damage:
        yield said("lease-damaged", name=directory.name, why=last.damage)
    elif not last.is_free and lease.is_abandoned(last.directory / "owner.json", last.directory / "beat"):
        yield said("lease-dead", name=directory.name, holder=last)
