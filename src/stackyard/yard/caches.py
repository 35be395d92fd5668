"""The kinds of cache in a yard: where each is, what its entries and leftovers look like, how an entry is audited.

An entry is written under a temporary name that starts with a dot and is then renamed. So a name without a dot is a
complete entry, and a name with one is a leftover unless a build is running. Only the table `KINDS` defines this: the
audit and the removal of leftovers iterate over it.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from stackyard.errors import StackyardError
from stackyard.host.hashing import sha256_file
from stackyard.yard.layout import Yard

Audit = Callable[[Path], Iterator[str]]
"""Reads one entry completely and yields its problems, a sentence each."""


@dataclass(frozen=True)
class Kind:
    """One kind of cache.

    Attributes:
        folder: its directory in a yard.
        entries: a glob below that directory that matches every entry; empty where another program lays it out.
        audit: how an entry is checked; None where it holds no hash of itself. What is made of it is checked then.
        scratch: globs of work directories besides the temporary names of entries.
        besides: globs of names that are neither entries nor leftovers: locks and notes of the program that writes here.
    """

    name: str
    folder: Callable[[Yard], Path]
    entries: str = ""
    audit: Audit | None = None
    scratch: tuple[str, ...] = ()
    besides: tuple[str, ...] = ()

    def complete(self, yard: Yard) -> list[Path]:
        """Its complete entries, sorted."""
        patterns = (self.entries,) if self.entries else ()
        return [path for path in self._found(yard, patterns) if not path.name.startswith(".")]

    def leftovers(self, yard: Yard) -> list[Path]:
        """Its half-written entries and work directories, sorted. A running build has some, too."""
        patterns = (_hidden(self.entries), *self.scratch) if self.entries else self.scratch
        return self._found(yard, patterns)

    def problems(self, yard: Yard) -> Iterator[str]:
        """What its audit finds in all complete entries, a sentence each."""
        if self.audit is None:
            return
        for entry in self.complete(yard):
            try:
                yield from self.audit(entry)
            except (OSError, ValueError, KeyError, TypeError, StackyardError) as error:
                yield f"{entry} cannot be checked: {error}"

    def _found(self, yard: Yard, patterns: Iterable[str]) -> list[Path]:
        paths = {path for pattern in patterns for path in self.folder(yard).glob(pattern)}
        return sorted(path for path in paths if not any(fnmatch(path.name, other) for other in self.besides))


def _hidden(pattern: str) -> str:
    """The same glob for temporary names: ``??/*`` becomes ``??/.*``."""
    above, slash, _ = pattern.rpartition("/")
    return f"{above}{slash}.*"


def content_hash(folder: Path, files: Iterable[str]) -> str:
    """sha256 over the files of one package's bytecode, in their order."""
    digest = hashlib.sha256()
    for name in files:
        path = folder / name
        digest.update(hashlib.sha256(path.read_bytes()).digest() if path.is_file() else b"missing")
    return digest.hexdigest()


def _audit_package(folder: Path) -> Iterator[str]:
    """An unpacked conda package against its own ``info/paths.json``."""
    listing = folder / "info" / "paths.json"
    for entry in json.loads(listing.read_text(encoding="utf-8"))["paths"]:
        path, expected = folder / entry["_path"], entry.get("sha256")
        if not path.is_symlink() and not path.exists():
            yield f"{path} is missing"
        elif expected and path.is_file() and not path.is_symlink() and sha256_file(path) != expected:
            yield f"{path} has changed"


def _audit_source(path: Path) -> Iterator[str]:
    """A source archive against the name of its directory."""
    if sha256_file(path) != path.parent.name:
        yield f"{path} has changed"


def _audit_wheel(folder: Path) -> Iterator[str]:
    """A compiled wheel against its ``meta.json``."""
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    wheel = folder / meta["wheel"]
    if not wheel.is_file() or sha256_file(wheel) != meta["sha256"]:
        yield f"{wheel} has changed"


def _audit_bytecode(folder: Path) -> Iterator[str]:
    """A package's bytecode against its ``files.json``."""
    value = json.loads((folder / "files.json").read_text(encoding="utf-8"))
    if content_hash(folder, value["files"]) != value["content"]:
        yield f"{folder} has changed"


def _audit_unpacked_wheel(folder: Path) -> Iterator[str]:
    """A wheel that uv unpacked, against its RECORD."""
    for record in sorted(folder.glob("*.dist-info/RECORD")):
        with record.open(encoding="utf-8", newline="") as stream:
            rows = [row for row in csv.reader(stream) if len(row) > 1 and row[1].startswith("sha256=")]
        for name, expected, *_ in rows:
            path = folder / name
            found = hashlib.sha256(path.read_bytes()).digest() if path.is_file() else b""
            if base64.urlsafe_b64encode(found).rstrip(b"=").decode() != expected.removeprefix("sha256="):
                yield f"{path} has changed"


KINDS = (
    Kind("conda", lambda yard: yard.conda, "*", _audit_package, besides=("*.lock",)),
    Kind("sources", lambda yard: yard.sources, "*/*", _audit_source),
    Kind("wheels", lambda yard: yard.wheels, "??/*", _audit_wheel, scratch=(".*",)),
    Kind("bytecode", lambda yard: yard.bytecode, "*/??/*", _audit_bytecode),
    Kind("uv", lambda yard: yard.uv, "archive-v*/*", _audit_unpacked_wheel),
    Kind("repodata", lambda yard: yard.repodata),
    Kind("python", lambda yard: yard.pythons),
    Kind("memo", lambda yard: yard.memos, "*.json"),
)
