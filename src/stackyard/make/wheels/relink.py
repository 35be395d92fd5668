"""Makes a compiled wheel valid for other prefixes than the one it was compiled in.

A library search path into the prefix becomes relative to the file (``$ORIGIN``), which holds in every prefix. Other
places that name the prefix (a text in a library, a script, a configuration file) are changed when the wheel is used in
another prefix, as conda does with its packages: a text gets the new path; in a binary file nothing may move, so a
shorter path is followed by slashes, and a longer one is impossible.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import posixpath
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from stackyard.host.files.hashing import urlsafe
from stackyard.host.run.view import View
from stackyard.make.job import Job
from stackyard.make.wheels import runpath

_PLACEHOLDER = 160
"""The length of a placeholder. What is more than the path of a prefix becomes slashes in texts of binary files."""
_LONGEST_NAME = 255
_RECORD = ".dist-info/RECORD"
_ORIGIN = "$ORIGIN"
Change = Callable[[str, bytes], bytes]
"""The new content of a file of a wheel, from its name and its content."""


class NoRoomError(Exception):
    """A binary file has no room for the longer path of another prefix; `file` is its name in the wheel."""

    def __init__(self, file: str) -> None:
        super().__init__(file)
        self.file = file


@dataclass(frozen=True)
class Target:
    """Where a wheel is installed.

    Attributes:
        prefix: the prefix; a program may name it by this path or by the one without symbolic links.
        site_packages: the directory of packages in it.
    """

    prefix: Path
    site_packages: Path

    @classmethod
    def of(cls, prefix: Path, job: Job) -> Target:
        """A prefix with the layout of a job's."""
        return cls(prefix, prefix / job.site_packages.relative_to(job.prefix))

    @property
    def spellings(self) -> tuple[str, str]:
        """The path of the prefix, and the same without symbolic links."""
        return os.fspath(self.prefix), os.path.realpath(self.prefix)

    def installed(self, name: str) -> str:
        """The path below the prefix at which a file of a wheel is installed."""
        parts = name.split("/")
        site = self.site_packages.relative_to(self.prefix).as_posix()
        if not parts[0].endswith(".data") or len(parts) < 3:
            return f"{site}/{name}"
        scheme = {"data": "", "scripts": "bin/", "headers": "include/"}.get(parts[1], f"{site}/")
        return scheme + "/".join(parts[2:])


def placeholder(work: Path, prefix: Path) -> Path:
    """A second, long name for the prefix while a package is compiled, in the work directory."""
    real = os.path.realpath(work)
    length = max(_PLACEHOLDER, len(os.fsencode(prefix))) - len(os.fsencode(real)) - 1
    return Path(real, "prefix".ljust(length, "_")[:_LONGEST_NAME])


def named(placeholder: Path, job: Job) -> View:
    """The view in which the prefix has the placeholder as its second name.

    Programs cannot tell a mount from the directory. Where that is impossible it is a link, which some resolve: GCC
    writes the real path of a system header into ``__FILE__`` if it is the shorter one.
    """
    placeholder.mkdir()
    view = job.view(placeholder.parent, job.uv_cache, names=((placeholder, job.prefix),))
    if not view.readonly:
        placeholder.rmdir()
        placeholder.symlink_to(job.prefix)
    return view


def without_prefix(wheel: Path, target: Target, placeholder: Path, result: Path) -> bool:
    """Write the wheel with search paths relative to its files, if it has one into the prefix or the work directory.

    Args:
        placeholder: the other name of the prefix, in the work directory; search paths into the rest of that are left
            out, since it is removed.

    Returns:
        Whether the wheel differs, so that `result` was written.
    """
    return _changed(wheel, result, lambda name, data: _relative(name, data, target, placeholder))


def for_prefix(wheel: Path, compiled: Target, target: Target, result: Path) -> bool:
    """Write a wheel that was compiled in one prefix for another one; whether it differs.

    Raises:
        NoRoomError: the path of the other prefix is longer, and a binary file names the first one.
    """
    as_written, real = zip(compiled.spellings, target.spellings, strict=True)
    pairs = dict((real, as_written))  # the same path where no link is left: the first one holds

    def change(name: str, data: bytes) -> bytes:
        data = _relative(name, data, compiled, None)
        for old, new in sorted(pairs.items(), key=lambda pair: -len(pair[0])):
            data = _replaced(name, data, os.fsencode(old), os.fsencode(new))
        return data

    return _changed(wheel, result, change)


