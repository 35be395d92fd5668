"""The parts of a revision that go into an image: its prefix, and a Python that uv installed outside of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stackyard.images.relocation.paths import ROOT, Moves
from stackyard.images.relocation.prefix import RelocatedPrefix, Relocation
from stackyard.yard.kinds.payload import Prefix
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord


def interpreter(record: BuildRecord) -> dict[str, Path]:
    """The directory of a Python that uv installed outside the prefix, and the links to it."""
    if record.interpreter.get("source") != "uv":
        return {}
    home = Path(record.interpreter["path"]).resolve().parent.parent
    links = (link for link in home.parent.iterdir() if link.is_symlink() and link.resolve() == home)
    return {str(path): path for path in (home, *links)}


def pairs(record: BuildRecord, place: str) -> list[tuple[str, str]]:
    """The paths of the parts, and those in an image with the prefix at `place`."""
    pythons = [(str(home), f"{ROOT}/python/{home.resolve().name}") for home in interpreter(record).values()]
    return [(record.prefix, place), *pythons]


def relocated(record: BuildRecord, place: str, moves: Moves, work: Path) -> Iterator[tuple[Path, RelocatedPrefix]]:
    """Relocate the parts, the prefix first; their changed files are below `work`, which is empty."""
    python, yard = Prefix(Path(record.prefix)).python, RevisionPaths.of(record.path).yard
    trees = {Path(record.prefix): place}
    trees |= {home: moves.path(str(home)) for home in interpreter(record).values() if not home.is_symlink()}
    for number, (tree, root) in enumerate(trees.items()):
        changed = work / f"part-{number}"
        changed.mkdir()
        yield tree, Relocation(tree, root, moves, changed, yard).relocate(python if python.exists() else None)
