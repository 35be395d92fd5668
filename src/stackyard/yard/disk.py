"""Shares files instead of copying them, measures the sharing, and recognises a full disk.

A file of the cache reaches a prefix by hard link where the file system and the kernel allow it, else by a reflink
(blocks shared, inode of its own), else by a copy. Whether a link is possible is found by trying, because it depends on
several settings: ``EXDEV`` depends on mounts, ``EMLINK`` on the number of links. Files of other accounts are never
linked.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path

from stackyard.core.errors import StackyardError, cause
from stackyard.core.late import dataclass
from stackyard.host.files import at, copying, space
from stackyard.host.run.identity import process_token
from stackyard.yard.write import within

HARDLINK, REFLINK, COPY, MIXED = "hardlink", "reflink", "copy", "mixed"
ABSENT = (FileNotFoundError, NotADirectoryError)
"""The errors by which nothing has a path; after any other one that is not known."""
_NOT_FOUND = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM)
"""Those after which a search goes on elsewhere."""
ANSWER_S = 10.0
"""For a file system to answer; an automounter that mounts it first takes a second or two."""
_AT_ONCE = 200
"""Directories that are opened at once, each in a thread."""
_BLOCK = 512  # st_blocks counts units of 512 bytes whatever the file system's own block is


@dataclass(frozen=True)
class DiskUse:
    """The disk use of a build: bytes and inodes of its own (`new`) and those linked from the cache (`shared`)."""

    link_mode: str = "copy"
    bytes_new: int = 0
    bytes_shared: int = 0
    inodes_new: int = 0
    inodes_shared: int = 0


def link_or_copy(source: str | Path, target: str | Path, *, link: bool = True) -> str:
    """Make `target` (which must not exist) a hard link, a reflink or a copy of `source`; return which it became.

    Args:
        link: False avoids hard links, for trees whose files may be changed later.
    """
    if link and not _foreign(source):
        try:
            os.link(source, target)
            return HARDLINK
        except OSError as error:
            if error.errno not in copying.NOT_LINKABLE:
                raise
    if reflink(source, target):
        return REFLINK
    import shutil  # late, as below: it imports three compressors

    shutil.copy2(source, target)
    return COPY


def reflink(source: str | Path, target: str | Path) -> bool:
    """Clone the blocks of a file (btrfs, XFS, bcachefs ...). False, without a target, if unsupported."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with Path(source).open("rb") as origin:
        clone = os.open(target, flags, stat.S_IMODE(os.fstat(origin.fileno()).st_mode))
        with at.closing(clone):
            is_cloned = copying.cloned(origin.fileno(), clone)
    if not is_cloned:
        Path(target).unlink()
        return False
    import shutil

    shutil.copystat(source, target)
    return True


def can_reflink(directory: Path) -> bool:
    """Whether files in `directory` can share their blocks. Creates and removes two small files."""
    source, target = (directory / f".reflink-{process_token()}-{n}" for n in "ab")
    try:
        source.write_bytes(b"x")
        return reflink(source, target)
    finally:
        for path in (source, target):
            path.unlink(missing_ok=True)


def can_link(source: Path, directory: Path) -> bool:
    """Whether hard links to a file and its owner's other files are possible in a directory. Creates and removes one."""
    if _foreign(source):
        return False
    probe = directory / f".link-{os.getpid()}-{threading.get_ident()}"
    try:
        os.link(source, probe)
    except OSError as error:
        if error.errno not in copying.NOT_LINKABLE:
            raise
        return False
    probe.unlink()
    return True


def _foreign(source: str | Path) -> bool:
    """Whether a file belongs to another account, which could then write to what we publish.

    The kernel refuses such a link too (``fs.protected_hardlinks``), unless we may write to that file.
    """
    return os.geteuid() != os.lstat(source).st_uid


def copy_tree(
    source: Path, target: Path, owners: Collection[int] = (), *, link: bool = True, top: Path | None = None
) -> None:
    """Copy a tree to `target`, which must not exist: directories, symbolic links and (linked or copied) files.

    Args:
        owners: the accounts to which all of it must belong; empty: any.
        top: a trusted directory above the source: no link below it is followed. None: the one that holds it.

    Raises:
        OSError: it contains anything else (a pipe, a device, a mount), or cannot be copied.
    """
    with within.named(source.parent), at.parent(top or source.parent, source) as origin:
        target.parent.mkdir(parents=True, exist_ok=True)
        with at.parent(target.parent, target) as place:
            copying.copy_tree(origin, place, owners, link=link)


def mode_of(files: Iterable[str | Path], directory: Path) -> str:
    """The way in which these shareable files came into `directory`: a link mode or ``mixed``.

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
    return REFLINK if own and can_reflink(directory) else COPY


def measure(tree: Iterable[os.stat_result], link_mode: str = COPY) -> DiskUse:
    """The disk use of a tree: allocated bytes and inodes, its own and shared ones.

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
    """Whether a path exists, with links followed.

    Raises:
        OSError: that is unknown, e.g. a directory may not be entered or the file system does not answer. Python 3.14's
            `Path.exists` treats every error as missing.
    """
    return _status(path) is not None


def look_into(directory: Path, within_s: float = ANSWER_S) -> None:
    """Open a directory in a separate thread: on a hanging file system no call returns.

    Raises:
        StackyardError: it did not answer in time.
        OSError: it cannot be opened.
    """
    for _, error in looked_into([directory], within_s):
        if error is not None:
            raise error


def looked_into(directories: Sequence[Path], within_s: float = ANSWER_S) -> Iterator[tuple[Path, Exception | None]]:
    """`look_into` for many directories at once; each with the error, or None. Waits only once for hanging ones."""
    for start in range(0, len(directories), _AT_ONCE):
        looks = [_Look(directory) for directory in directories[start : start + _AT_ONCE]]
        until = time.monotonic() + within_s
        yield from ((look.directory, look.error(until, within_s)) for look in looks)


