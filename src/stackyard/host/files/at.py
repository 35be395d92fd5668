"""Safe work in trees that other accounts can write to: by descriptors, without following links, checked after opening.

An account that may write to a directory can exchange its entries between two calls. So each function takes an open
directory and one name in it (`parent` turns a path below a trusted directory into these), checks what it has opened,
and refuses anything unexpected. A name that was read from a file passes `parts` before it is joined.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
PASS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""For a directory on the way: it need not be readable, as those in which all accounts leave notes."""
PEEK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
DEPTH = 60
"""Directories in each other that `remove_tree` enters; deeper ones are moved up, so that nothing grows with a tree."""
REMOVED = ".removed-"
"""In the names of what is being removed: a killed process leaves it, and a collection finds it."""
_OPENAT2, _NO_XDEV = 437, 0x01  # linux/openat2.h; the number is the same on x86_64, aarch64 and ppc64le
_BLOCK, MOST = 1 << 20, 1 << 30
"""How much is read at once, and of a file without another limit."""
Place = tuple[int, str]
"""An open directory, and a name in it."""


class UnexpectedFileError(OSError):
    """A file is of an unexpected kind or owner, e.g. a pipe, or a file of another account."""


def parts(path: str) -> list[str]:
    """The components of a path that was read from a file, after its escapes were undone.

    The one door for names that are joined to a directory: those of ``files.json``, notes, manifests, records,
    artefacts and archives.

    Raises:
        ValueError: it is absolute, or has an empty component, ``.``, ``..`` or a zero byte.
    """
    pieces = path.split("/")
    if "" in pieces or "." in pieces or ".." in pieces or "\0" in path:
        raise ValueError(f"not a path below a directory: {path!r:.200}")
    return pieces


def component(name: str) -> str:
    """A name that is one component. Raises ValueError as `parts` does."""
    if len(parts(name)) != 1:
        raise ValueError(f"not a file name: {name!r:.200}")
    return name


# --------------------------------------------------------------------------- opening


def open_directory(top: int, name: str, flags: int = DIR) -> int:
    """Open a directory by name, unless it is a link or a mount point; the caller closes it.

    Args:
        flags: `DIR`, `PASS`, or for a file `READ`.

    Raises:
        OSError: ELOOP or ENOTDIR for a link, EXDEV for a mount.
    """
    fd = _open_same_mount(top, name, flags)
    if fd is None:  # before Linux 5.6, or under a sandbox that does not know the call
        fd = os.open(name, flags, dir_fd=top)
        if mount_of(fd) != mount_of(top):
            os.close(fd)
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
    return fd


def mount_of(fd: int) -> str:
    """The mount of an open file: it differs for a mounted one, even on the same device.

    An account can mount files that it cannot read, in its own namespace, reachable through `/proc/PID/root`.
    """
    text = Path(f"/proc/self/fdinfo/{fd}").read_text(encoding="ascii")
    return next(line for line in text.splitlines() if line.startswith("mnt_id:"))


def _open_same_mount(top: int, name: str, flags: int) -> int | None:
    """Open by openat2(2); None if the kernel lacks this call."""
    import ctypes  # late: a tenth of the start of a command

    libc, how = _c(), (ctypes.c_uint64 * 3)(flags, 0, _NO_XDEV)
    while True:
        fd: int = libc.syscall(_OPENAT2, top, os.fsencode(name), how, ctypes.sizeof(how))
        code = ctypes.get_errno()
        if fd >= 0:
            return fd
        if code in (errno.ENOSYS, errno.EPERM):
            return None
        if code not in (errno.EINTR, errno.EAGAIN):
            raise OSError(code, os.strerror(code), name)


@cache
def _c() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


@contextmanager
def closing(fd: int) -> Iterator[int]:
    """A descriptor, closed at the end of the ``with`` block."""
    try:
        yield fd
    finally:
        os.close(fd)


def opened(top: int, name: str) -> AbstractContextManager[int]:
    """`open_directory`, closed at the end."""
    return closing(open_directory(top, name))


@contextmanager
def directory(top: Path, path: Path, *, make: bool = False) -> Iterator[int]:
    """An open directory at or below a trusted one (`PASS`): links are followed only on the way to `top`.

    Args:
        make: create missing directories; those above `top` by path.

    Raises:
        OSError: it cannot be opened; the error has the path of the directory at which that failed.
        ValueError: `path` is not below `top`.
    """
    names = [] if path == top else parts(path.relative_to(top).as_posix())
    if make:
        top.mkdir(parents=True, exist_ok=True)
    fd = os.open(top, PASS & ~os.O_NOFOLLOW)
    try:
        for count, name in enumerate(names, 1):
            try:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=fd)
                below = open_directory(fd, name, PASS)
            except OSError as error:
                error.filename = str(top.joinpath(*names[:count]))
                raise
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


