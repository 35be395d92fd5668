"""Write access to a yard, with the yard's umask and group for all written files, and the leases of builds.

Building takes a lease for each stack (`building`), so that deploys of different stacks do not wait for each other.
Publishing takes none: it is short, and concurrent publications cannot lose an update (`generation.Draft.publish`). So a
rollback never waits for another build.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.late import dataclass
from stackyard.host.files import space
from stackyard.inputs.sites.siteyard import is_sites, policy
from stackyard.inputs.workspace import Workspace
from stackyard.yard import disk
from stackyard.yard.cache import caches
from stackyard.yard.layout import Yard
from stackyard.yard.others import uses
from stackyard.yard.revision.signatures import Demand, demanded_by, keep_demand
from stackyard.yard.write import lease
from stackyard.yard.write.permissions import applied, narrow


@contextmanager
def writing(workspace: Workspace) -> Iterator[None]:
    """Write with the yard's policy: in the site's yard, files are the same whichever staff account writes.

    The top directories get the policy's group and pass it on to generations, locks and caches; prefixes are set the
    same way. Directories created later inherit it from the yard itself.

    Raises:
        StackyardError: the yard cannot be created or written to, or its group cannot be set.
    """
    yard = workspace.yard
    own = policy(workspace)
    with applied(own):
        _writable(yard)
        narrow(yard.root, own)
        directories = (yard.cache, yard.generations, yard.leases, yard.locks, yard.stacks)
        with applied(own, yard.root, *(directory for directory in directories if disk.is_directory(directory))):
            if is_sites(workspace):
                uses.open_to_users(yard, own, count=workspace.site.usage.count)
            _note_demand(workspace)
            yield


def _note_demand(workspace: Workspace) -> None:
    """Note in a yard which signatures its site demands; demands of another site's file do not apply.

    A file that names no yard, such as a personal one, does not replace a note that another file made.
    """
    site = workspace.site
    policy = site.signatures
    values = (policy.allowed_signers, policy.revoked, policy.require, policy.users)
    demand = Demand(*values, site=site.file) if any(values) else None
    if is_sites(workspace) or (not site.yard and demand is not None and demanded_by(workspace.yard) in ("", site.file)):
        keep_demand(workspace.yard, demand)


@dataclass(frozen=True)
class DeployLeases:
    """The leases of a deploy."""

    yard: Yard
    leases: tuple[lease.Lease, ...]

    def check(self) -> None:
        """Raise StackyardError if another process took over one of the leases."""
        for own_lease in self.leases:
            own_lease.check()

    @property
    def is_alone(self) -> bool:
        """Whether no other process may be building in this yard."""
        mine = {own_lease.directory: own_lease for own_lease in self.leases}
        there = [
            path for path in disk.entries(self.yard.leases) if not path.name.startswith(".")
        ]  # not what is removed now
        directories = [path for path in there if disk.is_directory(path)]
        return not any(lease.others(directory, mine.get(directory)) for directory in directories)


@contextmanager
def building(
    workspace: Workspace, stacks: Iterable[str], on_wait: Callable[[str], None] | None = None
) -> Iterator[DeployLeases]:
    """`writing`, with the leases to build these stacks.

    Args:
        on_wait: called with a sentence about the process that is waited for.

    Raises:
        StackyardError: as for `writing`; or another process builds one of the stacks for too long.
    """
    with writing(workspace), ExitStack() as stack:
        caches.make(workspace.yard)
        names = sorted(set(stacks))  # always in this order: two deploys never wait for each other
        leases = [stack.enter_context(_lease(workspace.yard, name, on_wait)) for name in names]
        yield DeployLeases(workspace.yard, tuple(leases))


@contextmanager
def solving(workspace: Workspace, own: Callable[[], Path], *, dry_run: bool = False) -> Iterator[Yard]:
    """Within a ``with`` block, the yard in which a solve keeps indexes and solutions: this one, under `writing`.

    Without write access, and in a dry run, it is the yard at `own()` instead.
    """
    place = Yard(own(), workspace.yard, scratch=True) if dry_run or not _can_write(workspace.yard) else workspace.yard
    with writing(Workspace(workspace.site, place)):
        caches.make(place)
        yield place


def _can_write(yard: Yard) -> bool:
    there = next(directory for directory in (yard.root, *yard.root.parents) if os.path.lexists(directory))
    return os.access(there, os.W_OK | os.X_OK)


def _lease(yard: Yard, stack: str, on_wait: Callable[[str], None] | None) -> AbstractContextManager[lease.Lease]:
    return lease.lease(yard.lease(f"stack {stack}"), f"the stack {stack}", on_wait=on_wait)


def _writable(yard: Yard) -> None:
    hint = "choose a directory of your own with --yard or $STACKYARD_HOME"
    try:
        yard.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if space.is_full(error):
            raise disk.no_space(f"creating the yard {yard.root}") from error
        raise StackyardError(f"cannot create the yard {yard.root}: {error.strerror}", hint=hint) from error
    disk.require_mounted_for_writing(yard.root, f"cannot write to the yard {yard.root}")
    if not os.access(yard.root, os.W_OK | os.X_OK):
        raise StackyardError(f"cannot write to the yard {yard.root}: permission denied", hint=hint)
