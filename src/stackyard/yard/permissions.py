"""The site's group and umask for everything that a build writes."""

from __future__ import annotations

import grp
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from stackyard.errors import StackyardError

_lock = threading.Lock()
_active = 0
_before = 0


class Permissions(Protocol):
    """What a site sets for the files that a build writes; the site's model has these fields."""

    @property
    def group(self) -> str:
        """The group that owns them; empty: the group of whoever builds."""

    @property
    def umask(self) -> str:
        """The umask in octal digits."""


@contextmanager
def applied(permissions: Permissions, *folders: Path) -> Iterator[None]:
    """Write with the site's umask; `folders` (created if missing) get its group, and so does what is created in them.

    The umask is that of the whole process, so builds that run at the same time must be of one site.

    Raises:
        StackyardError: the group does not exist, or you may not give files to it.
    """
    global _active, _before  # noqa: PLW0603 - the umask is global as well
    with _lock:
        if _active == 0:
            _before = os.umask(int(permissions.umask, 8))
        _active += 1
    try:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            if permissions.group:
                give_to_group(folder, permissions.group)
        yield
    finally:
        with _lock:
            _active -= 1
            if _active == 0:
                os.umask(_before)


def give_to_group(folder: Path, group: str) -> None:
    """Set a directory's group and its setgid bit, so that what is created below it gets the group too."""
    try:
        number = grp.getgrnam(group).gr_gid
    except KeyError:
        raise StackyardError(
            f"no such group on this machine: {group}", hint="see `permissions: group:` in the site's file"
        ) from None
    status = folder.stat()
    if status.st_gid == number and status.st_mode & 0o2000:
        return
    try:
        os.chown(folder, -1, number)
        folder.chmod((status.st_mode & 0o7777) | 0o2000)
    except PermissionError as error:
        raise StackyardError(
            f"cannot give {folder} to the group {group}: {error.strerror}",
            hint="join the group, or correct `permissions: group:` in the site's file",
        ) from error
