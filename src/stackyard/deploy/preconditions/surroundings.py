"""Checks of the yard and this machine before anything is built, since a build takes an hour."""

from __future__ import annotations

import os
from pathlib import Path

from stackyard.core.errors import InputError, MissingError, StackyardError
from stackyard.core.grammar import YARD, GrammarError
from stackyard.expose.root import check_root, users_path
from stackyard.inputs.workspace import Workspace
from stackyard.yard import disk
from stackyard.yard.layout import Yard


def require(workspace: Workspace) -> None:
    """Raise unless a deploy into this yard can succeed here.

    Raises:
        InputError: the path of the yard or of its modules cannot be used, or is taken.
        MissingError: /proc is not mounted.
        StackyardError: the programs of the yard could not run: its file system is mounted noexec.
    """
    yard = workspace.yard
    for path in dict.fromkeys((yard.root, users_path(workspace))):
        _require_usable(path)
    _require_link(check_root(workspace), yard)
    if not Path("/proc/self").exists():
        raise MissingError("/proc is not mounted", hint="mount it: mount -t proc proc /proc")
    place = next(path for path in (yard.root, *yard.root.parents) if disk.is_there(path))
    if os.statvfs(place).f_flag & os.ST_NOEXEC:
        raise StackyardError(
            f"cannot use the yard {yard.root}: its file system is mounted noexec, so no program in it can run",
            hint="choose another directory with --yard or $STACKYARD_HOME",
        )


def _require_link(link: Path | None, yard: Yard) -> None:
    """Raise InputError if the public path to the modules has to be created and this account cannot do it."""
    above = next((parent for parent in link.parents if disk.is_there(parent)), None) if link else None
    if above is not None and not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"cannot create the symlink {link}: permission denied: {above}",
                         hint=f"let root create it once: ln -s {yard.modules} {link}")  # fmt: skip


def _require_usable(path: Path) -> None:
    try:
        YARD(str(path))
    except GrammarError as error:
        raise InputError(f"cannot use this path: {error}", hint=error.hint) from error
