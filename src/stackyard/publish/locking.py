"""The lock of a file: found beside it, solved where it is missing or stale, an error with `--locked`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stackyard.errors import InputError
from stackyard.lock import solve, text
from stackyard.lock.model import Lock
from stackyard.progress import Progress
from stackyard.spec.models import Site, Stack
from stackyard.yard import atomic
from stackyard.yard.layout import Yard


@dataclass(frozen=True)
class Locked:
    """A fresh lock with its stack, the file it belongs in, and why it was solved again (empty: it was fresh).

    `stack` is the requested one; where no version was given, it has that of the lock: the day of its solve.
    """

    stack: Stack
    lock: Lock
    path: Path
    changed: tuple[str, ...] = ()


def fresh_lock(
    stack: Stack, site: Site, yard: Yard, platforms: Sequence[str], *, only_locked: bool, progress: Progress
) -> Locked:
    """The lock of a stack, solved where it is missing or stale; nothing is written beside the file yet.

    Raises:
        InputError: with `only_locked`, where the lock is missing or stale; the message says what changed.
    """
    path = text.path_for(Path(stack.file))
    previous = text.parse(path.read_text(encoding="utf-8"), str(path)) if path.exists() else None
    reasons = ["no lock yet"]
    if previous is not None:
        as_locked = _as_locked(stack, previous)
        reasons = solve.stale(previous, as_locked, site, platforms)
        if not reasons:
            return Locked(as_locked, previous, path)
    if only_locked:
        raise InputError(
            f"the lock {path} is stale" if previous else f"lock not found: {path}",
            detail="\n".join(reasons) if previous else None,
            hint=f"{'solve again' if previous else 'write it'} with `{_command(stack)}`",
        )
    lock = solve.lock_stack(stack, site, yard, platforms, previous, progress)
    return Locked(stack, lock, path, tuple(reasons))


def _command(stack: Stack) -> str:
    """The command that writes the lock; a version that is not in a stack.yaml was given on the command line."""
    given = stack.kind != "stack" and not stack.dated
    return f"stackyard lock {stack.file}" + (f" --version {stack.variants[0].version}" if given else "")


def _as_locked(stack: Stack, lock: Lock) -> Stack:
    """A stack without a given version, with the version that its lock has."""
    versions = {v.version for v in lock.variants}
    if not stack.dated or len(versions) != 1:
        return stack
    version = versions.pop()
    variants = tuple(v.model_copy(update={"version": version}) for v in stack.variants)
    return stack.model_copy(update={"variants": variants})


def write_lock(locked: Locked, progress: Progress) -> bool:
    """Write a new lock beside its file; only a notice where that is read-only (the yard keeps a copy anyway)."""
    if not locked.changed:
        return False
    if not os.access(locked.path.parent, os.W_OK):
        progress.notice(f"{locked.path.parent} is read-only: the lock is only kept in the yard")
        return False
    atomic.write_text(locked.path, text.dump(locked.lock))
    return True
