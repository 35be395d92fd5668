"""The directory of a study or a search: written as a whole, carried out by one process of its account."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from stackyard.core.errors import InputError, StackyardError
from stackyard.host.run.identity import account_name
from stackyard.yard import disk
from stackyard.yard.write import atomic
from stackyard.yard.write.lease import PACE, Lease, latest, lease

TAKEN_OVER_S = PACE.stale_s + 30
"""Seconds until a process on another host that fell silent counts as dead."""


@contextmanager
def new_directory(root: Path, hint: str) -> Iterator[Path]:
    """A draft of a directory, which becomes `root` once all of it is written, or is removed.

    Another process may write one to the same place: the first one counts.

    Args:
        hint: what to do where `root` is not empty.

    Raises:
        InputError: `root` is not empty.
        StackyardError: it cannot be written.
    """
    draft = atomic.temporary(root)
    try:
        yield draft
        atomic.rename_directory(draft, root)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise InputError(f"{root} is not empty", hint=hint) from error
        raise disk.failure(error, f"creating {root}") from error
    finally:
        with suppress(OSError):
            disk.delete_tree(draft, draft.parent)


def only_process(file: Path, name: str, doing: str, on_wait: Callable[[str], None]) -> AbstractContextManager[Lease]:
    """Be the one process that carries it out. A holder that may have died elsewhere is waited for.

    Args:
        file: the lease.
        name: what is held, for those that wait for it.
        doing: what another process does with it: ``STUDY is being measured``.

    Raises:
        StackyardError: another process holds it, on this host or another one.
    """
    holder = latest(file)
    if holder.owner and holder.owner.fate == "running":
        raise StackyardError(
            f"{doing} by {holder}",
            hint="wait for it: `stackyard report` shows what there is; or stop it, and continue then",
        )
    return lease(file, name, wait_s=TAKEN_OVER_S, on_wait=on_wait)


def require_own(root: Path, file: Path, hint: str) -> None:
    """Raise InputError for a directory of another account, whose program would run under yours; `file` is in it."""
    if (owner := file.stat().st_uid) != os.geteuid():
        raise InputError(f"{root} belongs to {account_name(owner)}, who alone can continue it", hint=hint)


def free_root(name: str, program: Sequence[str], otherwise: str) -> Path:
    """``studies/NAME``, by default the program's name or `otherwise`, with a number where that exists."""
    words = [word for word in program if not word.startswith("-")] or [otherwise]
    own = name or Path(words[0]).stem
    roots = (Path("studies") / (own if number == 1 else f"{own}-{number}") for number in range(1, 10_000))
    return next(root for root in roots if not root.exists())
