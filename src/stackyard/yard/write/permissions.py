"""Permissions of a yard's files: one policy per yard, with the modes and groups that follow from it.

`stackyard.inputs.sites.siteyard.policy` returns a yard's policy. While it is `applied`, all files that this process and
its children create follow it; `settle` applies it to files that other programs created with their own modes.
"""

from __future__ import annotations

import errno
import grp
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.late import dataclass
from stackyard.host.files import at
from stackyard.host.run.identity import account_name

GROUP_READS = 0o027
"""The umask of a new yard that is not the site's: its group may read, others may not."""

_lock = threading.Lock()
_active = 0
_before = 0


@dataclass(frozen=True)
class Policy:
    """The umask of all files in a yard, and their group; empty: that of the directory or of the writing account."""

    umask: int
    group: str = ""


def of_directory(root: Path, site_group: str = "") -> Policy:
    """The policy of a yard without a site: this process's umask, restricted by the directory's own mode.

    Its owner can widen it like any directory: ``chmod o+rx``, or ``chmod g+ws`` for a yard that a group writes to. The
    directory's mode then defines the group's rights, independent of its members' umasks.

    Args:
        site_group: the group of the site's yard; a directory that has it did not get it from its owner.
    """
    try:
        status = root.stat()
    except FileNotFoundError:
        return Policy(own_umask() | GROUP_READS)
    is_inherited = status.st_mode & stat.S_ISGID and status.st_gid != _known(site_group)
    own = own_umask() & ~0o070 if is_inherited else own_umask()
    return Policy(own | (~status.st_mode & 0o077) | (0o002 if is_inherited else 0o022))


def own_umask() -> int:
    """The umask with which this process was started, not the applied one."""
    with _lock:
        if _active:
            return _before
        return _umask()


def file_mode() -> int:
    """The mode of a new file under the present umask, for files created as temporary ones (0600)."""
    return 0o666 & ~_umask()


def program_mode() -> int:
    """The mode of a new program, executable for all accounts that may read it."""
    return file_mode() | (file_mode() & 0o444) >> 2


def _umask() -> int:
    """The present umask, read from the kernel if possible, because setting it would affect other threads."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("Umask:")), 8)
    except (OSError, StopIteration):
        mask = os.umask(0o077)
        os.umask(mask)
        return mask


@contextmanager
def applied(policy: Policy, *directories: Path) -> Iterator[None]:
    """Apply a yard's umask; `directories` (created if missing) get its group, inherited by new files in them.

    The umask is that of the whole process, so builds that run at the same time must be of one yard.

    Raises:
        StackyardError: the group does not exist, or you may not give files to it.
    """
    global _active, _before  # noqa: PLW0603 - the umask is global as well
    with _lock:
        if _active == 0:
            _before = os.umask(policy.umask)
        _active += 1
    try:
        for directory in directories:
            directory.mkdir(parents=True, exist_ok=True)
            if policy.group:
                give_to_group(directory, policy.group)
        yield
    finally:
        with _lock:
            _active -= 1
            if _active == 0:
                os.umask(_before)


def give_to_group(directory: Path, group: str) -> None:
    """Set a directory's group and its setgid bit, so that new files below it get the group too."""
    number = _number(group)
    handle = os.open(directory, at.PASS & ~os.O_NOFOLLOW)
    try:
        status = os.fstat(handle)
        if not (status.st_gid == number and status.st_mode & stat.S_ISGID):
            at.change_open(handle, status.st_mode | stat.S_ISGID, number)
    except PermissionError as error:
        raise StackyardError(
            f"cannot give {directory} to the group {group}: {error.strerror}",
            hint=_who_gives(directory, status, group),
        ) from error
    finally:
        os.close(handle)


