"""Converts a finished prefix to an image: packed, read back for verification, and only then are the files removed.

After a kill before the revision is marked as built, the next build removes the leftovers.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.findings import some
from stackyard.host.files.hashing import sha256_file, sha256_text
from stackyard.images.squashfs import compare, launcher, possible, stubs
from stackyard.images.squashfs import file as squashfs
from stackyard.images.squashfs.enter import run_module_within
from stackyard.make.seal import PARTS
from stackyard.yard import disk, formats
from stackyard.yard.kinds.payload import IMAGES, Form
from stackyard.yard.revision import contents
from stackyard.yard.revision.contents import Contents
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord
from stackyard.yard.write import within
from stackyard.yard.write.atomic import write_text
from stackyard.yard.write.permissions import file_mode

COMPARE_S = 3600.0


def squash(record: BuildRecord, *, order: Sequence[str] = (), read_back: bool = True) -> BuildRecord:
    """Pack the prefix of a revision that is built but not yet marked; the record with the image.

    Args:
        order: the files that a start reads first.
        read_back: require that the image is read back; else a notice says where it was not.

    Raises:
        MissingError: mksquashfs is missing, or an image cannot be mounted on this machine.
        StackyardError: the tree cannot be packed, or the packed files differ when read back; the files are kept.
        OSError: the disk is full, or has another error; the files are kept.
    """
    can_mount = not possible.lacking()
    if read_back and not can_mount:
        possible.require_mounting(f"cannot pack {record.module}")
    try:
        return _squashed(record, RevisionPaths.of(record.path), order, can_mount)
    except OSError as error:
        error.filename = error.filename or record.path  # a write to a full disk does not say where
        raise


def _squashed(record: BuildRecord, paths: RevisionPaths, order: Sequence[str], can_mount: bool) -> BuildRecord:
    packed = squashfs.pack(paths.prefix, paths.image, order=order)
    made_by = launcher.make(paths.launcher)
    noted = _without_times(formats.load(paths.files, contents.KIND))
    # the prefix becomes a directory of stubs, which run their programs from the image
    unpacked, fresh = paths.work / "unpacked", paths.work / "stubs"
    missing = stubs.make(paths.prefix, fresh, paths.prefix, record.activation.change)
    _move(paths.yard, paths.prefix, unpacked)
    if not can_mount:
        compares = f"`stackyard verify --deep {record.module}` on one that can compares every byte"
        missing.append(f"the image was not read back: the machine that packed it cannot mount it; {compares}")
    # until the record is read back, the unpacked prefix can take its place again
    try:
        _move(paths.yard, fresh, paths.prefix)
        result = described(record, packed, noted, made_by, order)
        result = replace(result, notices=(*record.notices, *missing))
        if can_mount:
            read_back(result)
    except BaseException:
        disk.remove_tree(paths.prefix, paths.yard)
        _move(paths.yard, unpacked, paths.prefix)
        raise
    close(paths)
    return result


def described(
    record: BuildRecord, packed: squashfs.PackedTree, noted: Contents, made_by: str, order: Sequence[str] = ()
) -> BuildRecord:
    """The record with its image, whose stubs are in place; writes the list of its files.

    Args:
        made_by: the kind of its launcher.
    """
    paths, text = RevisionPaths.of(record.path), noted.to_text()
    within.set_mode(paths.yard, paths.image, lambda _: file_mode() & 0o444)
    write_text(paths.files, text)
    return replace(
        record,
        form=Form("squashfs", paths.image.name, packed.sha256, packed.size, packed.entries,
                  f"{packed.tool}; launcher: {made_by}", tuple(order), sha256_file(paths.launcher)),
        files_sha256=sha256_text(text),
        disk=_use(paths, packed),
    )  # fmt: skip


def close(paths: RevisionPaths) -> None:
    """Remove what was needed to pack, and the write permissions of the stubs."""
    disk.remove_tree(paths.work, paths.yard)
    contents.seal(paths.root, contents.scan(paths.root, PARTS[:1]), directories=True)


def _move(top: Path, source: Path, target: Path) -> None:
    """Rename a directory, which may be sealed; renaming needs write permission on it."""
    within.set_mode(top, source, lambda status: status.st_mode | stat.S_IWUSR)
    within.rename(top, source, target)


def _without_times(noted: Contents) -> Contents:
    """The contents with all times 0, as in an image, so that the same files give the same image."""
    inside = PARTS[0]
    files = {
        name: replace(item, mtime_ns=0) if name.startswith(inside) and item.sha256 else item
        for name, item in noted.files.items()
    }
    return replace(noted, files=files)


def _use(paths: RevisionPaths, packed: squashfs.PackedTree) -> disk.DiskUse:
    tree = contents.scan(paths.root, PARTS[:1])
    use = disk.measure([*tree.values(), paths.image.stat(), paths.launcher.stat()])
    return replace(use, link_mode="image")


def read_back(record: BuildRecord) -> None:
    """Compare every byte of the mounted image with the build."""
    alone = {**os.environ, IMAGES: ""}
    done = run_module_within(record.payload, compare.__name__, record.path, timeout_s=COMPARE_S, environ=alone)
    if done.returncode:
        differs = done.stdout.splitlines() or [done.stderr.strip()]
        raise StackyardError(
            f"{RevisionPaths.of(record.path).image.name} does not hold what was packed: {some(differs, 3)}",
            hint="see whether the disk or the memory of this machine is faulty, and deploy again",
        )
