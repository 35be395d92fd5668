"""Removing the directories of leases that were not held for long, so that they do not grow with every name.

The numbers of a lease only grow while its directory exists (`stackyard.yard.write.lease`). So who removes it first
takes the lease as any other holder, and then gives the whole directory another name, in one step: who had looked into
it before finds neither what it prepared there nor the claim that it would follow, and begins again in a new directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from stackyard.host.run import clock
from stackyard.yard import disk
from stackyard.yard.layout import Yard
from stackyard.yard.write import atomic, lease, within

DAYS = 30
"""After so many days a lease that is not held is removed; much more than clocks of hosts differ."""


def idle(yard: Yard) -> list[Path]:
    """The directories of leases that are free or whose holder is gone, and have been so for `DAYS`."""
    return [folder for folder in _folders(yard) if not folder.name.startswith(".") and _is_idle(lease.latest(folder))]


def remove(folder: Path) -> bool:
    """Remove the directory of a lease, unless a process takes or holds it.

    Raises:
        StackyardError: the file system failed, or it belongs to an account that keeps you out.
    """
    last = lease.latest(folder)
    held = lease.take(folder, folder.name, last) if _is_idle(last) else None
    if held is None:
        return False
    atomic.fault_point("lease-taken")
    top = folder.parents[1]
    gone = folder.with_name(f".{folder.name}.{os.urandom(6).hex()}")
    try:
        if lease.others(folder, held):
            held.release()
            return False
        within.rename(top, folder, gone)
        atomic.fault_point("lease-aside")
    except OSError as error:
        held.release()
        raise disk.failure(error, f"removing {folder}") from error
    if lease.latest(gone).number != held.number:  # this process slept, and another one took it over
        with suppress(OSError):
            within.rename(top, gone, folder)
        return False
    with suppress(OSError):
        disk.delete_tree(gone, top)
    return True


def sweep(yard: Yard) -> None:
    """Remove what a process that was killed in `remove` left a day ago."""
    for folder in _folders(yard):
        if folder.name.startswith(".") and _age_s(folder) > clock.DAY_S:
            with suppress(OSError):
                disk.delete_tree(folder, yard.root)


def _folders(yard: Yard) -> Iterator[Path]:
    return (folder for folder in disk.entries(yard.leases) if disk.is_folder(folder))


def _is_idle(last: lease.Claim) -> bool:
    held = not last.is_free and not lease.is_abandoned(last.folder / "owner.json", last.folder / "beat")
    return not held and _age_s(last.folder.parent, last.folder, last.folder / "beat") > DAYS * clock.DAY_S


def _age_s(*paths: Path) -> float:
    """Seconds since one of these changed; none where nothing is known of it."""
    found = []
    for path in paths:
        with suppress(OSError):
            found.append(path.stat().st_mtime)
    return clock.age_s(max(found)) if found else 0.0
