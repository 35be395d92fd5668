"""Prepares the build of a revision at another place: its lock, and its file from the copies in the revision.

The copies in ``recipe/`` have lost their directories, but the manifest of the generation that published them has the
paths. So they are laid out again at these relative paths, where the file finds the files it names.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stackyard.core.errors import MissingError, StackyardError
from stackyard.deploy.plan import Task
from stackyard.deploy.published.labels import without_labels
from stackyard.host.files.hashing import sha256_file
from stackyard.inputs.load import load_stack
from stackyard.inputs.models import CheckExceptions, Site, Stack, Variant
from stackyard.lock.base import extension as onbase
from stackyard.lock.lockfile import text as lockfile
from stackyard.lock.lockfile.fingerprint import Fingerprint
from stackyard.lock.lockfile.model import LockedVariant
from stackyard.make.hashes.inputs import input_hash, is_build_of
from stackyard.yard import disk
from stackyard.yard.generation import generations
from stackyard.yard.generation.origin import UsedFile
from stackyard.yard.kinds.extension import BaseRevision
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import BuildRecord, read_record
from stackyard.yard.write import within


@dataclass(frozen=True)
class Ways:
    """The paths of a move: the yard's present place, the path its files name, and its new place."""

    source: Yard
    built_in: Path
    target: Yard

    def there(self, path: str) -> str:
        """The new path of a path in the yard; any other path is unchanged."""
        if Path(path).is_relative_to(self.target.root) and not Path(path).is_relative_to(self.source.root):
            return path
        for root in (self.built_in, self.source.root):
            if Path(path).is_relative_to(root):
                return str(self.target.inner(str(Path(path).relative_to(root))))
        return path

    def over(self, value: Any) -> Any:
        """JSON values with every path of the yard replaced by its new path, alone or in a list of paths."""
        if isinstance(value, dict):
            return {key: self.over(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.over(item) for item in value]
        return ":".join(map(self.there, value.split(":"))) if isinstance(value, str) and "/" in value else value


@dataclass(frozen=True)
class LocatedRevision:
    """A revision of the present yard: its entry, its record, and whether its input hash can be reproduced."""

    entry: Entry
    record: BuildRecord

    @property
    def paths(self) -> RevisionPaths:
        """The present directory of the revision."""
        return RevisionPaths.of(self.entry.folder)

    @property
    def located(self) -> BuildRecord:
        """Its record, with its present directory."""
        return replace(self.record, path=self.entry.folder)


def task(revision: LocatedRevision, ways: Ways, site: Site, work: Path) -> Task:
    """The task that builds a revision at its new place.

    Args:
        work: an empty directory, which the build needs.

    Raises:
        StackyardError: a copy is missing, its file cannot be read, or its base was not built there.
    """
    record, paths = revision.record, ways.target.revision(revision.entry.stack, Path(revision.entry.folder).name)
    stack = _adopted(revision) if record.origin.again == "adopt" else _read(revision, ways, site, work)
    locked = lockfile.read(revision.paths.lock).variants[0]
    variant = _as_built(_variant(stack, record), revision, locked, site)
    there = replace(locked, interpreter=replace(locked.interpreter, path=ways.there(locked.interpreter.path)))
    if record.base is not None:
        base = _base(record.base, ways)
        variant = variant.model_copy(update={"base": base})
        there = _on(there, record.base, base)
    digest = input_hash(without_labels(variant), there, site)
    return Task("build", stack, variant, there, digest, record.revision, record.module, paths, revision.entry.rank,
                _built(paths, digest))  # fmt: skip


def _on(layer: LockedVariant, before: BaseRevision, now: BaseRevision) -> LockedVariant:
    """The lock of an extension, adapted to its base at the new place without a solve."""
    lines = {f"base {b.id} {b.hash[:16]} in {b.yard}": b for b in (before, now)}
    old, new = lines if len(lines) == 2 else [*lines] * 2
    policy = tuple(new if line == old else line for line in layer.policy)
    digest = Fingerprint(layer.requested, policy).digest
    return replace(layer, policy=policy, spec_hash=digest, interpreter=onbase.interpreter(now))


def is_same_build(other: Task, revision: LocatedRevision, site: Site) -> bool:
    """Whether a revision was built from the same inputs, apart from the path of the yard."""
    variant = other.variant.model_copy(update={"base": revision.record.base})
    locked = lockfile.read(revision.paths.lock).variants[0]
    plain = without_labels(variant)
    return is_build_of(revision.record, plain, locked, site, input_hash(plain, locked, site))


def _built(paths: RevisionPaths, digest: str) -> BuildRecord | None:
    """The record of an earlier try; an unpublished build from other inputs is removed."""
    if not disk.is_there(paths.record):
        return None
    record = read_record(paths.record)
    if record.input_hash == digest:
        return record
    disk.remove_tree(paths.root, paths.yard)
    return None


def _base(base: BaseRevision, ways: Ways) -> BaseRevision:
    """The base of an extension: at its present place if it is in this yard, else unchanged."""
    if ways.there(base.yard) == base.yard:
        return base
    path = ways.target.revision(*base.id.split("/", 1)).record
    if not disk.is_there(path):
        raise StackyardError(f"its base {base.id} was not built in {ways.target.root}")
    return onbase.of_record(read_record(path))


def _adopted(revision: LocatedRevision) -> Stack:
    record = revision.record
    variant = Variant(
        stack=record.stack, version=record.version, name=record.variant, axes=dict(record.axes),
        adopted=record.adopted, exceptions=CheckExceptions(**record.exceptions), notices=record.notices,
        summary=record.summary,
    )  # fmt: skip
    return Stack(name=record.stack, summary=record.summary, variants=(variant,), kind="adopted", file=record.prefix)


def _variant(stack: Stack, record: BuildRecord) -> Variant:
    """The variant of a file that a revision was built from."""
    same = [candidate for candidate in stack.variants if candidate.version == record.version]
    variant = next(
        (candidate for candidate in same if candidate.name == record.variant or (candidate.on and not candidate.name)),
        None,
    )
    if variant is None:
        raise StackyardError(f"the copy of its file describes no {record.version} {record.variant}".rstrip())
    return variant.model_copy(update={"name": record.variant, "base": record.base})


def _as_built(variant: Variant, revision: LocatedRevision, locked: LockedVariant, site: Site) -> Variant:
    """The variant in its built form, which may come from the command line or from the site's limit."""
    form = revision.record.payload.packing
    plain = without_labels(variant)
    if variant.image == form or is_build_of(revision.record, plain, locked, site, input_hash(plain, locked, site)):
        return variant
    return variant.model_copy(update={"image": form})


# --------------------------------------------------------------------------- its file


def _read(revision: LocatedRevision, ways: Ways, site: Site, work: Path) -> Stack:
    """The stack, read from its file if that is unchanged, else from the copies at their former relative paths."""
    own, files = _files(revision, ways.source)
    if own is None:
        raise MissingError(f"no generation says where its file {revision.entry.file or 'was'}")
    if all(_is_as_it_was(file) for file in files):
        return load_stack(Path(own.path), site, revision.entry.stack, revision.entry.version)
    for file in files:
        _lay(file, revision.paths.recipe, work)
    _show_neighbours(files, work)
    return load_stack(_place(own, work), site, revision.entry.stack, revision.entry.version)


def _files(revision: LocatedRevision, yard: Yard) -> tuple[UsedFile | None, list[UsedFile]]:
    """A revision's file and the files read with it, with the content that was copied; else as last read."""
    copies = {sha256_file(path) for path in disk.entries(revision.paths.recipe) if path.is_file()}
    best: UsedFile | None = None
    files: list[UsedFile] = []
    for manifest in generations.readable(yard):
        own = _file_of(revision.entry, manifest.origin.files, copies)
        if own is None:
            continue
        is_same = own.sha256 in copies
        if is_same or best is None or len(own.path) < len(best.path):
            best, files = own, [f for f in manifest.origin.files if _copy_of(f, revision.paths.recipe) is not None]
        if is_same:
            break
    return best, files


def _file_of(entry: Entry, files: Iterable[UsedFile], copies: Collection[str]) -> UsedFile | None:
    """The file of an entry among those that a deploy read.

    An entry has a path relative to its git work tree, which can match several files: files with the same content come
    first, then shorter paths.
    """
    named = [f for f in files if entry.file and (f.path == entry.file or f.path.endswith(f"/{entry.file}"))]
    return min(named, key=lambda file: (file.sha256 not in copies, len(file.path)), default=None)


def _is_as_it_was(file: UsedFile) -> bool:
    path = Path(file.path)
    return path.is_file() and sha256_file(path) == file.sha256


def _copies(file: UsedFile, recipe: Path) -> Iterator[Path]:
    name = Path(file.path).name
    yield from (path for path in (recipe / name, *sorted(recipe.glob(f"{name}.[0-9]*"))) if path.is_file())


def _copy_of(file: UsedFile, recipe: Path) -> Path | None:
    """The copy of a file: the one with its content, else the only one of its name, whose logins were removed."""
    paths = list(_copies(file, recipe))
    same = (path for path in paths if sha256_file(path) == file.sha256)
    return next(same, paths[0] if len(paths) == 1 else None)


def _place(file: UsedFile, work: Path) -> Path:
    """The path at which a file is laid out; ``..`` in a typed path cannot lead out of that directory."""
    return work / os.path.normpath(f"/{file.path}").lstrip("/")


def _lay(file: UsedFile, recipe: Path, work: Path) -> None:
    place, copy = _place(file, work), _copy_of(file, recipe)
    place.parent.mkdir(parents=True, exist_ok=True)
    if copy is not None:
        within.put(place.parent, copy, place, source_top=RevisionPaths(recipe.parent).yard)
        within.set_mode(place.parent, place, lambda status: 0o600 | status.st_mode & 0o100)


def _show_neighbours(files: list[UsedFile], work: Path) -> None:
    """Link the other files beside the laid-out files: local projects and wheels, which a recipe does not copy."""
    for directory in {Path(file.path).parent for file in files}:
        try:
            beside = disk.entries(directory)
        except OSError:
            continue
        for path in beside:
            link = work / path.relative_to("/")
            if not link.exists() and not link.is_symlink():
                link.symlink_to(path)
