"""The contents of a tree, file by file: mode, size, time and sha256, noted when it is complete and compared later.

A revision has one (``files.json``), and so has every unpacked entry of a cache (``cache/notes``). A comparison checks
size and time of every file and reads only those with a changed time; a deep one reads every byte.
"""

from __future__ import annotations

import json
import os
import re
import stat
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from stackyard.core.errors import StackyardError
from stackyard.core.late import dataclass
from stackyard.host.files import at
from stackyard.host.files.hashing import sha256_file
from stackyard.yard import disk, formats
from stackyard.yard.write import within

FORMAT = 1
_ESCAPED = re.compile(r"\\(\\|x[0-9a-f]{2})")
Tree = dict[str, os.stat_result]
"""The files and symbolic links below a directory by their relative path; directories end with a slash."""
Digest = Callable[[Path], str]
"""sha256 of a file; empty, which no file has, for one that cannot be read."""


@dataclass(frozen=True)
class Item:
    """One file: sealed permission bits, size, mtime in nanoseconds, sha256; a symbolic link has only a `target`."""

    mode: int = 0
    size: int = 0
    mtime_ns: int = 0
    sha256: str = ""
    target: str = ""


@dataclass(frozen=True)
class Contents:
    """All files of a tree by their relative path, and its directories."""

    files: Mapping[str, Item]
    directories: frozenset[str] = field(default_factory=frozenset)

    @property
    def hashed(self) -> list[str]:
        """The files whose bytes can be compared: all except links."""
        return [name for name, item in self.files.items() if item.sha256]

    def without(self, part: str) -> Contents:
        """The contents without a part (``prefix/``)."""
        files = {name: item for name, item in self.files.items() if not name.startswith(part)}
        return Contents(files, frozenset(name for name in self.directories if not f"{name}/".startswith(part)))

    def to_text(self) -> str:
        """The JSON text: one line per directory, with the names of its files."""
        rows: dict[str, dict[str, Any]] = {written(directory): {} for directory in sorted(self.directories)}
        for name, item in sorted(self.files.items()):
            directory, _, file = written(name).rpartition("/")
            row = rows.setdefault(directory, {})
            row[file] = written(item.target) or [item.mode, item.size, item.mtime_ns, item.sha256]
        lines = (
            f"{json.dumps(directory)}: {json.dumps(row, separators=(',', ':'))}" for directory, row in rows.items()
        )
        return f'{{\n  "format": {FORMAT},\n  "files": {{\n' + ",\n".join(lines) + "\n  }\n}\n"


def _read(value: dict[str, Any]) -> Contents:
    """The contents from JSON values. Raises ValueError for a name that leads out of the tree."""
    files: dict[str, Item] = {}
    for directory, row in value["files"].items():
        start = f"{'/'.join(at.parts(_name(directory)))}/" if directory else ""
        for name, item in row.items():
            path = start + at.component(_name(name))
            files[path] = Item(target=_name(item)) if isinstance(item, str) else Item(*item)
    return Contents(files, frozenset(_name(directory) for directory in value["files"] if directory))


def written(name: str) -> str:
    """A file name for JSON and the terminal: a byte that is not UTF-8 as ``\\xff``, a backslash doubled."""
    return name.replace("\\", r"\\").encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _name(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        return "\\" if match[1] == "\\" else os.fsdecode(bytes([int(match[1][1:], 16)]))

    return _ESCAPED.sub(one, text) if "\\" in text else text


KIND = formats.Kind(FORMAT, _read, hint=lambda _: "compare every byte: `stackyard verify --deep`")
"""``files.json`` of a revision, whose hash is in its record; a note on a cache's entry has a checksum of its own."""


@dataclass(frozen=True)
class Damage:
    """One file that differs from the note."""

    path: str
    what: Literal["missing", "changed", "unexpected", "permissions"]

    def __str__(self) -> str:
        text = {"missing": "is missing", "unexpected": "was added", "permissions": "has other permissions"}
        return f"{written(self.path)} {text.get(self.what, 'has changed')}"


# --------------------------------------------------------------------------- noting


def scan(root: Path, below: Collection[str] = ("",)) -> Tree:
    """Every file and directory of a tree, or of these parts of it (``prefix/``), without following links.

    A part that is a link counts as empty: its target does not belong to the tree.
    """
    tree: Tree = {}
    for part in below:
        if part and not _is_own_directory(root / part):
            continue
        top = os.open(root / part, at.DIR if part else at.DIR & ~os.O_NOFOLLOW)
        try:
            if part:
                tree[part] = os.fstat(top)
            for _, path, entries in at.walk(top, part, cross=True):
                for entry in entries:
                    name = f"{path}{entry.name}/" if entry.is_dir(follow_symlinks=False) else path + entry.name
                    tree[name] = entry.stat(follow_symlinks=False)
        except OSError as error:
            error.filename = str(root / (error.filename or part))
            raise
        finally:
            os.close(top)
    return tree


def _is_own_directory(path: Path) -> bool:
    return disk.is_directory(path) and not path.is_symlink()


def note(root: Path, tree: Tree, known: Callable[[os.stat_result], str] = lambda _: "") -> Contents:
    """The contents of a scanned tree.

    Args:
        known: returns the hash of a file that need not be read again, else an empty string.

    Raises:
        StackyardError: a file cannot be read; without its hash it would never be checked.
    """
    items: dict[str, Item] = {}
    unread: list[str] = []
    for name, status in tree.items():
        if stat.S_ISLNK(status.st_mode):
            items[name] = Item(target=str((root / name).readlink()))
        elif stat.S_ISREG(status.st_mode):
            digest = known(status)
            items[name] = _item(status, digest)
            if not digest:
                unread.append(name)
    for name, digest in zip(unread, _digests(root, unread, sha256_file), strict=True):
        items[name] = _item(tree[name], digest)
    return Contents(items, frozenset(name[:-1] for name in tree if name.endswith("/")))


def _item(status: os.stat_result, digest: str) -> Item:
    return Item(stat.S_IMODE(status.st_mode) & ~0o222, status.st_size, status.st_mtime_ns, digest)


def _digests(root: Path, names: Iterable[str], digest: Digest) -> list[str]:
    """The digests of files, in their order, computed on all cores."""
    from concurrent.futures import ThreadPoolExecutor  # late: most commands compare no file

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(lambda name: digest(root / name), names, chunksize=16))