def names(wheel: Path, paths: Iterable[str]) -> bool:
    """Whether a file in a wheel contains one of these paths."""
    needles = list(map(os.fsencode, paths))
    with zipfile.ZipFile(wheel) as bundle:
        contents = (bundle.read(info) for info in bundle.infolist() if not info.is_dir())
        return any(needle in data for data in contents for needle in needles)


def _relative(name: str, data: bytes, target: Target, placeholder: Path | None) -> bytes:
    """An ELF file with relative search paths; any other file as it is."""
    roots, gone = list(target.spellings), []
    if placeholder is not None:
        roots.append(os.fspath(placeholder))
        gone = [os.fspath(placeholder.parent)]
    if not data.startswith(runpath.MAGIC) or not any(os.fsencode(root) in data for root in (*roots, *gone)):
        return data
    directory = posixpath.dirname(target.installed(name))

    def entry(text: str) -> str:
        """A directory of a search path: relative if it is in the prefix, empty if it is in the work directory."""
        inner = next((rest for root in roots if (rest := _below(text, root)) is not None), None)
        if inner is not None:
            return _from(directory, inner)
        return "" if any(_below(text, root) is not None for root in gone) else text

    def change(text: str) -> str:
        entries = dict.fromkeys(filter(None, map(entry, text.split(":"))))
        return ":".join(entries) or _ORIGIN  # an empty one can mean the current directory

    return runpath.rewritten(data, change)


def _below(path: str, root: str) -> str | None:
    """The rest of a path below a directory; None if it is not below it."""
    return path.removeprefix(root).strip("/") if path == root or path.startswith(f"{root}/") else None


def _from(directory: str, path: str) -> str:
    """A path below the prefix as the loader finds it from a file in this directory below the prefix."""
    above, below = [[part for part in text.split("/") if part not in ("", ".")] for text in (directory, path)]
    while above and below and above[0] == below[0]:
        del above[0], below[0]
    return "/".join([_ORIGIN, *[".."] * len(above), *below])


def _replaced(name: str, data: bytes, old: bytes, new: bytes) -> bytes:
    if old == new or old not in data:
        return data
    if b"\0" not in data:
        return data.replace(old, new)
    if len(new) > len(old):
        raise NoRoomError(name)
    return data.replace(old, new.ljust(len(old), b"/"))


def _changed(wheel: Path, result: Path, change: Change) -> bool:
    """Write a wheel with changed files and their hashes in its RECORD; nothing is written if no file changes."""
    with zipfile.ZipFile(wheel) as bundle:
        infos = [info for info in bundle.infolist() if not info.is_dir()]
        contents = ((info.filename, bundle.read(info)) for info in infos)
        new = {name: after for name, data in contents if (after := _after(name, data, change)) != data}
        if not new:
            return False
        with zipfile.ZipFile(result, "w") as out:
            for info in bundle.infolist():
                data = new.get(info.filename) or bundle.read(info)
                out.writestr(info, _record(data, new) if _is_record(info.filename) else data)
    return True


def _after(name: str, data: bytes, change: Change) -> bytes:
    return data if _is_record(name) else change(name, data)


def _is_record(name: str) -> bool:
    return name.endswith(_RECORD) and name.count("/") == 1


def _record(record: bytes, new: dict[str, bytes]) -> bytes:
    """A RECORD with the hashes and sizes of changed files."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerows(_row(row, new) for row in csv.reader(io.StringIO(record.decode("utf-8"), newline="")))
    return out.getvalue().encode("utf-8")


def _row(row: list[str], new: dict[str, bytes]) -> Iterable[str]:
    if not row or row[0] not in new:
        return row
    data = new[row[0]]
    return row[0], f"sha256={urlsafe(hashlib.sha256(data).digest())}", str(len(data))
