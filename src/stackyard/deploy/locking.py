"""The lock of a file: read from beside it, or solved if it is missing or stale; with `--locked`, that is an error."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.core.errors import InputError, StackyardError
from stackyard.core.late import dataclass
from stackyard.core.progress import Progress
from stackyard.inputs.models import Site, Stack
from stackyard.lock import solve
from stackyard.lock.lockfile import text
from stackyard.lock.lockfile.freshness import Verdict
from stackyard.lock.lockfile.model import Lock
from stackyard.yard import checksum, disk
from stackyard.yard.layout import Yard
from stackyard.yard.write import atomic

if TYPE_CHECKING:
    from stackyard.deploy.deploy import Request


@dataclass(frozen=True)
class FreshLock:
    """A fresh lock with its stack, the file to write it to, and why it was solved again (empty: it was fresh).

    `stack` is the requested one; without a given version, it has the lock's: the day of the solve. `former` is the lock
    that this one replaces; `is_renewal`: the former lock was fresh.
    """

    stack: Stack
    lock: Lock
    path: Path
    changed: tuple[str, ...] = ()
    former: Lock | None = None
    is_renewal: bool = False


def fresh_lock(stack: Stack, request: Request, platforms: Sequence[str], progress: Progress) -> FreshLock:
    """The lock of a stack, solved if missing, stale or to be updated; it is not written beside the file yet.

    The lock beside the stack's file is authoritative: if it is deleted, the stack is solved again. For a file in a
    read-only directory, the yard keeps the lock.

    Raises:
        InputError: only existing locks are allowed, and this one is missing or stale; the message says what changed.
    """
    path, site, yard, update = text.path_for(Path(stack.file)), request.site, request.yard, request.update
    previous, verdict = _found(stack, site, platforms, _places(path, yard))
    reasons = verdict.reasons
    if verdict.harmless and not reasons and not update:
        lines = "; ".join(verdict.harmless)
        progress.notice(f"{path.name} satisfies the policy of the site, which has changed since it was made: {lines}")
    if previous is not None and not reasons and not update:
        return FreshLock(_as_locked(stack, previous), previous, path)
    if request.only_locked:
        raise InputError(
            f"the lock {path} is stale" if previous else f"lock not found: {path}",
            detail="\n".join(reasons) if previous else None,
            hint=f"{'solve again' if previous else 'write it'} with `{_command(stack)}`",
        )
    as_locked = _as_locked(stack, previous) if previous else stack
    kept_by = () if update else _sharing(path, yard)
    lock = solve.lock_stack(as_locked, site, yard, platforms, previous, progress, update=update, kept_by=kept_by)
    if previous is not None and lock.variants == previous.variants:
        return FreshLock(as_locked, previous, path)
    return FreshLock(stack, _of_today(lock, stack), path, reasons or (update.shown,), previous, is_renewal=not reasons)


def _of_today(lock: Lock, stack: Stack) -> Lock:
    """A new lock of a stack without a given version: its version is the day of its solve."""
    if not stack.dated:
        return lock
    return replace(lock, variants=tuple(replace(v, version=stack.variants[0].version) for v in lock.variants))


def _found(stack: Stack, site: Site, platforms: Sequence[str], paths: Sequence[Path]) -> tuple[Lock | None, Verdict]:
    """The first fresh lock among the paths, else the first lock, else None; and the verdict on what makes it stale."""
    locks = list(_read(paths))
    verdicts = [(lock, solve.staleness(lock, _as_locked(stack, lock), site, platforms)) for lock in locks]
    fresh = [pair for pair in verdicts if not pair[1].reasons]
    return next(iter([*fresh, *verdicts]), (None, Verdict(("no lock yet",))))


def former_locks(stacks: Iterable[Stack], yard: Yard) -> list[Lock]:
    """The locks that these stacks have now, fresh or not."""
    return [lock for stack in stacks for lock in _read(_places(text.path_for(Path(stack.file)), yard))]


def _read(paths: Sequence[Path]) -> Iterator[Lock]:
    """The existing locks: the one beside the file first, then those that yards keep for it.

    In yards, locks of former versions have paths of local projects and files relative to the stack's file, not to the
    lock.
    """
    for path in paths:
        if disk.is_there(path):
            yield text.read(path) if path == paths[0] else text.relocated(text.read(path), paths[0].parent)


def _places(path: Path, yard: Yard) -> tuple[Path, ...]:
    """The possible paths of a lock: beside its file, and for a file in a read-only directory also in the yard."""
    return (path,) if _writable(path) else (path, yard.lock_of(path), yard.own().lock_of(path))


def _sharing(path: Path, yard: Yard) -> tuple[Yard, ...]:
    """The yards whose solutions are reused: the site's, and for a file in a read-only directory also this one."""
    return yard.above() if _writable(path) else (yard.own(), *yard.above())


def _writable(path: Path) -> bool:
    return os.access(path.parent, os.W_OK)


def _command(stack: Stack) -> str:
    """The command that writes the lock, with the version if it was given on the command line."""
    is_foreign = stack.kind != "stack" and not stack.dated
    return f"stackyard lock {stack.file}" + (f" --version {stack.variants[0].version}" if is_foreign else "")


def _as_locked(stack: Stack, lock: Lock) -> Stack:
    """A stack with the version of its lock, if none was given."""
    versions = {v.version for v in lock.variants}
    if not stack.dated or len(versions) != 1:
        return stack
    version = versions.pop()
    variants = tuple(v.model_copy(update={"version": version}) for v in stack.variants)
    return stack.model_copy(update={"variants": variants})


def write_lock(locked: FreshLock, yard: Yard, progress: Progress) -> Path | None:
    """Write a new lock beside its file, or into the yard if that directory is read-only; returns the path.

    Beside the file, the lock gets the file's permissions, not the yard's. None if the lock was fresh.

    Raises:
        StackyardError: a fresh lock in a read-only directory was to be updated: it would still take precedence.
    """
    if not locked.changed:
        return None
    if _writable(locked.path):
        readable = Path(locked.stack.file).stat().st_mode & 0o666
        atomic.write_text(locked.path, text.dump(locked.lock), mode=readable)
        return locked.path
    if locked.is_renewal and disk.is_there(locked.path):
        raise StackyardError(
            f"cannot renew {locked.path}: permission denied",
            hint=f"copy {locked.stack.file} to a directory of your own, and renew the lock of the copy",
        )
    path = yard.lock_of(locked.path)
    progress.notice(f"{locked.path.parent} is read-only: its lock is kept in {path}")
    alone = replace(locked.lock, folder="")  # it is not beside its file
    atomic.write_text(path, checksum.add(text.dump(alone)), top=yard.root)
    return path
