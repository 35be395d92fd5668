"""Who may read and write what is in a yard: one policy per yard, and the modes and groups that follow from it.

`stackyard.spec.siteyard.policy` says which policy a yard has. While it is `applied`, everything that this process and
its children create follows it; `settle` gives it to what other programs created with modes of their own.
"""

from __future__ import annotations

import grp
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stackyard.errors import StackyardError

GROUP_READS = 0o027
"""The umask of a new yard that is not the site's: its group may read, nobody else."""

_lock = threading.Lock()
_active = 0
_before = 0


@dataclass(frozen=True)
class Policy:
    """The umask of everything in a yard, and its group; an empty one: that of the directory or of who writes."""

    umask: int
    group: str = ""


def of_directory(root: Path, site_group: str = "") -> Policy:
    """The policy of a yard that no site governs: this process's umask, and no more than its own directory allows.

    Its owner widens it as any directory: ``chmod o+rx``, or ``chmod g+ws`` for a yard that a group writes to.

    Args:
        site_group: the group of the site's yard; a directory that has it did not get it from its owner.
    """
    try:
        status = root.stat()
    except FileNotFoundError:
        return Policy(own_umask() | GROUP_READS)
    asked = status.st_mode & stat.S_ISGID and status.st_gid != _known(site_group)
    return Policy(own_umask() | (~status.st_mode & 0o077) | (0o002 if asked else 0o022))


def own_umask() -> int:
    """The umask that this process was started with, whatever is applied now."""
    with _lock:
        if _active:
            return _before
        return _umask()


def file_mode() -> int:
    """The mode of a new file under the umask in force, for files that were created as temporary ones (0600)."""
    return 0o666 & ~_umask()


def _umask() -> int:
    """The umask in force; read without setting it, where the kernel shows it, since other threads create files."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("Umask:")), 8)
    except (OSError, StopIteration):
        mask = os.umask(0o077)
        os.umask(mask)
        return mask


@contextmanager
def applied(policy: Policy, *folders: Path) -> Iterator[None]:
    """Write with a yard's umask; `folders` (created if missing) get its group, and so does what is created in them.

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
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            if policy.group:
                give_to_group(folder, policy.group)
        yield
    finally:
        with _lock:
            _active -= 1
            if _active == 0:
                os.umask(_before)


def give_to_group(folder: Path, group: str) -> None:
    """Set a directory's group and its setgid bit, so that what is created below it gets the group too."""
    number = _number(group)
    status = folder.stat()
    if status.st_gid == number and status.st_mode & stat.S_ISGID:
        return
    try:
        os.chown(folder, -1, number)
        folder.chmod((status.st_mode & 0o7777) | stat.S_ISGID)
    except PermissionError as error:
        raise StackyardError(
            f"cannot give {folder} to the group {group}: {error.strerror}",
            hint="join the group, or correct `permissions: group:` in the site's file",
        ) from error


def settle(tree: Path, policy: Policy, *, linked: bool = True) -> None:
    """Give everything in a tree the policy's modes and group: who may read a directory may read what is in it.

    Packages come with the modes of the machine that they were made on, and programs create files as 0600 first. The
    owner's own bits stay; what belongs to another account stays as it is. Symbolic links are not followed.

    Args:
        linked: also files that have other names (hard links), which get the same modes. Only whoever made the files
            does that: the other names may be in a yard with another policy.
    """
    group = _number(policy.group) if policy.group else None
    _settle_one(os.fspath(tree), os.lstat(tree), policy.umask, group)
    below = [os.fspath(tree)] if tree.is_dir() and not tree.is_symlink() else []
    while below:
        with os.scandir(below.pop()) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                if linked or status.st_nlink == 1 or not stat.S_ISREG(status.st_mode):
                    _settle_one(entry.path, status, policy.umask, group)
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.path)


def _settle_one(path: str, status: os.stat_result, umask: int, group: int | None) -> None:
    if stat.S_ISLNK(status.st_mode) or os.geteuid() not in (0, status.st_uid):
        return
    mode = (status.st_mode >> 6 & 0o7) * 0o111 & ~umask
    if stat.S_ISDIR(status.st_mode):
        mode |= status.st_mode & stat.S_ISGID if group is None else stat.S_ISGID
    if group is not None and status.st_gid != group:
        os.chown(path, -1, group)
    elif stat.S_IMODE(status.st_mode) == mode:
        return
    Path(path).chmod(mode)


def narrow(root: Path, policy: Policy) -> None:
    """Settle a whole yard of ours that others may write to although its policy says no: a former version made it so."""
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
