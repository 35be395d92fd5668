"""Finds the original of a changed file among the unpacked packages and the bytecode in the caches."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from stackyard.host.files import at
from stackyard.yard import disk
from stackyard.yard.cache import notes
from stackyard.yard.cache.caches import BYTECODE, CONDA, UV, Kind, parts
from stackyard.yard.layout import Yard
from stackyard.yard.revision.contents import Item, holds
from stackyard.yard.revision.record import BuildRecord


class Originals:
    """The files of a yard's caches, indexed by their recorded content; the notes are read on first use."""

    def __init__(self, record: BuildRecord, yard: Yard) -> None:
        self._record, self._yard = record, yard

    def find(self, item: Item) -> Path | None:
        """A file that has this content now; it is read to verify that."""
        return next((path for path in self._places.get(item.sha256, ()) if holds(path, item)), None)

    @cached_property
    def _places(self) -> dict[str, list[Path]]:
        places: dict[str, list[Path]] = {}
        for part in parts(self._yard):
            for kind, entry in self._entries(part):
                noted = notes.read(part, kind, entry)
                for name, item in noted.files.items() if noted else ():
                    if item.sha256:
                        places.setdefault(item.sha256, []).append(entry / name)
        return places

    def _entries(self, part: Yard) -> Iterator[tuple[Kind, Path]]:
        packages = self._record.own_packages
        hashes = {package.sha256 for package in packages}
        stems = (f"{package.name}-{package.version}-{package.build}" for package in packages if package.kind == "conda")
        places = (part.package(stem) for stem in stems)
        yield from ((CONDA, place) for place in places if disk.is_directory(place) and not place.is_symlink())
        yield from ((BYTECODE, entry) for entry in BYTECODE.complete(part) if entry.name in hashes)
        yield from ((UV, entry) for entry in UV.complete(part))


def first_difference(one: Path, other: Path, block: int = 1 << 20) -> int:
    """The offset of the first byte in which two files differ, or the size of the shorter one."""
    offset = 0
    with at.open_regular(one) as first, at.open_regular(other) as second:
        while True:
            left, right = first.read(block), second.read(block)
            if left != right:
                pairs = enumerate(zip(left, right, strict=False))
                return offset + next((n for n, (a, b) in pairs if a != b), min(len(left), len(right)))
            if not left:
                return offset
            offset += len(left)