def digest_if_readable(path: Path) -> str:
    """sha256 of a file; empty if it cannot be read."""
    try:
        return sha256_file(path)
    except StackyardError:
        return ""


def holds(path: Path, item: Item) -> bool:
    """Whether a path is a regular file, not a link, with this content."""
    is_file = path.is_file() and not path.is_symlink()
    return is_file and bool(item.sha256) and digest_if_readable(path) == item.sha256


# --------------------------------------------------------------------------- comparing


def compare(
    contents: Contents, root: Path, tree: Tree, read: Collection[str] = (), digest: Digest = digest_if_readable
) -> Iterator[Damage]:
    """Differences from the note: sizes, links and permissions of all files, and the bytes of those with a changed time.

    Args:
        read: additional files whose bytes are compared.
        digest: hashes a file; called from several threads.
    """
    doubtful = set(read)
    for name, item in contents.files.items():
        status = tree.get(name)
        if status is None:
            yield Damage(name, "missing")
        elif item.target:
            if not stat.S_ISLNK(status.st_mode) or str((root / name).readlink()) != item.target:
                yield Damage(name, "changed")
        elif not stat.S_ISREG(status.st_mode) or status.st_size != item.size:
            yield Damage(name, "changed")
            doubtful.discard(name)
        else:
            if _has_other_rights(status.st_mode, item.mode):
                yield Damage(name, "permissions")
            if status.st_mtime_ns != item.mtime_ns:
                doubtful.add(name)
    yield from (Damage(name, "missing") for name in sorted(contents.directories) if f"{name}/" not in tree)
    yield from _unexpected(contents, tree)
    names = sorted(name for name in doubtful if name in tree and contents.files[name].sha256)
    for name, sha256 in zip(names, _digests(root, names, digest), strict=True):
        if sha256 != contents.files[name].sha256:
            yield Damage(name, "changed")


def _has_other_rights(now: int, noted: int) -> bool:
    """Whether the execute or set-id bits differ; read permission may change, also through other hard links."""
    return bool((now ^ noted) & stat.S_IXUSR or now & ~noted & (stat.S_ISUID | stat.S_ISGID))


def _unexpected(contents: Contents, tree: Tree) -> Iterator[Damage]:
    for name in tree:
        known = name[:-1] in contents.directories if name.endswith("/") else name in contents.files
        if not known:
            yield Damage(name.rstrip("/"), "unexpected")


def sample(contents: Contents, most_bytes: int, seed: int, always: Callable[[str], bool]) -> list[str]:
    """The files to read: those selected by `always`, and others up to a total size, chosen by `seed` alone."""
    regular = contents.hashed
    chosen = [name for name in regular if always(name)]
    left = most_bytes - sum(contents.files[name].size for name in chosen)
    others = set(regular).difference(chosen)
    for name in sorted(others, key=lambda name: zlib.crc32(f"{seed} {name}".encode("utf-8", "surrogateescape"))):
        left -= contents.files[name].size
        if left < 0:
            break
        chosen.append(name)
    return chosen


def changes(before: Tree, after: Tree) -> list[str]:
    """The files that were changed, created, removed or replaced between two scans of one tree."""
    names = before.keys() | after.keys()
    return sorted(written(name) for name in names if _stamp(before.get(name)) != _stamp(after.get(name)))


def _stamp(status: os.stat_result | None) -> tuple[int, ...]:
    """The properties that readers do not change. A build may link and seal a file: links and write bits are omitted."""
    if status is None:
        return ()
    directory = stat.S_ISDIR(status.st_mode)
    size_and_time = () if directory else (status.st_size, status.st_mtime_ns)
    return (status.st_ino, status.st_mode & ~0o222, *size_and_time)


# --------------------------------------------------------------------------- sealing


def seal(root: Path, tree: Tree, *, directories: bool, leave: Callable[[str], bool] = lambda _: False) -> None:
    """Remove write permissions for all accounts, including the owner. A file's hard links share its mode.

    Args:
        directories: also directories, so that no file can be added, replaced or removed.
        leave: files that are not changed.
    """

    def is_open(path: str) -> bool:
        kind = stat.S_ISREG(tree[path].st_mode) or (directories and stat.S_ISDIR(tree[path].st_mode))
        return bool(kind and tree[path].st_mode & 0o222 and not leave(path))

    for directory, names in within.by_directory(filter(is_open, tree)).items():
        with at.directory(root, root / directory) as place:
            for name in names:
                with suppress(PermissionError, at.UnexpectedFileError):  # another account's, which alone can change it
                    at.set_mode(place, name, lambda status: status.st_mode & ~0o222)
