"""Removes the directories of long-unused leases, so that they do not accumulate.

The numbers of a lease only grow while its directory exists (`stackyard.yard.write.lease`). So the removing process
first takes the lease like any other holder, and then renames the whole directory in one step: a process that has read
it before finds neither its prepared claim nor the preceding one, and starts again in a new directory.
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
    """The directories of leases that have been free, or without a living holder, for `DAYS`."""
    return [
        directory
        for directory in _directories(yard)
        if not directory.name.startswith(".") and _is_idle(lease.latest(directory))
    ]


def remove(directory: Path) -> bool:
    """Remove the directory of a lease, unless a process takes or holds it.

    Raises:
        StackyardError: the file system failed, or it belongs to an account that keeps you out.
    """
    last = lease.latest(directory)
    own_lease = lease.take(directory, directory.name, last) if _is_idle(last) else None
    if own_lease is None:
        return False
    atomic.fault_point("lease-taken")
    top = directory.parents[1]
    gone = directory.with_name(f".{directory.name}.{os.urandom(6).hex()}")
    try:
        if lease.others(directory, own_lease):
            own_lease.release()
            return False
        within.rename(top, directory, gone)
        atomic.fault_point("lease-aside")
    except OSError as error:
        own_lease.release()
        raise disk.failure(error, f"removing {directory}") from error
    if lease.latest(gone).number != own_lease.number:  # this process slept, and another one took it over
        with suppress(OSError):
            within.rename(top, gone, directory)
        return False
    with suppress(OSError):
        disk.delete_tree(gone, top)
    return True


def sweep(yard: Yard) -> None:
    """Remove directories that a killed `remove` left a day ago."""
    for directory in _directories(yard):
        if directory.name.startswith(".") and _age_s(directory) > clock.DAY_S:
            with suppress(OSError):
                disk.delete_tree(directory, yard.root)


def _directories(yard: Yard) -> Iterator[Path]:
    return (directory for directory in disk.entries(yard.leases) if disk.is_directory(directory))


def _is_idle(last: lease.Claim) -> bool:
    is_held = not last.is_free and not lease.is_abandoned(last.directory / "owner.json", last.directory / "beat")
    return not is_held and _age_s(last.directory.parent, last.directory, last.directory / "beat") > DAYS * clock.DAY_S


def _age_s(*paths: Path) -> float:
    """Seconds since the latest change of these paths; 0 if unknown."""
    ages = []
    for path in paths:
        with suppress(OSError):
            ages.append(path.stat().st_mtime)
    return clock.age_s(max(ages)) if ages else 0.0
