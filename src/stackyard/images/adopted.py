"""Packs an adopted prefix into an image, where it is: nothing of it is copied into the yard, moved or changed.

Its owner may change it meanwhile, and in ways that are not seen: each file is read by descriptors, so that no link is
followed, and the image is compared with what was read, every byte.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from stackyard.core.errors import StackyardError, cause
from stackyard.core.findings import counted, some
from stackyard.host.files import at
from stackyard.host.files.hashing import sha256_stream
from stackyard.images import form
from stackyard.images.squashfs import file as squashfs
from stackyard.images.squashfs import launcher, possible, stubs
from stackyard.make.adopted import require_same
from stackyard.make.seal import PARTS
from stackyard.yard import disk, formats
from stackyard.yard.revision import contents
from stackyard.yard.revision.contents import Contents, Item
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord

_SECOND, _SHOWN = 10**9, 3
_METADATA = f"{PARTS[0]}conda-meta/"
"""What is in it is in the lock too; some installers let only the owner read it."""


def pack(record: BuildRecord) -> BuildRecord:
    """Pack the prefix of a revision that is described but not yet marked; the record with the image.

    The image has the times of the files, by which Python recognises bytecode.

    Raises:
        MissingError: a program or a compiler is missing, or an image cannot be mounted on this machine.
        StackyardError: a file cannot be read, or the files are changing. Nothing is left of the image.
        OSError: the disk is full, or has another error.
    """
    possible.require_mounting(f"cannot pack {record.module}")
    assert record.adopted is not None
    paths, tree = RevisionPaths.of(record.path), Path(os.path.realpath(record.adopted.prefix))
    try:
        made_by = launcher.make(paths.launcher, adopted=True)
        noted = _noted(tree)
        packed = squashfs.pack(tree, paths.image, as_it_is=True)
        require_same(record.adopted)
        missing = stubs.make(tree, paths.prefix, paths.prefix, record.activation.change)
        own = formats.load(paths.files, contents.KIND)
        both = Contents({**own.files, **noted.files}, own.directories | noted.directories)
        result = form.described(record, packed, both, made_by)
        form.read_back(result)
    except BaseException as error:
        for left in (paths.prefix, paths.image, paths.launcher):
            disk.remove_tree(left, paths.yard)
        if isinstance(error, OSError):
            error.filename = error.filename or record.path
        raise
    form.close(paths)
    return replace(result, notices=(*record.notices, *missing, *_now_readable(noted), *_uncompiled(noted, tree)))


def _noted(tree: Path) -> Contents:
    """What every file holds, as it is in the image: times in seconds, and what some may execute all may.

    Raises:
        StackyardError: a file cannot be read.
    """
    files: dict[str, Item] = {}
    directories, path = {PARTS[0].rstrip("/")}, ""
    try:
        with at.closing(os.open(tree, at.DIR)) as top:
            for directory, path, entries in at.walk(top, PARTS[0], cross=True):
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        directories.add(path + entry.name)
                    else:
                        files[path + entry.name] = _item(directory, entry)
    except OSError as error:
        name = os.fspath(error.filename or "")
        name = (name if name.startswith(PARTS[0]) else path + name).removeprefix(PARTS[0])
        raise StackyardError(
            f"cannot pack {tree}: {cause(error)}: {name}", hint="ask its owner for the right to read all of it"
        ) from error
    return Contents(files, frozenset(directories))


def _item(directory: int, entry: os.DirEntry[str]) -> Item:
    if entry.is_symlink():
        return Item(target=os.readlink(entry.name, dir_fd=directory))
    with os.fdopen(os.open(entry.name, at.READ, dir_fd=directory), "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise at.UnexpectedFileError(errno.EINVAL, "not a plain file", entry.name)
        mode = stat.S_IMODE(status.st_mode) & ~0o222 | (stat.S_IXUSR if status.st_mode & 0o111 else 0)
        time_ns = status.st_mtime_ns // _SECOND * _SECOND
        return Item(mode, status.st_size, time_ns, sha256_stream(stream))


def _now_readable(noted: Contents) -> Iterator[str]:
    """A sentence about files that only their owner could read: in an image all can, who can read that."""
    files = ((name, item) for name, item in noted.files.items() if item.sha256 and not name.startswith(_METADATA))
    own = sorted(name for name, item in files if not item.mode & 0o044)
    if own:
        names = some([name.removeprefix(PARTS[0]) for name in own], _SHOWN)
        yield f"{counted(len(own), 'file')} that only the owner could read, and now all users of the image: {names}"


def _uncompiled(noted: Contents, tree: Path) -> Iterator[str]:
    """A sentence about missing bytecode, which Python cannot add to an image: it compiles the files at every start."""
    files = [name.rpartition("/") for name in noted.files if name.startswith(f"{PARTS[0]}lib/python")]
    modules = [(top, name[:-3]) for top, _, name in files if name.endswith(".py")]
    compiled = {
        (top.removesuffix("/__pycache__"), name.partition(".")[0]) for top, _, name in files if name.endswith(".pyc")
    }
    lacking = len(set(modules) - compiled)
    if 2 * lacking > len(modules):
        yield (
            f"{lacking:,} of {len(modules):,} Python files have no bytecode, and each start compiles what it imports: "
            f"`{tree}/bin/python -m compileall -q {tree}/lib` writes it, before it is adopted again"
        )
