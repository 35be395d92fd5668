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
    """Write with the site's umask; `folders` (made where missing) get its group and pass it on to what is made in them.

    The umask belongs to the whole process, so builds that run at the same time must be of one site.

    Raises:
        StackyardError: the group does not exist, or this user may not give files to it.
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
    """Set a folder's group and its setgid bit, so that what is made below it belongs to the group too."""
    try:
        number = grp.getgrnam(group).gr_gid
    except KeyError:
        raise StackyardError(
            f"the group {group} does not exist on this machine", hint="see `permissions: group:` in the site's file"
        ) from None
    status = folder.stat()
    if status.st_gid == number and status.st_mode & 0o2000:
        return
    try:
        os.chown(folder, -1, number)
        folder.chmod((status.st_mode & 0o7777) | 0o2000)
    except PermissionError as error:
        raise StackyardError(
            f"{folder} cannot be given to the group {group}: {error.strerror}",
            hint="its owner must be a member of the group; see `permissions: group:` in the site's file",
        ) from error
