"""Whether only certain accounts can write to a file or to a directory above it, like sshd's StrictModes.

An account that may write to a directory can replace other accounts' files in it, unless the directory has the sticky
bit, as /tmp.
"""

from __future__ import annotations

import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from stackyard.core.late import dataclass
from stackyard.host.files import acl
from stackyard.host.files.filesystem import group_name
from stackyard.host.run.identity import account_name

_OVERFLOW = "/proc/sys/kernel/overflowuid"


@dataclass(frozen=True)
class WritablePath:
    """A file or directory that another account may write to: its owner, or by mode or ACL `entry`."""

    place: Path
    owner: int
    mode: int
    is_others: bool
    entry: str = ""

    def __str__(self) -> str:
        acl = f", ACL {self.entry}:w" if self.entry else ""
        return f"{self.place} (owner {account_name(self.owner)}, mode {self.mode:04o}{acl})"

    @property
    def remedy(self) -> str:
        """The command that closes it."""
        if self.is_others:
            return f"chown root {self.place}"
        return f"setfacl -x {self.entry} {self.place}" if self.entry else f"chmod go-w {self.place}"


def writable_by_others(file: Path, owners: Collection[int]) -> WritablePath | None:
    """The first of a file and the directories above it that another account may write to, by its mode or its POSIX ACL.

    A file and its directory may not be writable for any group; directories further up not for everybody and for no
    account that an ACL names, so that a group may share the tree that they are in.

    Args:
        owners: the numbers of accounts that may own one of them, or be named, besides root.

    Raises:
        OSError: a file cannot be read.
    """
    near = {file.parent, file.resolve(strict=True), file.resolve().parent}
    for place in _places(file):
        status = place.stat()
        path = WritablePath(place, status.st_uid, stat.S_IMODE(status.st_mode), False)
        if status.st_uid not in (0, *owners) and not _is_unknown(status.st_uid):
            return replace(path, is_others=True)
        if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX:
            continue  # names in it can only be changed by who owns them
        named = acl.writers(place)
        if entry := _entry(named, owners, is_near=place in near):
            return replace(path, entry=entry)
        groups = named.own_group if named else bool(status.st_mode & 0o020)
        if status.st_mode & 0o002 or (groups and place in near):
            return path
    return None


def _entry(named: acl.Writers | None, owners: Collection[int], *, is_near: bool) -> str:
    """The first entry of an ACL that lets another account write, or near the file another group; empty: none."""
    for uid in named.users if named else ():
        if uid not in (0, *owners) and (is_near or not _is_unknown(uid)):
            return f"user:{account_name(uid)}"
    for gid in named.groups if named and is_near else ():
        return f"group:{group_name(gid)}"
    return ""


def _places(file: Path) -> Iterator[Path]:
    """The file, and every directory on the way to it: by its path, and through links."""
    real = file.resolve(strict=True)
    yield from dict.fromkeys((real, file.absolute().parent, real.parent, *file.absolute().parents, *real.parents))


def _is_unknown(uid: int) -> bool:
    """Whether an owner is unknown: in a user namespace, root and all unmapped accounts have one id."""
    return bool(uid) and not _sees_root() and str(uid) == Path(_OVERFLOW).read_text(encoding="ascii").strip()


def _sees_root() -> bool:
    """Whether the machine's root has id 0 here."""
    try:
        rows = [line.split() for line in Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()]
    except OSError:
        return True
    return any(row[:2] == ["0", "0"] for row in rows) or not rows


def owners_of(paths: Iterable[str]) -> tuple[int, ...]:
    """The owners of some files, without duplicates and unreadable files."""
    owners: dict[int, None] = {}
    for path in paths:
        with suppress(OSError):
            owners[Path(path).stat().st_uid] = None
    return tuple(owners)
