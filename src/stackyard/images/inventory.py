"""The inventory of an image: its entries by path, with links followed inside."""

from __future__ import annotations

import glob
import posixpath
from collections.abc import Iterator, Mapping
from pathlib import Path

from stackyard.core.late import dataclass
from stackyard.host.files import at
from stackyard.host.run.command import run
from stackyard.images import links
from stackyard.images.sif import file as sif
from stackyard.yard import disk

LIST_S = 600.0


@dataclass(frozen=True)
class InventoryEntry:
    """One entry: ``d``, ``l`` or ``-`` (other letters: special files), its mode, and a link's target.

    Attributes:
        hides: whether it is a whiteout: what overlayfs takes for the removal of the entry in a lower partition.
    """

    kind: str
    mode: str
    target: str = ""
    hides: bool = False

    @property
    def is_program(self) -> bool:
        """Whether it is an executable file."""
        return self.kind == "-" and "x" in self.mode


@dataclass(frozen=True)
class Inventory:
    """All entries of an image, by absolute path."""

    entries: Mapping[str, InventoryEntry]

    def real(self, path: str) -> str:
        """The real path; empty for a dangling link."""
        return links.end(path, self.target)

    def way(self, path: str) -> list[str]:
        """All entries on the way to the target of a path, including links; none for a dangling link."""
        return links.way(path, self.target)

    def target(self, path: str) -> str | None:
        """The target of the link at a path; empty: it is not a link; None: it does not exist."""
        entry = self.entries.get(path)
        return None if entry is None else entry.target if entry.kind == "l" else ""

    def is_program(self, path: str) -> bool:
        """Whether a path leads to an executable file."""
        entry = self.entries.get(self.real(path))
        return entry is not None and entry.is_program

    @property
    def directories_with_files(self) -> list[str]:
        """The non-empty directories below the root, which hide the host's of the same names."""
        return sorted({path.split("/")[1] for path in self.entries if path.count("/") > 1})

    def programs(self, directory: str) -> list[str]:
        """The names of the programs in a directory, sorted."""
        real = self.real(directory)
        names = self._names.get(real, ()) if real else ()
        return sorted(name for name in names if self.is_program(posixpath.join(real, name)))

    @property
    def _names(self) -> Mapping[str, list[str]]:
        names = self.__dict__.get("_listed")
        if names is None:
            names = {}
            for path in self.entries:
                names.setdefault(posixpath.dirname(path), []).append(posixpath.basename(path))
            self.__dict__["_listed"] = names
        return names


def read(image: Path) -> Inventory:
    """List an image: a SquashFS file, or a SIF file with its overlays over its system.

    Raises:
        CommandError: unsquashfs cannot read it.
        MissingError: unsquashfs is missing.
        StackyardError: it is a damaged SIF file.
    """
    entries: dict[str, InventoryEntry] = {}
    for offset in offsets(image):
        entries = _joined(entries, layer(image, offset))
    return Inventory(entries)


def layer(image: Path, offset: int = 0) -> dict[str, InventoryEntry]:
    """The entries of one SquashFS file system of an image file, with its whiteouts."""
    words = ["unsquashfs", "-no-progress", *_at(offset), "-lln", "-d", "", str(image)]
    return dict(_lines(run(words, timeout_s=LIST_S).stdout))


def _at(offset: int) -> list[str]:
    return ["-offset", str(offset)] if offset else []


def offsets(image: Path) -> list[int]:
    """Where the SquashFS file systems of an image file begin, the lowest first."""
    with at.open_regular(image) as stream:
        is_sif = sif.is_one(stream.read(sif.HEAD))
    return [part.offset for part in sif.read(image).layers()] if is_sif else [0]


def _joined(lower: dict[str, InventoryEntry], upper: dict[str, InventoryEntry]) -> dict[str, InventoryEntry]:
    """What overlayfs shows: directories are joined, all else is replaced or hidden."""
    replaced = {path for path, entry in upper.items() if entry.kind != "d" and path in lower}
    trees = {path for path in replaced if lower[path].kind == "d"}
    if trees:
        lower = {path: entry for path, entry in lower.items() if trees.isdisjoint(links.above(path))}
    joined = lower | upper
    return {path: entry for path, entry in joined.items() if not entry.hides}


def _lines(text: str) -> Iterator[tuple[str, InventoryEntry]]:
    """Parse lines of ``unsquashfs -lln``: mode, owner, size (or device), date, time, path. Other lines are skipped."""
    for line in text.splitlines():
        row = line.split(maxsplit=5)
        if len(row) == 6 and row[2].endswith(","):  # a device: MAJOR, MINOR
            row = [*row[:2], row[2] + row[3], row[4], *row[5].split(maxsplit=1)]
        if len(row) != 6 or len(row[0]) != 10 or not row[5].startswith("/"):
            continue
        path, _, target = row[5].partition(" -> ") if row[0][0] == "l" else (row[5], "", "")
        hides = row[0][0] == "c" and row[2] == "0,0"
        yield posixpath.normpath(path), InventoryEntry(row[0][0], row[0][1:], target, hides)


def text(image: Path, path: str, work: Path) -> str:
    """The text of a file of an image; empty if it cannot be read.

    Args:
        path: its real path.
        work: a directory to unpack it in.
    """
    place, name = work / "text", path.lstrip("/")
    for offset in reversed(offsets(image)):
        disk.remove_tree(place)
        words = [
            "unsquashfs",
            "-no-progress",
            "-no-xattrs",
            *_at(offset),
            "-d",
            str(place),
            str(image),
            glob.escape(name),
        ]
        run(words, timeout_s=LIST_S, check=False)
        if disk.is_file(place / name):
            return (place / name).read_text(encoding="utf-8", errors="replace")
    return ""
