"""The check of the caches: unpacked entries against their notes, archives against their hashes."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from stackyard.upkeep.health.fsck.fault import Entry, Fault
from stackyard.upkeep.health.fsck.reading import Reader
from stackyard.upkeep.health.fsck.trees import Rights, differences, once
from stackyard.yard.cache import notes
from stackyard.yard.cache.caches import CONDA, KINDS, Kind, parts, unchecked
from stackyard.yard.layout import Yard
from stackyard.yard.revision import contents
from stackyard.yard.revision.contents import Tree

_REMEDY = "`stackyard fsck --repair` discards the entry: it is made again from the lock when it is needed"


def faults_of(yard: Yard, reader: Reader, rights: Rights, *, deep: bool, doubtful: frozenset[Path]) -> Iterator[Fault]:
    """Faults of the entries in all parts of the cache. Archives are read with `deep`, or if doubtful."""
    for part in parts(yard):
        for kind in KINDS:
            for entry in kind.complete(part):
                part_entry = Entry(part, kind, entry)
                label = " ".join(entry.name.rsplit("-", 2)[:2]) if kind is CONDA else ""
                whole = deep or entry in doubtful
                faults = _link(yard, entry) if entry.is_symlink() else _entry(part_entry, reader, rights, whole)
                yield from (
                    replace(fault, entry=part_entry, package=label, remedy=fault.remedy or _REMEDY) for fault in faults
                )


def _link(yard: Yard, entry: Path) -> Iterator[Fault]:
    """The faults of a link to an entry that a parent's cache has."""
    target = entry.resolve()
    if not entry.exists():
        yield Fault(entry, "missing", f"is a link to {target}, which does not exist")
    elif not any(target.is_relative_to(ancestor.root.resolve()) for ancestor in yard.lineage()):
        yield Fault(entry, "changed", f"is a link to {target}, out of this yard and of those above it")


def _entry(part_entry: Entry, reader: Reader, rights: Rights, deep: bool) -> Iterator[Fault]:
    part, kind, entry = part_entry.part, part_entry.kind, part_entry.path
    noted = notes.read(part, kind, entry) if kind.linked else None
    try:
        if noted is None:
            yield from _audited(kind, entry, reader) if deep or kind.name == "notes" else ()
            return
        tree = contents.scan(entry)
        yield from (fault for _, fault in rights.faults(entry, tree, _sealed(kind, tree)))
        read = noted.hashed if deep else ()
        yield from (fault for _, fault in once(differences(entry, tree, noted, read, reader.digest)))
    except OSError as error:
        yield Fault(entry, "unreadable", unchecked(entry, error).removeprefix(f"{entry} "))


def _sealed(kind: Kind, tree: Tree) -> Callable[[str], bool]:
    return lambda name: stat.S_ISREG(tree[name].st_mode) and not kind.is_rewritten(name)


def _audited(kind: Kind, entry: Path, reader: Reader) -> Iterator[Fault]:
    """The faults of an entry, compared with the hash in its name or with its own listing."""
    if kind.audit is None:
        return
    if entry.is_file():
        reader.count(entry)
    for problem in kind.audited(entry):
        path, _, text = problem.partition(" ")
        known = Path(path).is_relative_to(entry) and problem.startswith(str(entry))
        yield Fault(Path(path), "changed", text) if known else Fault(entry, "changed", problem)
