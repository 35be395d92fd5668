"""The results of a file check: one fault for each file, and how much was read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from stackyard.core.quoting import LONG, plain
from stackyard.yard.cache.caches import Kind
from stackyard.yard.layout import Yard
from stackyard.yard.revision.contents import written

What = Literal["missing", "changed", "added", "permissions", "owner", "unreadable"]


@dataclass(frozen=True)
class Entry:
    """The cache entry that a fault is in; a repair discards it."""

    part: Yard
    kind: Kind
    path: Path


@dataclass(frozen=True)
class Fault:
    """One file that differs from its record.

    Attributes:
        text: the difference, as a phrase that follows the path.
        revision: the module of the revision that it is in, or empty; `directory` is its directory.
        package: the package that brought it: ``numpy 1.26.4``.
        also: where else the same file (hard link) is: other revisions, entries of caches.
        remedy: what the user can do if a repair does not fix it.
        inode: device and inode number of a file with several hard links.
        entry: the cache entry of the file, if any.
    """

    path: Path
    what: What
    text: str
    revision: str = ""
    directory: str = ""
    package: str = ""
    also: tuple[str, ...] = ()
    remedy: str = ""
    inode: tuple[int, int] | None = field(default=None, repr=False)
    entry: Entry | None = field(default=None, repr=False)

    def line(self, root: Path) -> str:
        """The fault as a line of text; paths in the yard are relative to its root."""
        path = self.path.relative_to(root) if self.path.is_relative_to(root) else self.path
        also = f"also in {', '.join(self.also)}" if self.also else ""
        about = "; ".join(part for part in (self.package, also) if part)
        return f"{plain(written(str(path)), LONG)}: {plain(self.text, LONG)}" + (f" ({about})" if about else "")

    def to_json(self) -> dict[str, Any]:
        """The JSON values of the fault."""
        return {
            "path": written(str(self.path)),
            "what": self.what,
            "text": self.text,
            "revision": self.revision,
            "package": self.package,
            "also": list(self.also),
            "remedy": self.remedy,
        }


def merged(faults: Iterable[Fault]) -> list[Fault]:
    """The faults, with one for all hard links of a changed file; paths in revisions come first."""
    by_key: dict[object, Fault] = {}
    for number, fault in enumerate(sorted(faults, key=lambda item: item.entry is not None)):
        key: object = (fault.what, fault.inode) if fault.inode else number
        first = by_key.setdefault(key, fault)
        if first is not fault:
            by_key[key] = replace(first, also=tuple(sorted({*first.also, *fault.also} - {first.revision})))
    return list(by_key.values())


@dataclass
class Report:
    """A finished check.

    Attributes:
        faults: all faults; `shown` merges those of one file's hard links.
        notes: sentences on what is not a fault and on what was not checked.
        unrecorded: the modules of revisions whose records lack a launcher hash, by directory.
        files: the number of files with a known hash; `sampled` of them were selected for reading.
        read, read_bytes: the files read and their bytes; a file with several hard links counts once.
    """

    yard: Yard
    deep: bool
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    revisions: list[str] = field(default_factory=list)
    unrecorded: dict[str, str] = field(default_factory=dict)
    files: int = 0
    sampled: int = 0
    read: int = 0
    read_bytes: int = 0
    seconds: float = 0.0

    @property
    def shown(self) -> Sequence[Fault]:
        """The faults, one for all hard links of a file."""
        return merged(self.faults)

    @property
    def damaged(self) -> frozenset[str]:
        """The revisions with faults."""
        return frozenset(fault.revision for fault in self.faults if fault.revision)

    @property
    def to_repair(self) -> bool:
        """Whether a repair has anything to do."""
        return bool(self.faults or self.unrecorded)

    @property
    def missed(self) -> float:
        """The probability that a changed file with the same size and time was not found."""
        return 0.0 if self.deep or not self.files else 1 - self.sampled / self.files

    def to_json(self) -> dict[str, Any]:
        """The JSON values of the report."""
        return {
            "yard": str(self.yard.root),
            "deep": self.deep,
            "revisions": self.revisions,
            "unrecorded_launchers": sorted(self.unrecorded.values()),
            "faults": [fault.to_json() for fault in self.shown],
            "notes": self.notes,
            "files": self.files,
            "sampled": self.sampled,
            "missed": round(self.missed, 4),
            "read": self.read,
            "read_bytes": self.read_bytes,
            "seconds": round(self.seconds, 3),
        }
