"""Working in trees that other accounts can write to: by descriptors, without following links, checked after opening.

Whoever may write to a directory can exchange what a name means between two calls. So each function takes an open
directory and one name in it (`parent` turns a path below a trusted directory into these), looks at what it has opened,
and refuses what it must not touch. A name that was read from a file passes `parts` before it is joined to a directory.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
PEEK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DEPTH = 60
"""Directories in each other that `remove_tree` enters; deeper ones are moved up, so that nothing grows with a tree."""
_OPENAT2, _NO_XDEV = 437, 0x01  # linux/openat2.h; the number is the same on x86_64, aarch64 and ppc64le
_libc = ctypes.CDLL(None, use_errno=True)


class Refused(OSError):
    """What has a name is not what it has to be, e.g. a link, a pipe, or a file of another account."""


class _How(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("flags", "mode", "resolve")]


def parts(path: str) -> list[str]:
    """The components of a path that was read from a file, after its escapes were undone.

    The one door for names that are joined to a directory: those of ``files.json``, notes, manifests, records,
    artefacts and archives.

    Raises:
        ValueError: it is absolute, or has an empty component, ``.``, ``..`` or a zero byte.
    """
    found = path.split("/")
    if "\0" in path or not {"", ".", ".."}.isdisjoint(found):
        raise ValueError(f"not a path below a directory: {path!r:.200}")
    return found


def component(name: str) -> str:
    """A name that is one component. Raises ValueError as `parts` does."""
    if len(parts(name)) != 1:
        raise ValueError(f"not a file name: {name!r:.200}")
    return name


# --------------------------------------------------------------------------- opening


def open_folder(top: int, name: str) -> int:
    """A directory by its name, unless it is a link or a file system is mounted on it; the caller closes it.

    Raises:
        OSError: ELOOP or ENOTDIR for a link, EXDEV for a mount.
    """
    fd = _open_same_mount(top, name)
    if fd is None:  # before Linux 5.6, or under a sandbox that does not know the call
        fd = os.open(name, DIR, dir_fd=top)
        if os.fstat(fd).st_dev != os.fstat(top).st_dev:
            os.close(fd)
            raise Refused(errno.EXDEV, "a file system is mounted on it", name)
    return fd


def _open_same_mount(top: int, name: str) -> int | None:
    """openat2(2); None where the kernel has no such call."""
    how = _How(DIR, 0, _NO_XDEV)
    while True:
        fd: int = _libc.syscall(_OPENAT2, top, os.fsencode(name), ctypes.byref(how), ctypes.sizeof(how))
        code = ctypes.get_errno()
        if fd >= 0:
            return fd
        if code in (errno.ENOSYS, errno.EPERM):
            return None
        if code not in (errno.EINTR, errno.EAGAIN):
            raise (Refused if code == errno.EXDEV else OSError)(code, os.strerror(code), name)


@contextmanager
def opened(top: int, name: str) -> Iterator[int]:
    """`open_folder`, closed at the end."""
    fd = open_folder(top, name)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def folder(top: Path, path: Path) -> Iterator[int]:
    """An open directory at or below a trusted one: links are followed to `top`, and none is below it.

    Raises:
        OSError: it cannot be opened; the error has the whole path.
        ValueError: `path` is not below `top`.
    """
    fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in () if path == top else parts(path.relative_to(top).as_posix()):
            try:
                below = open_folder(fd, name)
            except OSError as error:
                error.filename = str(path)
                raise
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


@contextmanager
def parent(top: Path, path: Path) -> Iterator[tuple[int, str]]:
    """The open directory that holds a path below `top`, and its name there. Raises as `folder`."""
    with folder(top, path.parent) as fd:
        yield fd, component(path.name)


def open_new(top: int, name: str, mode: int = 0o600) -> BinaryIO:
    """A new file for writing. Raises FileExistsError where anything has this name, a link too."""
    return os.fdopen(os.open(name, _NEW, mode, dir_fd=top), "wb")


def read_bounded(top: int, name: str, most: int, owner: int | None = None) -> tuple[bytes, os.stat_result]:
    """What a file holds that any account may have written, and its status.

    Args:
        most: bytes; a larger file is refused before it is read.
        owner: the account that must own it; None: any.

    Raises:
        Refused: it is not a regular file, too large, or another account's.
        OSError: it cannot be opened, e.g. it is a symbolic link.
    """
    with open(name, "rb", buffering=0, opener=lambda path, _: os.open(path, READ, dir_fd=top)) as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise Refused(errno.EINVAL, "not a regular file", name)
        if owner is not None and status.st_uid != owner:
            raise Refused(errno.EPERM, f"belongs to account {status.st_uid}, not {owner}", name)
        data = b""
        while len(data) <= most and (more := stream.read(most + 1 - len(data))):
            data += more
    if len(data) > most:
        raise Refused(errno.EFBIG, f"larger than {most:,} bytes", name)
    return data, status


# --------------------------------------------------------------------------- changing


def set_mode(
    top: int,
    name: str,
    change: Callable[[os.stat_result], int],
    owners: Collection[int] = (),
    kinds: Collection[int] = (stat.S_IFREG, stat.S_IFDIR),
) -> None:
    """Change the permission bits of what has a name, by what it is once it is open.

    Args:
        change: the mode from the status; one that is equal already is not set.
        owners: the accounts of which one must own it; empty: the one that this process acts as.
        kinds: what it may be (`stat.S_IFMT`).

    Raises:
        Refused: it is something else, another account's, or a file with other names: these may be anywhere.
        OSError: it cannot be opened or changed.
    """
    fd = os.open(name, PEEK, dir_fd=top)
    try:
        status = os.fstat(fd)
        if stat.S_IFMT(status.st_mode) not in kinds or status.st_uid not in (owners or (os.geteuid(),)):
            raise Refused(errno.EPERM, "not what it was, or another account's", name)
        if stat.S_ISREG(status.st_mode) and status.st_nlink != 1 and os.geteuid() == 0:
            raise Refused(errno.EMLINK, "has other names", name)
        mode = change(status) & 0o7777
        if mode != stat.S_IMODE(status.st_mode):
            os.chmod(f"/proc/self/fd/{fd}", mode)  # noqa: PTH101 - an O_PATH descriptor has no fchmod
    finally:
        os.close(fd)


def rename(top: Path, old: Path, new: Path) -> None:
    """Rename what is below a trusted directory, without following a link on either way. Raises as `os.rename`."""
    with parent(top, old) as (source, name), parent(top, new) as (target, become):
        os.rename(name, become, src_dir_fd=source, dst_dir_fd=target)


def remove_tree(top: int, name: str, owners: Collection[int] = ()) -> None:
    """Remove a file, a link or a tree; it may be missing. No link is followed, and no tree is too deep.

    What cannot be removed stays, with the directories above it; the rest is removed.

    Args:
        owners: whose directories may be opened to their owner (sealed ones have no right to write); empty: those of
            the account that this process acts as. Root changes no mode: it needs none.

    Raises:
        OSError: the first thing that could not be removed, e.g. of another account, or with a mount on it.
    """
    removal = _Removal(top, owners or (os.geteuid(),))
    removal.remove(top, name, 0)
    while removal.moved:
        removal.remove(top, removal.moved.pop(), 0)
    if removal.errors:
        raise removal.errors[0]


class _Removal:
    """One removal: the directory to which what is too deep is moved, and what went wrong."""

    def __init__(self, home: int, owners: Collection[int]) -> None:
        self.home, self.owners = home, owners
        self.moved: list[str] = []
        self.errors: list[OSError] = []

    def remove(self, top: int, name: str, depth: int) -> None:
        """Remove one entry of an open directory."""
        try:
            self._remove(top, name, depth)
        except FileNotFoundError:
            return
        except OSError as error:
            self.errors.append(error)

    def _remove(self, top: int, name: str, depth: int) -> None:
        try:
            os.unlink(name, dir_fd=top)
            return
        except (IsADirectoryError, PermissionError):  # EPERM for a directory: POSIX, some file systems
            if not stat.S_ISDIR(os.stat(name, dir_fd=top, follow_symlinks=False).st_mode):
                raise
        fd = self._opened(top, name)
        try:
            if depth >= _DEPTH and os.listdir(fd):  # noqa: PTH208
                spare = f".deep-{os.urandom(8).hex()}"
                os.rename(name, spare, src_dir_fd=top, dst_dir_fd=self.home)
                self.moved.append(spare)
                return
            for child in os.listdir(fd):  # noqa: PTH208
                self.remove(fd, child, depth + 1)
        finally:
            os.close(fd)
        try:
            os.rmdir(name, dir_fd=top)
        except OSError:
            if not self.errors:  # else the reason is known: what is in it stays
                raise

    def _opened(self, top: int, name: str) -> int:
        """A directory, with its owner's right to change it."""
        try:
            fd = open_folder(top, name)
        except PermissionError:
            set_mode(top, name, lambda status: status.st_mode | stat.S_IRWXU, self.owners, (stat.S_IFDIR,))
            return open_folder(top, name)
        status = os.fstat(fd)
        if os.geteuid() and status.st_uid in self.owners and status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
            with suppress(PermissionError):
                os.fchmod(fd, stat.S_IMODE(status.st_mode) | stat.S_IRWXU)
        return fd