@contextmanager
def parent(top: Path, path: Path, *, make: bool = False) -> Iterator[Place]:
    """The open directory that holds a path below `top`, and its name there. Arguments and errors as for `directory`."""
    with directory(top, path.parent, make=make) as fd:
        yield fd, path.name


def names(top: int) -> list[str]:
    """The names in an open directory."""
    with closing(os.open(".", DIR, dir_fd=top)) as fd:
        return os.listdir(fd)  # noqa: PTH208


def walk(
    top: int, path: str = "", on_error: Callable[[OSError], object] | None = None, *, cross: bool = False
) -> Iterator[tuple[int, str, list[os.DirEntry[str]]]]:
    """Each directory of a tree, from the top: open during the iteration, with its path and its entries.

    Args:
        top: an open directory that can be listed (`DIR`).
        path: its own, with which the others begin: empty, or with a slash at the end, as all of them.
        on_error: called where a directory cannot be entered, which is then left out; None: raise.
        cross: enter also directories on which a file system is mounted, e.g. an image: only to read.

    Raises:
        OSError: a directory cannot be read; EXDEV: a file system is mounted on it.
    """
    with os.scandir(top) as listing:
        entries = list(listing)
    yield top, path, entries
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            try:
                if path.count("/") > 2 * DEPTH:
                    raise UnexpectedFileError(errno.ENAMETOOLONG, "nested too deeply", entry.name)
                below = os.open(entry.name, DIR, dir_fd=top) if cross else open_directory(top, entry.name)
            except OSError as error:
                error.filename = path + entry.name
                if on_error is None:
                    raise
                on_error(error)
                continue
            with closing(below):
                yield from walk(below, f"{path}{entry.name}/", on_error, cross=cross)


def open_new(top: int, name: str, mode: int = 0o600) -> BinaryIO:
    """A new file for writing. Raises FileExistsError where anything has this name, a link too."""
    return os.fdopen(os.open(name, _NEW, mode, dir_fd=top), "wb")


def read_bounded(top: int, name: str, most: int, owner: int | None = None) -> tuple[bytes, os.stat_result]:
    """The content and status of a file that any account may have written.

    A mounted file is not read: it may be one that this account can read, but its writer cannot.

    Args:
        most: the largest size in bytes.
        owner: the account that must own it; None: any.

    Raises:
        UnexpectedFileError: it is not a regular file, too large, or another account's.
        OSError: it cannot be opened, e.g. it is a symbolic link; EXDEV for a mount.
    """
    with closing(open_directory(top, name, READ)) as fd:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise UnexpectedFileError(errno.EINVAL, "not a regular file", name)
        if owner is not None and status.st_uid != owner:
            raise UnexpectedFileError(errno.EPERM, f"belongs to account {status.st_uid}, not {owner}", name)
        _require_size(status.st_size, most, name)
        data = b""  # a file may grow meanwhile, and not say how large it is
        while len(data) <= most and (more := os.read(fd, min(_BLOCK, most + 1 - len(data)))):
            data += more
    _require_size(len(data), most, name)
    return data, status


def _require_size(size: int, most: int, name: str) -> None:
    if size > most:
        raise UnexpectedFileError(errno.EFBIG, f"larger than {most:,} bytes", name)


