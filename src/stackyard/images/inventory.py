"""The files of an image by their paths, as they are in it: links are followed as its own programs would."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from pathlib import Path

from stackyard.core.late import dataclass
from stackyard.host.run.command import run
from stackyard.images import links

LIST_S = 600.0


@dataclass(frozen=True)
class InventoryEntry:
    """One entry: ``d``, ``l`` or ``-`` (another letter: a special file), its rights, and where a link leads."""

    kind: str
    mode: str
    target: str = ""

    @property
    def is_program(self) -> bool:
        """Whether it is a file that may be executed."""
        return self.kind == "-" and "x" in self.mode


@dataclass(frozen=True)
class Inventory:
    """All entries of an image, by absolute path."""

    entries: Mapping[str, InventoryEntry]

    def real(self, path: str) -> str:
        """The path without links; empty where it leads nowhere."""
        return links.end(path, self.target)

    def way(self, path: str) -> list[str]:
        """All entries on the way to where a path leads, links among them; none where it leads nowhere."""
        return links.way(path, self.target)

    def target(self, path: str) -> str | None:
        """Where the link at a path leads; empty: it is not a link; None: nothing is there."""
        found = self.entries.get(path)
        return None if found is None else found.target if found.kind == "l" else ""

    def is_program(self, path: str) -> bool:
        """Whether a path leads to a file that may be executed."""
        found = self.entries.get(self.real(path))
        return found is not None and found.is_program

    @property
    def directories_with_files(self) -> list[str]:
        """The directories below the root that are not empty: what the host has of these names is not shown."""
        return sorted({path.split("/")[1] for path in self.entries if path.count("/") > 1})

    def programs(self, directory: str) -> list[str]:
        """The names of the programs in a directory, sorted."""
        real = self.real(directory)
        names = self._names.get(real, ()) if real else ()
        return sorted(name for name in names if self.is_program(posixpath.join(real, name)))

    @property
    def _names(self) -> Mapping[str, list[str]]:
        made = self.__dict__.get("_listed")
        if made is None:
            made = {}
            for path in self.entries:
                made.setdefault(posixpath.dirname(path), []).append(posixpath.basename(path))
            self.__dict__["_listed"] = made
        return made


def read(image: Path) -> Inventory:
    """List an image.

    Raises:
        CommandError: unsquashfs cannot read it.
        MissingError: unsquashfs is missing.
    """
    words = ["unsquashfs", "-no-progress", "-lln", "-d", "", str(image)]
    return Inventory(dict(_lines(run(words, timeout_s=LIST_S).stdout)))


def _lines(text: str) -> Iterator[tuple[str, InventoryEntry]]:
    """Lines of ``unsquashfs -lln``: rights, owner, bytes (or device), date, time, path. Others are not of a file."""
    for line in text.splitlines():
        row = line.split(maxsplit=5)
        if len(row) != 6 or len(row[0]) != 10 or not row[5].startswith("/"):
            continue
        path, _, target = row[5].partition(" -> ") if row[0][0] == "l" else (row[5], "", "")
        yield posixpath.normpath(path), InventoryEntry(row[0][0], row[0][1:], target)
