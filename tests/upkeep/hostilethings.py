"""What a hostile account puts at a path, and the tree into which that leads."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hostilebed import Bed

TOKEN = b"what only its owner may read: 5f0c"
DEEP, MANY = 3_000, 100_000


@dataclass
class Sentinel:
    """A tree of an account, into which hostile names lead."""

    root: Path
    uid: int

    def make(self) -> None:
        for directory in (self.root, self.root / "folder"):
            directory.mkdir()
        for name, mode in (
            ("file", 0o600),
            ("program", 0o4755),
            ("folder/inner", 0o600),
            ("folder/record.json", 0o640),
        ):
            path = self.root / name
            path.write_bytes(TOKEN + name.encode())
            os.chown(path, self.uid, -1)
            path.chmod(mode)
        for directory in (self.root, self.root / "folder"):
            os.chown(directory, self.uid, -1)
            directory.chmod(0o755)

    def state(self) -> dict[str, tuple[object, ...]]:
        """What must stay: names, modes, owners, times and bytes of all."""
        return {
            str(path.relative_to(self.root)): (
                oct(s.st_mode),
                s.st_uid,
                s.st_gid,
                s.st_size,
                s.st_mtime_ns,
                digest(path),
            )
            for path in (self.root, *self.root.rglob("*"))
            for s in (path.lstat(),)
        }

    def links(self) -> dict[str, int]:
        """How many names each file has; a command may remove one that is in a yard, and make none."""
        return {str(path): path.lstat().st_nlink for path in self.root.rglob("*") if path.is_file()}

    def inodes(self) -> set[tuple[int, int]]:
        return {(s.st_dev, s.st_ino) for path in self.root.rglob("*") for s in (path.lstat(),)}


def digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


@dataclass
class Hostility:
    """Something that is put at a path; `acts` gets the bed and the path, whose directory exists."""

    name: str
    put: Callable[[Bed, Path, int], None]


def _link(target: Callable[[Bed], Path]) -> Callable[[Bed, Path, int], None]:
    return lambda bed, path, uid: path.symlink_to(target(bed))


def _fifo(bed: Bed, path: Path, uid: int) -> None:
    os.mkfifo(path, 0o666)
    path.chmod(0o666)


def _device(bed: Bed, path: Path, uid: int) -> None:
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    path.chmod(0o666)


def _foreign(bed: Bed, path: Path, uid: int) -> None:
    path.write_text("{}")
    os.chown(path, bed.other.uid, bed.other.gid)
    path.chmod(0o600)


def _hard_link(target: Callable[[Bed], Path]) -> Callable[[Bed, Path, int], None]:
    def put(bed: Bed, path: Path, uid: int) -> None:
        path.hardlink_to(target(bed))

    return put


def deep(bed: Bed, path: Path, uid: int) -> None:
    bed.deep(uid).rename(path)


def many(bed: Bed, path: Path, uid: int) -> None:
    if path.parent.name in NOTES:
        _many_notes(path, uid)
    else:
        bed.many(uid).rename(path)


NOTES = {
    "usage": ("h{}.{uid}.2020-01.log", "2020-01-01 run tool/1.0-py3-1\n"),
    "uses": ("tool~1.0-py3-1@h{}.1.{uid}.json", '{"revision": "/x", "what": "run"}'),
    "children": ("{:032x}.json", '{"yard": "/nonexistent/{uid}"}'),
}
"""What a note of an account is called in a directory that it may add to, and what it says."""


def _many_notes(path: Path, uid: int) -> None:
    """As many notes of one account beside a path, all of them names of the same file, and one at the path."""
    name, text = NOTES[path.parent.name]
    path.write_text(text)
    os.chown(path, uid, -1)
    for number in range(MANY):
        with suppress(FileExistsError):
            os.link(path, path.with_name(name.format(number, uid=uid)))


def _tmpfs(bed: Bed, path: Path, uid: int) -> None:
    path.mkdir()
    bed.mount(path, "-t", "tmpfs", "-o", f"uid={uid},mode=0777", "none")
    (path / "inner").write_text("{}")


def _bind(bed: Bed, path: Path, uid: int) -> None:
    path.mkdir()
    bed.mount(path, "--bind", str(bed.sentinel.root / "folder"))


HOSTILITIES = [
    Hostility("link to a directory of root's", _link(lambda bed: bed.sentinel.root / "folder")),
    Hostility("link to a file of root's", _link(lambda bed: bed.sentinel.root / "file")),
    Hostility("link to a directory of the owner's", _link(lambda bed: bed.own_sentinel.root / "folder")),
    Hostility("link to a file of the owner's", _link(lambda bed: bed.own_sentinel.root / "file")),
    Hostility("link to itself", lambda bed, path, uid: path.symlink_to(path.name)),
    Hostility("FIFO", _fifo),
    Hostility("device", _device),
    Hostility("file of another account", _foreign),
    Hostility("hard link to a program of root's", _hard_link(lambda bed: bed.sentinel.root / "program")),
    Hostility("hard link to a file of the owner's", _hard_link(lambda bed: bed.own_sentinel.root / "file")),
    Hostility("3,000 directories in each other", deep),
    Hostility("a tmpfs", _tmpfs),
    Hostility("a bind mount", _bind),
    Hostility("100,000 names", many),
]
COSTLY = ("100,000 names",)


def make_deep(path: Path, uid: int) -> None:
    path.mkdir()
    os.chown(path, uid, -1)
    fd = os.open(path, os.O_RDONLY)
    for _ in range(DEEP):
        os.mkdir("d", dir_fd=fd)
        os.chown("d", uid, -1, dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
