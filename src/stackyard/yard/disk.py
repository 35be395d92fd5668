"""Sharing files instead of copying them, measuring how much was shared, and recognising a full disk.

A file of the cache reaches a prefix by hard link where the file system and the kernel allow it, else by a reflink
(blocks shared, inode of its own), else by a copy. What can be linked is found by trying, because no single setting
decides it: ``EXDEV`` depends on mounts, ``EMLINK`` on the number of links. Files of other accounts are never linked.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from stackyard.errors import StackyardError
from stackyard.host import space
from stackyard.host.identity import process_token
from stackyard.late import dataclass

HARDLINK, REFLINK, COPY, MIXED = "hardlink", "reflink", "copy", "mixed"
_FICLONE = 0x40049409  # linux/fs.h: _IOW(0x94, 9, int)
_NOT_LINKABLE = {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS}
ABSENT = (FileNotFoundError, NotADirectoryError)
"""The errors by which nothing has a path; after any other one that is not known."""
_REMOVED = ".removed-"
_BLOCK = 512  # st_blocks counts units of 512 bytes whatever the file system's own block is


@dataclass(frozen=True)
class DiskUse:
    """What a build uses: bytes and inodes of its own (`new`) and those linked from the cache (`shared`)."""

    link_mode: str = "copy"
    bytes_new: int = 0
    bytes_shared: int = 0
    inodes_new: int = 0
    inodes_shared: int = 0


def link_or_copy(source: str | Path, target: str | Path, *, link: bool = True) -> str:
    """Make `target` (which must not exist) a hard link, a reflink or a copy of `source`; return which it became.

    Args:
        link: False avoids hard links, for trees whose files may be written to later.
    """
    if link and not _foreign(source):
        try:
            os.link(source, target)
            return HARDLINK
        except OSError as error:
            if error.errno not in _NOT_LINKABLE:
                raise
    if reflink(source, target):
        return REFLINK
    shutil.copy2(source, target)
    return COPY


def reflink(source: str | Path, target: str | Path) -> bool:
    """Clone the blocks of a file (btrfs, XFS, bcachefs ...). False, without a target, where that is not supported."""
    import fcntl

    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with Path(source).open("rb") as origin:
        clone = os.open(target, flags, stat.S_IMODE(os.fstat(origin.fileno()).st_mode))
        try:
            fcntl.ioctl(clone, _FICLONE, origin.fileno())
        except OSError:
            Path(target).unlink()
            return False
        finally:
            os.close(clone)
    shutil.copystat(source, target)
    return True


def can_reflink(folder: Path) -> bool:
    """Whether files in `folder` can share their blocks. Creates and removes two small files."""
    source, target = (folder / f".reflink-{process_token()}-{n}" for n in "ab")
    try:
        source.write_bytes(b"x")
        return reflink(source, target)
    finally:
        for path in (source, target):
            path.unlink(missing_ok=True)


def can_link(source: Path, folder: Path) -> bool:
    """Whether hard links to a file, and to others of its owner, can be made in a directory. Creates and removes one."""
    if _foreign(source):
        return False
    probe = folder / f".link-{os.getpid()}-{threading.get_ident()}"
    try:
        os.link(source, probe)
    except OSError as error:
        if error.errno not in _NOT_LINKABLE:
            raise
        return False
    probe.unlink()
    return True


def _foreign(source: str | Path) -> bool:
    """Whether a file belongs to another account, which could then write to what we publish.

    The kernel refuses such a link too (``fs.protected_hardlinks``), unless we may write to that file.
    """
    return os.geteuid() not in (0, os.lstat(source).st_uid)


def copy_tree(source: Path, target: Path, *, link: bool = True) -> None:
    """Make `target` a tree of the same directories, symbolic links and (linked or copied) files."""
    target.mkdir(parents=True, exist_ok=True)
    for entry in os.scandir(source):
        place = target / entry.name
        if entry.is_symlink():
            place.symlink_to(Path(entry.path).readlink())
        elif entry.is_dir():
            copy_tree(Path(entry.path), place, link=link)
        else:
            link_or_copy(entry.path, place, link=link)


def mode_of(files: Iterable[str | Path], folder: Path) -> str:
    """How these files, all of which could have been shared, came into `folder`: a link mode or ``mixed``.

    Empty files do not count; ``copy`` where no file does.
    """
    linked = own = 0
    for file in files:
        with suppress(OSError):
            status = os.lstat(file)
            if stat.S_ISREG(status.st_mode) and status.st_size:
                linked += status.st_nlink > 1
                own += status.st_nlink == 1
    if linked:
        return MIXED if own else HARDLINK
    return REFLINK if own and can_reflink(folder) else COPY


def measure(tree: Iterable[os.stat_result], link_mode: str = COPY) -> DiskUse:
    """Count what a tree uses, given all that is in it: allocated bytes and inodes, its own and those shared.

    A file counts as shared if it has a name elsewhere too; directories and symbolic links count as the tree's own.
    Blocks shared by reflink cannot be detected cheaply and count as new.
    """
    new = shared = inodes_new = inodes_shared = 0
    inside: dict[tuple[int, int], list[int]] = {}
    for status in tree:
        size = status.st_blocks * _BLOCK
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            seen = inside.setdefault((status.st_dev, status.st_ino), [0, status.st_nlink, size])
            seen[0] += 1
            continue
        new += size
        inodes_new += 1
    for names, links, size in inside.values():
        if names < links:
            shared, inodes_shared = shared + size, inodes_shared + 1
        else:
            new, inodes_new = new + size, inodes_new + 1
    return DiskUse(link_mode, new, shared, inodes_new, inodes_shared)


def is_there(path: Path) -> bool:
    """Whether something has this path, links followed.

    Raises:
        OSError: that cannot be known, e.g. a directory may not be entered or the file system does not answer. Python
            3.14's `Path.exists` takes every error for missing.
    """
    return _status(path) is not None


def is_folder(path: Path) -> bool:
    """Whether a directory has this path, links followed. Raises as `is_there` does."""
    status = _status(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def is_file(path: Path) -> bool:
    """Whether a file has this path, links followed. Raises as `is_there` does."""
    status = _status(path)
    return status is not None and stat.S_ISREG(status.st_mode)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except ABSENT:
        return None


def names(folder: Path) -> list[str]:
    """The names in a directory; none where it does not exist."""
    try:
        return os.listdir(folder)  # noqa: PTH208
    except FileNotFoundError:
        return []


def entries(folder: Path) -> list[Path]:
    """The paths of `names`."""
    return [folder / name for name in names(folder)]


def content(path: Path) -> bytes | None:
    """What a file holds; None if nothing has this path. Raises as `is_there` does."""
    try:
        return path.read_bytes()
    except ABSENT:
        return None


def remove_tree(path: Path) -> None:
    """Remove a tree or a file so that its name is free at once: it is renamed first. It may be missing."""
    doomed = path.with_name(f".{path.name}{_REMOVED}{process_token()}")
    with suppress(FileNotFoundError):
        os.replace(path, doomed)
    if doomed.is_symlink() or doomed.is_file():
        doomed.unlink()
        return
    _allow_removal(doomed)
    shutil.rmtree(doomed, ignore_errors=True)
    if doomed.exists():
        shutil.rmtree(doomed)


def leftovers(folder: Path) -> list[Path]:
    """What killed processes renamed in a directory and did not remove, sorted; that of a living one looks the same."""
    return sorted(folder.glob(f".*{_REMOVED}*"))


def _allow_removal(folder: Path) -> None:
    """Give its owner the right to remove the files of a sealed tree."""
    for name, _, _ in os.walk(folder):  # top down: a directory is opened after its right was given
        mode = os.lstat(name).st_mode
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            with suppress(PermissionError):
                Path(name).chmod(stat.S_IMODE(mode) | stat.S_IRWXU)


class DiskFull(StackyardError):
    """The file system, or this user's part of it, has no room left."""


def failure(error: OSError, step: str) -> StackyardError:
    """An error of the file system, with what to do about it. `step` is what was being done: "building demo/1.0-1"."""
    if space.is_full(error):
        return no_space(step, str(error.filename or error.strerror))
    return StackyardError(f"{step} failed: {error}", hint="published revisions are unchanged; deploy again")


def no_space(step: str, place: str = "") -> DiskFull:
    """The error for a full file system. `step` is what was being done: "compiling horovod 0.28.1"."""
    return DiskFull(
        f"no space left while {step}" + (f" ({place})" if place else ""),
        hint="free some space and deploy again: published revisions are unchanged, finished work is in the cache",
    )