def copy_tree(source: int, name: str, target: int, new: str, owners: Collection[int]) -> None:
    """Copy a file, a link or a tree of these accounts under a name that is free. Never setuid or setgid.

    Raises:
        Refused: something in it is another account's, a pipe or a device, has a mount on it, or is nested too deeply.
        FileExistsError: the new name is taken.
    """
    _copy(source, name, target, new, owners, 0)


def _copy(source: int, name: str, target: int, new: str, owners: Collection[int], depth: int) -> None:
    status = os.stat(name, dir_fd=source, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(name, dir_fd=source), new, dir_fd=target)
        return
    if depth > 2 * _DEPTH:
        raise Refused(errno.ENAMETOOLONG, "nested too deeply", name)
    is_folder = stat.S_ISDIR(status.st_mode)
    fd = open_folder(source, name) if is_folder else os.open(name, READ, dir_fd=source)
    try:
        status = os.fstat(fd)
        if status.st_uid not in owners:
            raise Refused(errno.EPERM, f"belongs to account {status.st_uid}", name)
        if is_folder:
            _copy_folder(fd, status, target, new, owners, depth)
        elif stat.S_ISREG(status.st_mode):
            _copy_file(fd, status, target, new)
        else:
            raise Refused(errno.EINVAL, "neither a file nor a directory", name)
    finally:
        os.close(fd)


def _copy_folder(fd: int, status: os.stat_result, target: int, new: str, owners: Collection[int], depth: int) -> None:
    os.mkdir(new, 0o700, dir_fd=target)
    into = open_folder(target, new)
    try:
        for child in os.listdir(fd):
            _copy(fd, child, into, child, owners, depth + 1)
        os.fchmod(into, status.st_mode & 0o777)
    finally:
        os.close(into)


def _copy_file(fd: int, status: os.stat_result, target: int, new: str) -> None:
    with open_new(target, new) as out:
        while sent := os.sendfile(out.fileno(), fd, None, 1 << 30):
            del sent
        os.fchmod(out.fileno(), status.st_mode & 0o777)
        os.utime(out.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
