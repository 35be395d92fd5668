"""The kinds of cache in a yard: the directory, the names of entries and leftovers, and the audit of an entry.

An entry is written under a temporary name that starts with a dot and is then renamed. So a name without a dot is a
complete entry, and a name with one is a leftover unless a build is running. Only the table `KINDS` defines this: the
audit and the removal of leftovers iterate over it.
"""

from __future__ import annotations

import csv
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.late import dataclass
from stackyard.host.files import at
from stackyard.host.files.hashing import sha256_file, urlsafe
from stackyard.yard import checksum, disk, formats
from stackyard.yard.layout import ACCOUNTS, Yard, own_part

NOTE_REVISION = (1).to_bytes(8, "big")
"""What rattler's note beside an unpacked package begins with."""
Audit = Callable[[Path], Iterator[str]]
"""Reads one entry completely and yields its problems, a sentence each."""


@dataclass(frozen=True)
class Kind:
    """One kind of cache.

    Attributes:
        directory: its directory in a yard.
        entries: a glob below that directory that matches every entry; empty if another program defines the layout.
        audit: checks an entry; None if it has no hash of itself. In that case its products are checked.
        scratch: globs of work directories besides the temporary names of entries.
        besides: globs of names that are neither entries nor leftovers: locks and notes of the program that writes here.
        linked: whether files of its entries are linked into prefixes: each entry then has a note (`yard.cache.notes`),
            and its files are read-only.
        companions: returns the files beside an entry that belong to it and are removed with it.
        is_rewritten: whether a file of an entry is copied and changed for a prefix: such files keep their mode.
    """

    name: str
    directory: Callable[[Yard], Path]
    entries: str = ""
    audit: Audit | None = None
    scratch: tuple[str, ...] = ()
    besides: tuple[str, ...] = ()
    linked: bool = False
    companions: Callable[[Path], Iterable[Path]] = lambda _: ()
    is_rewritten: Callable[[str], bool] = lambda _: False

    def complete(self, yard: Yard) -> list[Path]:
        """The complete entries, sorted."""
        patterns = (self.entries,) if self.entries else ()
        return [path for path in self._found(yard, patterns) if not path.name.startswith(".")]

    def leftovers(self, yard: Yard) -> list[Path]:
        """The half-written entries and work directories, sorted. A running build has some, too."""
        patterns = (_hidden(self.entries), *self.scratch) if self.entries else self.scratch
        return self._found(yard, patterns)

    def discard(self, entry: Path, yard: Yard) -> None:
        """Remove an entry of a yard with its companion files."""
        top = trusted(yard)
        for path in [*self.companions(entry), entry]:
            disk.remove_tree(path, top)

    def audited(self, entry: Path) -> Iterator[str]:
        """The problems of one entry. Reads every byte."""
        try:
            yield from self.audit(entry) if self.audit else ()
        except (OSError, ValueError, KeyError, TypeError, StackyardError) as error:
            yield unchecked(entry, error)

    def _found(self, yard: Yard, patterns: Iterable[str]) -> list[Path]:
        paths = {path for pattern in patterns for path in self.directory(yard).glob(pattern)}
        return sorted(path for path in paths if not any(fnmatch(path.name, other) for other in self.besides))


def unchecked(entry: Path, error: Exception) -> str:
    """The problem text for an entry that cannot be read completely."""
    return f"{entry} cannot be checked: {error}"


def _hidden(pattern: str) -> str:
    """The glob for temporary names: ``??/*`` becomes ``??/.*``."""
    above, slash, _ = pattern.rpartition("/")
    return f"{above}{slash}.*"


def trusted(yard: Yard) -> Path:
    """The directory below which no link is followed to cached files.

    This is the yard; or the target of the cache's own link, with which its owner may keep it elsewhere.
    """
    shared = replace(yard, account="").cache
    try:
        link = shared.lstat()
        is_owners = stat.S_ISLNK(link.st_mode) and link.st_uid in (0, yard.root.stat().st_uid)
    except OSError:
        is_owners = False
    return shared if is_owners else yard.root


def make(yard: Yard) -> None:
    """Create the cache of a yard that has none, before anything is written to it: the creating account owns it."""
    if yard.account is None:
        replace(yard, account="").cache.mkdir(parents=True, exist_ok=True)


def parts(yard: Yard) -> tuple[Yard, ...]:
    """A yard once for each part of its cache: the current one, then the others that this account may read."""
    yard = own_part(yard) if yard.account is None else yard
    shared = replace(yard, account="")
    others = (shared, *(replace(yard, account=name) for name in _accounts(shared)))
    return (yard, *(part for part in others if part != yard and may_look_into(part.cache)))


def searched(yard: Yard) -> tuple[Yard, ...]:
    """The caches in the order of look-ups: this yard's, with this account's part first, then those of its parents."""
    own, *parents = yard.lineage()
    return (*parts(own), *(part for parent in parents for part in parts(parent) if may_look_into(part.cache)))


def _accounts(shared: Yard) -> list[str]:
    try:
        return sorted(disk.names(shared.cache / ACCOUNTS))
    except PermissionError:
        return []


def may_look_into(directory: Path) -> bool:
    """Whether this account can read a directory; a site may close its cache, or a part of it, to users."""
    return os.access(directory, os.R_OK | os.X_OK)