class _Look:
    """A thread that opens a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory, self._found = directory, list[OSError | None]()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        try:
            with os.scandir(self.directory):
                self._found.append(None)
        except OSError as error:
            self._found.append(error)

    def error(self, until: float, within_s: float) -> Exception | None:
        """Why it could not be opened until a time of the monotonic clock."""
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._found:
            return self._found[0]
        hint = "its file system hangs (`df` would too): try again later, or ask who runs it"
        return StackyardError(f"{self.directory} does not answer: timed out after {within_s:g} s", hint=hint)


def is_directory(path: Path) -> bool:
    """Whether a path is a directory, with links followed. Raises as `is_there` does."""
    status = _status(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def is_file(path: Path) -> bool:
    """Whether a path is a file, with links followed. Raises as `is_there` does."""
    status = _status(path)
    return status is not None and stat.S_ISREG(status.st_mode)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except ABSENT:
        return None


def names(directory: Path) -> list[str]:
    """The names in a directory; empty if it does not exist."""
    try:
        return os.listdir(directory)  # noqa: PTH208
    except FileNotFoundError:
        return []


def entries(directory: Path) -> list[Path]:
    """The paths of `names`."""
    return [directory / name for name in names(directory)]


def matching(directory: Path, pattern: str) -> list[Path]:
    """The sorted matches of a glob, even if another process removes directories meanwhile.

    `Path.glob` raises an error then before Python 3.13. Unreadable directories and dangling links are left out.

    Raises:
        OSError: the file system failed.
    """
    paths = [directory]
    for part in pattern.split("/"):
        paths = [path for place in paths for path in _matching(place, part)]
    return sorted(paths)


def _matching(directory: Path, part: str) -> list[Path]:
    try:
        if "*" in part:
            return [directory / name for name in os.listdir(directory) if fnmatchcase(name, part)]  # noqa: PTH208
        return [directory / part] if is_there(directory / part) else []
    except OSError as error:
        if error.errno not in _NOT_FOUND:
            raise
        return []


def content(path: Path) -> bytes | None:
    """The content of a file; None if it does not exist. Raises as `is_there` does."""
    try:
        return at.read_regular(path)
    except ABSENT:
        return None


def of_anybody(path: Path, most: int, top: Path | None = None) -> tuple[bytes, os.stat_result]:
    """The content and status of a file that any account may have created: `at.read_bounded` for a path.

    Args:
        top: a trusted directory above: no link below it is followed. None: the one that holds it.
    """
    with at.parent(top or path.parent, path) as place:
        return at.read_bounded(*place, most)


def remove_tree(path: Path, top: Path | None = None) -> None:
    """Remove a tree or a file, renaming it first so that its name is free at once. It may be missing.

    Args:
        top: a trusted directory above: no link below it is followed. None: the one that holds it.

    Raises:
        OSError: a part of it cannot be removed, e.g. it belongs to another account; the rest is removed.
    """
    with (
        within.named(path.parent),
        suppress(FileNotFoundError),
        at.parent(top or path.parent, path) as (directory, name),
    ):
        doomed = f".{name}{at.REMOVED}{process_token()}"
        os.rename(name, doomed, src_dir_fd=directory, dst_dir_fd=directory)
        at.remove_tree(directory, doomed)


def delete_tree(path: Path, top: Path | None = None) -> None:
    """Remove a tree or a file in place; it may be missing. Arguments and errors as for `remove_tree`."""
    with within.named(path.parent), suppress(FileNotFoundError), at.parent(top or path.parent, path) as place:
        at.remove_tree(*place)


def leftovers(directory: Path) -> list[Path]:
    """Trees that killed processes renamed but did not remove, sorted; running processes have some too."""
    return sorted(directory.glob(f".*{at.REMOVED}*"))


MAKE_ROOM = (
    "free some space (`stackyard gc --now` deletes what is in the trash) and type the same again: "
    "published revisions are unchanged, finished work is in the cache"
)
"""What to do about a full disk while something is built."""


class DiskFull(StackyardError):
    """The file system, or this user's quota, is full."""


def failure(error: OSError, step: str, hint: str = "") -> StackyardError:
    """A file system error as an error with a hint.

    Args:
        step: the failed step: "building demo/1.0-1".
    """
    if space.is_full(error):
        return no_space(step, str(error.filename or error.strerror), hint)
    name = os.fsdecode(error.filename or "")
    why = cause(error) + (f": {name}" if name and name not in step else "")
    return StackyardError(
        f"{step} failed: {why[:1].lower()}{why[1:]}",
        hint=hint or "published revisions are unchanged; type the same again",
    )


@contextmanager
def during(step: str, hint: str = "") -> Iterator[None]:
    """Within a ``with`` block, raise `failure` for file system errors."""
    try:
        yield
    except OSError as error:
        raise failure(error, step, hint) from error


def no_space(step: str, place: str = "", hint: str = "") -> DiskFull:
    """The error for a full file system. `step` is the failed step: "compiling horovod 0.28.1"."""
    return DiskFull(f"no space left while {step}" + (f" ({place})" if place else ""), hint=hint or MAKE_ROOM)


def require_mounted_for_writing(place: Path, what: str) -> None:
    """Raise StackyardError if a directory's file system is mounted read-only, which its owner cannot change.

    Args:
        what: the operation that is impossible: "cannot write to the yard /sw".
    """
    with suppress(OSError):
        if os.statvfs(place).f_flag & os.ST_RDONLY:
            raise StackyardError(f"{what}: its file system is mounted read-only here",
                                 hint="use a host that may write there, such as a login node")  # fmt: skip