def read_regular(path: Path) -> bytes:
    """The content of a file; links are followed. Never blocks, as Path.read_bytes would on a pipe.

    Raises:
        OSError: it is not a regular file, has more than `MOST` bytes, or cannot be read.
    """
    with open_regular(path) as stream:
        _require_size(os.fstat(stream.fileno()).st_size, MOST, str(path))
        return stream.read()


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading; links are followed. Raises as `read_regular` does."""
    stream = open(path, "rb", opener=lambda name, _: os.open(name, READ & ~os.O_NOFOLLOW))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise UnexpectedFileError(errno.EINVAL, "not a regular file", str(path))
    return stream


def ends(path: Path, count: int) -> tuple[bytes, bytes]:
    """The first and the last bytes of a file; links are followed. Raises as `read_regular` does."""
    with closing(os.open(path, READ & ~os.O_NOFOLLOW)) as fd:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise UnexpectedFileError(errno.EINVAL, "not a regular file", str(path))
        return os.pread(fd, count, 0), os.pread(fd, count, max(0, status.st_size - count))


def is_named_by_others(around: os.stat_result, status: os.stat_result) -> bool:
    """Whether a file has other hard links, and another account can have created this one."""
    others = around.st_mode & 0o022 or around.st_uid not in (0, os.geteuid())
    return bool(others and stat.S_ISREG(status.st_mode) and status.st_nlink != 1)


# --------------------------------------------------------------------------- changing


def set_mode(
    top: int,
    name: str,
    change: Callable[[os.stat_result], int],
    owners: Collection[int] = (),
    kinds: Collection[int] = (stat.S_IFREG, stat.S_IFDIR),
) -> None:
    """Change the permission bits of a file, after checking it once it is open.

    Args:
        change: computes the mode from the status; an equal one is not set.
        owners: the permitted owners; empty: this process's account.
        kinds: the permitted kinds (`stat.S_IFMT`).

    Raises:
        UnexpectedFileError: it is of another kind or owner; or a file would get more bits that has other hard links
            and is in a directory where another account can write.
        OSError: it cannot be opened or changed.
    """
    with closing(os.open(name, PEEK, dir_fd=top)) as fd:
        status = os.fstat(fd)
        if stat.S_IFMT(status.st_mode) not in kinds or status.st_uid not in (owners or (os.geteuid(),)):
            raise UnexpectedFileError(errno.EPERM, "not what it was, or another account's", name)
        before, mode = stat.S_IMODE(status.st_mode), change(status) & 0o7777
        if mode & ~before and is_named_by_others(os.fstat(top), status):
            raise UnexpectedFileError(errno.EMLINK, "has other names, which may be anywhere", name)
        if mode != before:
            change_open(fd, mode)


def change_open(fd: int, mode: int, group: int | None = None) -> None:
    """Set the group and then the mode of an open file, also if open as `PEEK` or `PASS`, unlike fchmod(2).

    Raises:
        OSError: it is another account's, or /proc is not mounted.
    """
    place = f"/proc/self/fd/{fd}"
    if group is not None:
        os.chown(place, -1, group)
    os.chmod(place, mode & 0o7777)  # noqa: PTH101


def set_times(fd: int, time_ns: int) -> None:
    """Set the times of an open file, in nanoseconds since 1970."""
    os.utime(fd, ns=(time_ns, time_ns))


@contextmanager
def writable(directory: int) -> Iterator[None]:
    """Within a ``with`` block, make an open directory of this account writable. Root needs no permission.

    Raises:
        OSError: as for `change_open`.
    """
    status = os.fstat(directory)
    mode = stat.S_IMODE(status.st_mode)
    if os.geteuid() != status.st_uid or os.geteuid() == 0 or mode & stat.S_IWUSR:
        yield
        return
    change_open(directory, mode | stat.S_IWUSR)
    try:
        yield
    finally:
        change_open(directory, mode)


def remove_tree(top: int, name: str, owners: Collection[int] = ()) -> None:
    """Remove a file, a link or a tree; it may be missing. Links are not followed, and depth is unlimited.

    Files that cannot be removed stay, with their directories; the rest is removed.

    Args:
        owners: accounts whose sealed directories may be made writable; empty: this process's account.

    Raises:
        OSError: the first thing that could not be removed, e.g. of another account, or with a mount on it; its path
            below the directory is in the error.
    """
    removal = _Removal(top, owners or (os.geteuid(),))
    removal.remove(top, name, "", 0)
    for moved in removal.moved:  # which grows meanwhile
        removal.remove(top, moved, "", 0)
    if removal.error is not None:
        raise removal.error


class _Removal:
    """One removal: the directory to which too deep trees are moved, and the first error."""

    def __init__(self, home: int, owners: Collection[int]) -> None:
        self.home, self.owners = home, owners
        self.moved: list[str] = []
        self.error: OSError | None = None

    def remove(self, top: int, name: str, above: str, depth: int) -> None:
        """Remove one entry of an open directory, whose path is `above`."""
        try:
            try:
                os.unlink(name, dir_fd=top)
            except IsADirectoryError:  # not looked at: a file system that is mounted on it may hang
                self._remove_directory(top, name, f"{above}{name}/", depth)
            except PermissionError:  # EPERM for a directory: POSIX, some file systems
                if not stat.S_ISDIR(os.stat(name, dir_fd=top, follow_symlinks=False).st_mode):
                    raise
                self._remove_directory(top, name, f"{above}{name}/", depth)
        except FileNotFoundError:
            return
        except OSError as error:
            error.filename = above + name
            self.error = self.error or error

    def _remove_directory(self, top: int, name: str, path: str, depth: int) -> None:
        before = self.error
        with closing(self._opened(top, name)) as fd:
            children = os.listdir(fd)  # noqa: PTH208
            if depth == DEPTH and children:
                spare = f".deep{REMOVED}{os.urandom(8).hex()}"
                os.rename(name, spare, src_dir_fd=top, dst_dir_fd=self.home)
                self.moved.append(spare)
                return
            for child in children:
                self.remove(fd, child, path, depth + 1)
        if self.error is before:  # else what is in it stays, and with it the directory
            os.rmdir(name, dir_fd=top)

    def _opened(self, top: int, name: str) -> int:
        """Open a directory, and make it writable for its owner."""
        try:
            fd = open_directory(top, name)
        except PermissionError:
            set_mode(top, name, lambda status: status.st_mode | stat.S_IRWXU, self.owners, (stat.S_IFDIR,))
            return open_directory(top, name)
        status = os.fstat(fd)
        if status.st_uid in self.owners and status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
            with suppress(PermissionError):
                os.fchmod(fd, stat.S_IMODE(status.st_mode) | stat.S_IRWXU)
        return fd
