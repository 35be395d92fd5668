"""Copies trees that other accounts can write to, or links their files, by descriptors (`host.files.at`)."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection

from stackyard.host.files import at

_FICLONE = 0x40049409  # linux/fs.h: _IOW(0x94, 9, int)
NOT_LINKABLE = {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS}
"""The errors by which a file cannot have another name."""


def copy_tree(source: at.Place, target: at.Place, owners: Collection[int] = (), *, link: bool = False) -> None:
    """Copy a file, a link or a tree to an unused name, without setuid, setgid and extended attributes.

    Args:
        owners: the accounts to which all of it must belong; empty: any.
        link: make hard links of files where that is possible.

    Raises:
        Refused: it contains a file of another account, a special file, too deep nesting, or a private file with other
            hard links in a directory where another account can write.
        OSError: it cannot be read or written; EXDEV: a file system is mounted in it.
    """
    _copy(*source, target, owners, link, 0)


def _copy(top: int, name: str, target: at.Place, owners: Collection[int], link: bool, depth: int) -> None:
    mode = os.stat(name, dir_fd=top, follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode):
        os.symlink(os.readlink(name, dir_fd=top), target[1], dir_fd=target[0])
        return
    if depth > 2 * at.DEPTH:
        raise at.UnexpectedFileError(errno.ENAMETOOLONG, "nested too deeply", name)
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):  # not even opened: a device may act on that
        raise at.UnexpectedFileError(errno.EINVAL, "neither a file nor a directory", name)
    with at.closing(at.open_directory(top, name, at.DIR if stat.S_ISDIR(mode) else at.READ)) as fd:
        status = os.fstat(fd)
        if owners and status.st_uid not in owners:
            raise at.UnexpectedFileError(errno.EPERM, f"belongs to account {status.st_uid}", name)
        if stat.S_IFMT(status.st_mode) != stat.S_IFMT(mode):
            raise at.UnexpectedFileError(errno.EINVAL, "not what it was", name)
        around = os.fstat(top)
        if at.is_named_by_others(around, status) and not _is_readable(around, status):
            raise at.UnexpectedFileError(errno.EMLINK, "has other names, which may be anywhere", name)
        if stat.S_ISDIR(mode):
            _copy_directory(fd, target, owners, link, depth)
        elif not (link and _linked(fd, status, target)):
            _copy_file(fd, status, target)


def _is_readable(around: os.stat_result, status: os.stat_result) -> bool:
    """Whether all accounts, or the directory's group, may read a file, so that a copy reveals nothing."""
    return bool(status.st_mode & 0o004 or (status.st_mode & 0o040 and status.st_gid == around.st_gid))


def _copy_directory(fd: int, target: at.Place, owners: Collection[int], link: bool, depth: int) -> None:
    os.mkdir(target[1], dir_fd=target[0])
    with at.opened(*target) as into:
        for child in os.listdir(fd):
            _copy(fd, child, (into, child), owners, link, depth + 1)


def _linked(fd: int, status: os.stat_result, target: at.Place) -> bool:
    """Hard-link an open file; whether that worked. Other accounts' files are never linked: they could change them."""
    if status.st_uid != os.geteuid():
        return False
    try:
        os.link(f"/proc/self/fd/{fd}", target[1], dst_dir_fd=target[0])
    except OSError as error:
        if error.errno not in NOT_LINKABLE:
            raise
        return False
    return True


def _copy_file(fd: int, status: os.stat_result, target: at.Place) -> None:
    with at.open_new(*target) as out:
        if not cloned(fd, out.fileno()):
            while os.sendfile(out.fileno(), fd, None, 1 << 30):
                continue
        os.fchmod(out.fileno(), status.st_mode & 0o777)
        os.utime(out.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))


def cloned(source: int, target: int) -> bool:
    """Clone the blocks of an open file (btrfs, XFS, bcachefs ...); whether that worked."""
    import fcntl

    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True