def _who_gives(directory: Path, status: os.stat_result, group: str) -> str:
    """The account that can give a directory to a group, as a phrase: its owner, as a member of the group."""
    if status.st_uid == os.geteuid():
        return "join the group, or correct `permissions: group:` in the site's file"
    return f"its owner, {account_name(status.st_uid)}, must run `chgrp {group} {directory} && chmod g+s {directory}`"


@dataclass(frozen=True)
class _Modes:
    """The settings for a tree: the policy's umask, the group id or None, and which files to change."""

    umask: int
    group: int | None
    linked: bool

    def wanted(self, status: os.stat_result) -> int | None:
        """The mode to set, with the group; None if no change is needed, or the file is not ours."""
        directory = stat.S_ISDIR(status.st_mode)
        if stat.S_ISLNK(status.st_mode) or os.geteuid() not in (0, status.st_uid):
            return None
        if not (self.linked or directory or status.st_nlink == 1):
            return None
        mode = (status.st_mode >> 6 & 0o7) * 0o111 & ~self.umask
        if directory:
            mode |= status.st_mode & stat.S_ISGID if self.group is None else stat.S_ISGID
        same = stat.S_IMODE(status.st_mode) == mode and self.group in (None, status.st_gid)
        return None if same else mode


def settle(tree: Path, policy: Policy, *, linked: bool = True, top: Path | None = None) -> None:
    """Apply the policy's modes and group to a tree: accounts that may read a directory may read its files.

    Packages come with the modes of the machine that they were made on, and programs create files as 0600 first. The
    owner's bits are kept; files that belong to another account, or are removed meanwhile, are skipped. Symbolic links
    are not followed, also one that another account puts in place of a file. The tree itself comes last: its mode tells
    that nothing is left to do.

    Args:
        linked: include files with several hard links, which share their mode. Only the owner of the files does that:
            the other names may be in a yard with another policy.
        top: a trusted directory above: no link below it is followed. None: the one that holds the tree.

    Raises:
        OSError: a mode or group cannot be set, e.g. /proc is not mounted.
    """
    modes = _Modes(policy.umask, _number(policy.group) if policy.group else None, linked)
    with at.parent(top or tree.parent, tree) as (above, name):
        try:
            _settle_within(at.open_directory(above, name), modes)
        except OSError as error:  # e.g. it is a link
            _unless_closed(error)
        _settle_one(name, modes, above)


def _settle_within(top: int, modes: _Modes) -> None:
    with at.closing(top):
        for directory, _, entries in at.walk(top, on_error=_unless_closed):
            for entry in entries:
                _settle_one(entry.name, modes, directory)


def _unless_closed(error: OSError) -> None:
    """Ignore the error for a directory that was removed or exchanged, is another account's, or a mount point."""
    if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.EXDEV):
        raise error


def _settle_one(name: str, modes: _Modes, directory: int) -> None:
    """Settle an entry of an open directory; it is opened only if a change is needed."""
    try:
        if modes.wanted(os.stat(name, dir_fd=directory, follow_symlinks=False)) is None:
            return
        handle = os.open(name, at.PEEK, dir_fd=directory)
    except FileNotFoundError:
        return
    with at.closing(handle):
        _settle_open(handle, modes)


def _settle_open(handle: int, modes: _Modes) -> None:
    """Settle an open file, independent of its present name."""
    status = os.fstat(handle)
    mode = modes.wanted(status)
    if mode is not None:
        at.change_open(handle, mode, None if modes.group == status.st_gid else modes.group)


def narrow(root: Path, policy: Policy) -> None:
    """Settle a whole yard of ours with write permissions that its policy forbids, left by a former version."""
    status = root.stat()
    if status.st_mode & policy.umask & 0o022 and status.st_uid == os.geteuid():
        settle(root, policy)


def _known(group: str) -> int | None:
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        return None


def _number(group: str) -> int:
    number = _known(group)
    if number is None:
        raise StackyardError(
            f"no such group on this machine: {group}", hint="see `permissions: group:` in the site's file"
        )
    return number
