"""Removing revisions and bringing them back, each as one step with the leases that it needs."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from stackyard.core.errors import InputError, StackyardError
from stackyard.deploy.writing import building
from stackyard.host.account import supervised
from stackyard.inputs.workspace import Workspace
from stackyard.upkeep.gc import remove
from stackyard.upkeep.gc.full_disk import despite_full
from stackyard.upkeep.gc.inuse import IsOver, Watch
from stackyard.upkeep.gc.remove import Outcome, Removal
from stackyard.upkeep.gc.unseen import LET_ROOT_LOOK
from stackyard.yard import catalogue, disk
from stackyard.yard.generation.origin import origin
from stackyard.yard.layout import Yard
from stackyard.yard.revision import revisions
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.write.trash import Item

_MOST_DIGITS = 10  # of the number of an account
_Tell = Callable[[str], None]


def watch(workspace: Workspace, is_over: IsOver, *, tidy: bool = False, despite: Collection[str] = ()) -> Watch:
    """What looks for users of a yard's revisions; it makes no cache.

    Args:
        is_over: asks the schedulers about jobs.
        despite: names of accounts whose notes and yards hold nothing back.

    Raises:
        InputError: only root may leave out an account, or no account has this name.
    """
    yard = replace(workspace.yard, account=workspace.yard.account or "")
    return Watch(workspace.site, yard, is_over, tidy, frozenset(map(_account, despite)))


def _account(name: str) -> int:
    if not supervised.is_active():
        hint = "ask root to type it; or move your extensions to another base: `stackyard rebase NAME --on REV`"
        raise InputError(f"--despite {name}: only root removes what another account may be using", hint=hint)
    try:
        return int(name) if name.isdecimal() and len(name) <= _MOST_DIGITS else pwd.getpwnam(name).pw_uid
    except KeyError:
        raise InputError(f"--despite: no such account: {name}", hint="name an account, or its number") from None


def own_revision(yard: Yard, rev: str) -> Entry:
    """The revision of a name, which must be of this yard and have its files.

    Raises:
        InputError: no such revision; it is in another yard, or removed already.
    """
    entry = catalogue.resolve(yard, rev)
    if not revisions.is_in(yard, entry.folder):
        raise InputError(
            f"cannot remove {entry.module}: it is in another yard, {entry.folder}", hint="its owner can, with --yard"
        )
    if not disk.is_there(RevisionPaths.of(entry.folder).record):
        raise InputError(f"{entry.module} is removed already", hint=f"bring it back: stackyard remove {rev} --undo")
    return entry


def remove_unused(
    looker: Watch, entries: Sequence[Entry], tell: _Tell, *, despite: Collection[str] = (), command: Sequence[str] = ()
) -> Outcome:
    """Remove those of these revisions that are unused.

    Args:
        tell: gets a sentence about what is waited for.
        despite: as `watch` has it; for the reason in the history.

    Raises:
        StackyardError: the yard cannot be written to, or the generation without them cannot be published.
    """
    reason = ", ".join([f"remove {', '.join(e.module for e in entries)}", *(f"despite {name}" for name in despite)])

    def act() -> Outcome:
        with building(looker, {entry.stack for entry in entries}, on_wait=tell):
            return Removal(looker, origin(command), os.urandom(6).hex(), reason).revisions(entries)

    return despite_full(looker.yard, act, tell)


def kept_error(outcome: Outcome, revs: Sequence[str]) -> StackyardError | None:
    """What is said of revisions that were to be removed and are kept; None where all are removed."""
    if not outcome.kept:
        return None
    hint = "try again once it is no longer used; see above"
    if outcome.blind:
        despite_it = f"stackyard remove {' '.join(revs)} --despite ACCOUNT"
        hint = despite_it if supervised.is_active() else f"{LET_ROOT_LOOK}; or, as root: {despite_it}"
    return StackyardError(f"not removed: {', '.join(outcome.kept)}", hint=hint)


def bring_back(looker: Watch, items: Sequence[Item], tell: _Tell, *, command: Sequence[str] = ()) -> Outcome:
    """Bring back what is in the trash.

    Args:
        tell: gets a sentence about what is waited for.

    Raises:
        StackyardError: the yard cannot be written to; what cannot be moved back is in the outcome.
    """
    stacks = {item.what.module.partition("/")[0] for item in items if item.what.module}
    with building(looker, stacks, on_wait=tell):
        return remove.bring_back(looker, items, origin(command))
