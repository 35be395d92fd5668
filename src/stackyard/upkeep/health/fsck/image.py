"""The check of an image revision: its image, stubs and launcher; and the files inside a mounted image.

python -m stackyard.upkeep.health.fsck.image REVISION     prints the faults of a mounted image, as JSON
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from stackyard.core.errors import MissingError, StackyardError
from stackyard.host.files import automount
from stackyard.images.squashfs import file as squashfs
from stackyard.images.squashfs.enter import run_module_within
from stackyard.images.squashfs.launcher import compare
from stackyard.images.squashfs.stubs import text_of
from stackyard.make.seal import PARTS
from stackyard.upkeep.health.fsck.fault import Fault, What
from stackyard.upkeep.health.fsck.owners import Owners
from stackyard.upkeep.health.fsck.reading import Reader
from stackyard.upkeep.health.fsck.trees import differences
from stackyard.verify.checks.content import noted_contents
from stackyard.yard import disk
from stackyard.yard.kinds.payload import IMAGES, STUB, Prefix
from stackyard.yard.revision import contents
from stackyard.yard.revision.contents import Contents, Item, Tree
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord, read_record

_MOST_LINKS = 40
TIMEOUT_S = 4 * 3600.0


def unanswered(record: BuildRecord) -> Fault | None:
    """A fault if a file system mounted on the prefix does not respond: every access would hang."""
    try:
        automount.require_answer(Path(record.prefix))
    except MissingError as error:
        text = error.message.removeprefix(f"{record.prefix} ")
        return Fault(Path(record.prefix), "unreadable", text, remedy=error.hint or "")
    return None


def image_faults(record: BuildRecord, reader: Reader, *, deep: bool) -> Iterator[Fault]:
    """Faults of the image compared with the packed one: its size and superblock, or every byte.

    An image that was written after the record, which is written last, is read whole.
    """
    paths, packed = RevisionPaths.of(record.path), record.payload.facts()
    path = paths.image
    if not disk.is_there(path):
        yield Fault(path, "missing", "is missing")
        return
    status = path.stat()
    size, deep = status.st_size, deep or (paths.record.exists() and status.st_mtime > paths.record.stat().st_mtime + 1)
    if size != packed["bytes"]:
        yield Fault(path, "changed", f"{size:,} bytes instead of {packed['bytes']:,}")
        return
    try:
        squashfs.superblock(path)
        digest = reader.digest(path) if deep else packed["sha256"]
    except StackyardError as error:
        yield Fault(path, "changed", error.message.removeprefix(f"{path} "))
        return
    if not digest:
        yield Fault(path, "unreadable", "cannot be read")
    elif digest != packed["sha256"]:
        yield Fault(path, "changed", f"sha256 {digest[:16]} instead of {packed['sha256'][:16]}")
        yield from _inner(record, path)


def _inner(record: BuildRecord, path: Path) -> Iterator[Fault]:
    """The changed files inside a damaged image, if it can be mounted here."""
    if not record.payload.is_packed:
        return
    if compare.problem(record):  # it would mount the image, and could show anything
        yield Fault(path, "unreadable", "its files are not compared: the launcher is not that of the record")
        return
    try:
        alone = {**os.environ, IMAGES: ""}
        done = run_module_within(record.payload, __spec__.name, record.path, timeout_s=TIMEOUT_S, environ=alone)
        rows = json.loads(done.stdout)
    except (StackyardError, ValueError) as error:
        yield Fault(path, "unreadable", f"its files cannot be compared: {error}")
        return
    for row in rows:
        where = Path(record.path, row["path"])
        yield Fault(where, cast(What, row["what"]), f"in the image: {row['text']}", package=row["package"])
    if not rows:
        yield Fault(path, "changed", "no file in it differs: the change is in bytes that no file has")


def inside(root: Path) -> list[dict[str, str]]:
    """The faults of the files of a revision whose image is mounted, as JSON values."""
    record = read_record(RevisionPaths.of(root).record)
    if not record.payload.is_visible:
        raise StackyardError(f"{RevisionPaths.of(root).image.name} is not mounted on {record.prefix}")
    noted, owners = noted_contents(record), Owners(Path(record.prefix))
    tree = contents.scan(root, PARTS)
    pairs = differences(root, tree, noted, noted.hashed, Reader().digest)
    return [
        {"path": contents.written(name), "what": fault.what, "text": fault.text, "package": owners.of(name)}
        for name, fault in pairs
        if name.startswith(PARTS[0])
    ]


# --------------------------------------------------------------------------- stubs


def stub_faults(record: BuildRecord, noted: Contents, tree: Tree) -> Iterator[Fault]:
    """Faults of the stubs beside an image: one link for each command, and copies of some files in the image.

    Args:
        tree: the present files of the revision, with stubs for the files in the image.
    """
    root, expected = Path(record.path), links(record, noted)
    for name in sorted(expected.keys() - tree.keys()):
        yield Fault(root / name, "missing", "is missing: the command does not start where the image is not mounted")
    mark = Path(record.prefix, STUB)
    if not disk.is_file(mark) or disk.content(mark) != text_of(Path(record.prefix)).encode():
        yield Fault(mark, "changed", "does not have the text by which stubs are known")
    for name, status in tree.items():
        if name.startswith(PARTS[0]) and not name.endswith("/") and name != PARTS[0] + STUB:
            text = _wrong_stub(root / name, status.st_mode, expected.get(name, ""), noted.files.get(name))
            if text:
                yield Fault(root / name, "changed", text)


def links(record: BuildRecord, noted: Contents) -> dict[str, str]:
    """The links that the commands of an image need, with their targets; some commands have a copy instead."""
    result = {}
    for directory in Prefix(Path(record.prefix)).program_directories:
        inside_of = directory.relative_to(record.path)
        target = "/".join([".."] * len(inside_of.parts)) + "/launch"
        for name, item in noted.files.items():
            here = name.rpartition("/")[0] == inside_of.as_posix()
            if here and _runs(record, name, noted) and not contents.holds(Path(record.path, name), item):
                result[name] = target
    return result


def _runs(record: BuildRecord, name: str, noted: Contents) -> bool:
    """Whether a file of the image is a program, or a link to one in the image or on the host."""
    for _ in range(_MOST_LINKS):
        item = noted.files.get(name)
        if item is None:
            return os.access(Path(record.path, name), os.X_OK) and not name.startswith(PARTS[0])
        if not item.target:
            return bool(item.mode & stat.S_IXUSR)
        target = os.path.join(record.path, os.path.dirname(name), item.target)  # noqa: PTH118, PTH120
        name = os.path.relpath(target, record.path)
        name = target if name.startswith("../") else name
    return False


def _wrong_stub(path: Path, mode: int, target: str, item: Item | None) -> str:
    """The fault of a stub; empty: none."""
    if stat.S_ISLNK(mode):
        now = str(path.readlink())
        return "" if now == target else f"is a link to {now}"
    if item is None:
        return "was added"
    same = not item.sha256 or contents.holds(path, item)
    return "" if same else f"is not the file of the image, which has sha256 {item.sha256[:16]}"


def launcher_fault(record: BuildRecord) -> Fault | None:
    """The fault of the launcher behind the stubs, if any."""
    problem = compare.problem(record)
    return Fault(problem.path, problem.what, problem.text) if problem else None


if __name__ == "__main__":
    print(json.dumps(inside(Path(sys.argv[1]))))