def unpacked_from(yard: Yard, stem: str) -> str:
    """The sha256 of the archive of an unpacked conda package, as rattler noted it; empty if it did not."""
    try:
        return at.read_regular(yard.package_note(stem))[len(NOTE_REVISION) :].hex()
    except OSError:
        return ""


def content_hash(directory: Path, files: Iterable[str]) -> str:
    """sha256 over the files of one package's bytecode, in their order."""
    digest = hashlib.sha256()
    for name in files:
        digest.update(_digest(directory.joinpath(*at.parts(name))) or b"missing")
    return digest.hexdigest()


def _digest(path: Path) -> bytes:
    """sha256 of a file; empty if nothing has this path."""
    content = disk.content(path)
    return b"" if content is None else hashlib.sha256(content).digest()


def _audit_package(directory: Path) -> Iterator[str]:
    """The problems of an unpacked conda package, compared with its own ``info/paths.json``."""
    listing = directory / "info" / "paths.json"
    for entry in formats.content(at.read_regular(listing))["paths"]:
        path, expected = directory.joinpath(*at.parts(entry["_path"])), entry.get("sha256")
        try:
            is_file = stat.S_ISREG(path.lstat().st_mode)
        except disk.ABSENT:
            yield f"{path} is missing"
            continue
        if is_file and expected and sha256_file(path) != expected:
            yield f"{path} has changed"


def _audit_source(path: Path) -> Iterator[str]:
    """The problems of a source archive, compared with the name of its directory."""
    if sha256_file(path) != path.parent.name:
        yield f"{path} has changed"


def _audit_wheel(directory: Path) -> Iterator[str]:
    """The problems of a compiled wheel, compared with its ``meta.json``."""
    meta = formats.content(checksum.read(directory / "meta.json"))
    wheel = directory / at.component(meta["wheel"])
    if not wheel.is_file() or sha256_file(wheel) != meta["sha256"]:
        yield f"{wheel} has changed"


def _audit_bytecode(directory: Path) -> Iterator[str]:
    """The problems of a package's bytecode, compared with its ``files.json``."""
    value = formats.content(checksum.read(directory / "files.json"))
    if content_hash(directory, value["files"]) != value["content"]:
        yield f"{directory} has changed"


def _audit_unpacked_wheel(directory: Path) -> Iterator[str]:
    """The problems of a wheel that uv unpacked, compared with its RECORD."""
    for record in sorted(directory.glob("*.dist-info/RECORD")):
        lines = at.read_regular(record).decode("utf-8").splitlines(keepends=True)
        rows = [row for row in csv.reader(lines) if len(row) > 1 and row[1].startswith("sha256=")]
        for name, expected, *_ in rows:
            path = directory.joinpath(*at.parts(name))
            if urlsafe(_digest(path)) != expected.removeprefix("sha256="):
                yield f"{path} has changed"


def _audit_note(path: Path) -> Iterator[str]:
    """The problems of a note on an entry, compared with its own checksum."""
    if not checksum.remove(at.read_regular(path).decode("utf-8"))[1]:
        yield f"{path} has changed"


def _uv_pointers(archive: Path) -> Iterator[Path]:
    """uv's links to an unpacked wheel, with the files beside each that record the link's target."""
    for link in archive.parents[1].glob("wheels-v*/**/*"):
        if link.is_symlink() and (link.parent / link.readlink()).resolve() == archive.resolve():
            yield from (path for path in link.parent.iterdir() if path.name.startswith(f"{link.name}."))
            yield link


def _links_beside(interpreter: Path) -> Iterator[Path]:
    """uv's other names for an interpreter: links to its directory."""
    for path in disk.entries(interpreter.parent):
        if path.is_symlink() and (path.parent / path.readlink()) == interpreter:
            yield path


CONDA = Kind(
    "conda",
    lambda yard: yard.conda,
    "*",
    _audit_package,
    besides=("*.lock", "urls.txt"),
    linked=True,
    companions=lambda package: [package.with_name(f"{package.name}.lock")],
)
BYTECODE = Kind("bytecode", lambda yard: yard.bytecode, "*/??/*", _audit_bytecode, linked=True)
UV = Kind(
    "uv",
    lambda yard: yard.uv,
    "archive-v*/*",
    _audit_unpacked_wheel,
    linked=True,
    companions=_uv_pointers,
    is_rewritten=lambda name: name.endswith(".dist-info/RECORD"),
)
PYTHONS = Kind(
    "python",
    lambda yard: yard.pythons,
    "*",
    besides=(".lock", ".temp", ".cache", ".gitignore"),  # uv's own
    companions=_links_beside,
)
KINDS = (
    CONDA,
    Kind("sources", lambda yard: yard.sources, "*/*", _audit_source),
    Kind("wheels", lambda yard: yard.wheels, "??/*", _audit_wheel, scratch=(".*",)),
    BYTECODE,
    UV,
    Kind(
        "repodata",
        lambda yard: yard.repodata,
        "*",
        besides=("*.lock", "*.info.json", "pkgs"),
        companions=lambda index: [index.with_suffix(".info.json")],
    ),
    Kind("distributions", lambda yard: yard.distributions, "??/*", _audit_note),
    PYTHONS,
    Kind("memo", lambda yard: yard.memos, "*.json"),
    Kind("notes", lambda yard: yard.notes, "**/*.json", _audit_note),
)
