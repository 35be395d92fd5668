"""The check of files outside of revisions: generations, kept locks, bases, the trash, directory permissions."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.findings import counted
from stackyard.deploy.generation import is_as_the_site_wants
from stackyard.deploy.licences import LEDGER
from stackyard.images.bases import store
from stackyard.images.squashfs import file as squashfs
from stackyard.inputs.workspace import Workspace
from stackyard.lock.lockfile import text as lockfile
from stackyard.upkeep.gc import garbage
from stackyard.upkeep.health.fsck.fault import Fault
from stackyard.upkeep.health.fsck.reading import Reader
from stackyard.upkeep.health.fsck.trees import Rights
from stackyard.verify.checks.yardfiles import modules_of, unreadable
from stackyard.yard import disk, formats
from stackyard.yard.generation import generations, manifestfile
from stackyard.yard.layout import Yard
from stackyard.yard.revision import contents, signatures
from stackyard.yard.revision.manifest import read_manifest
from stackyard.yard.write import temporaries, trash

_DROPS = ("uses", "children", "usage")
"""Directories that others may write to on purpose (`yard.others.uses`)."""


def faults_of(yard: Yard, reader: Reader, rights: Rights, *, deep: bool) -> Iterator[Fault]:
    """Faults of the yard's own files."""
    yield from _current(yard)
    yield from _demand(yard)
    for number in generations.numbers(yard):
        yield from _generation(yard, number, reader)
    for path in sorted(yard.locks.rglob("*.lock")):
        yield from _unreadable(path, unreadable(lockfile.read, path), f"remove it: `rm {path}`; it is solved again")
    if disk.is_there(yard.licences):
        problems = unreadable(lambda path: formats.load(path, LEDGER), yard.licences)
        yield from _unreadable(yard.licences, problems, "restore it from a backup, or remove it and accept again")
    yield from _bases(yard, reader, deep)
    for directory in trash.unreadable(yard):
        yield Fault(
            directory, "unreadable", "its what.json cannot be read", remedy=f"look at {directory}, and remove it"
        )
    yield from _links(yard)
    yield from rights_of(yard, rights)


def rights_of(yard: Yard, rights: Rights) -> Iterator[Fault]:
    """Wrong owners and too many rights to write among the yard's directories, generations and kept locks."""
    yield from (fault for _, fault in rights.faults(yard.root, _own_tree(yard), lambda _: False))


def _current(yard: Yard) -> Iterator[Fault]:
    try:
        generations.current(yard)
    except StackyardError as error:
        yield Fault(yard.modules, "changed", error.message, remedy=error.hint or "")


def _demand(yard: Yard) -> Iterator[Fault]:
    """The faults of the note that demands signatures, and of its lists of signers."""
    try:
        demand = signatures.demand_of(yard)
        if demand is not None and demand.allowed_signers:
            demand.signers.require()
    except StackyardError as error:
        text = error.message.removeprefix(f"cannot read {yard.signatures}: ")
        yield Fault(yard.signatures, "changed", text, remedy=error.hint or "")


def _generation(yard: Yard, number: int, reader: Reader) -> Iterator[Fault]:
    """The faults of a generation's manifest, and of its modulefiles that still exist."""
    paths = yard.generation(number)
    try:
        manifest = read_manifest(paths.manifest)
    except StackyardError as error:
        remedy = "restore it from a backup; users see the present generation all the same"
        yield from _unreadable(manifestfile.place(paths.manifest), [error.message], remedy)
        return
    if manifest.files and disk.is_directory(paths.modules):
        for name in manifest.files:
            if disk.is_there(paths.modules / name):
                reader.count(paths.modules / name)
        for problem in modules_of(yard, manifest):
            name, _, text = problem.removeprefix(f"{paths.modules}/").partition(" ")
            yield Fault(paths.modules / name, "changed", text)


def _unreadable(path: Path, problems: Iterable[str], remedy: str) -> Iterator[Fault]:
    for problem in problems:
        yield Fault(path, "changed", problem.removeprefix(f"cannot read {path}: "), remedy=remedy)


def _bases(yard: Yard, reader: Reader, deep: bool) -> Iterator[Fault]:
    """The faults of the bases in this yard: every byte, or the superblocks."""
    for base, paths in store.everything(yard):
        if not paths.root.is_relative_to(yard.root):
            continue
        try:
            if deep:
                reader.count(paths.image)
                store.check(store.StoredBase(base, paths))
            elif squashfs.superblock(paths.image) and paths.image.stat().st_size != base.root.bytes:
                raise StackyardError(f"{paths.image} has another size than its record says")
        except (OSError, StackyardError) as error:
            remedy = f"import it again: `stackyard image base add {base.source} --name {base.name}`"
            yield Fault(paths.root, "changed", str(error), remedy=remedy)


def _links(yard: Yard) -> Iterator[Fault]:
    """Faults for directories of revisions and generations that are links: they can lead out of the yard."""
    for top in (yard.stacks, yard.generations):
        for path in (
            top,
            *disk.entries(top),
            *(one for entry in disk.entries(top) for one in _below(top, entry, yard)),
        ):
            if path.is_symlink():
                text = f"is a link to {os.path.realpath(path)}"
                yield Fault(path, "changed", text, remedy="put the directory itself in its place")


def _below(top: Path, directory: Path, yard: Yard) -> list[Path]:
    return disk.entries(directory) if top == yard.stacks and directory.is_dir() else []


def _own_tree(yard: Yard) -> contents.Tree:
    """The directories of the yard, with the files of its generations and kept locks."""
    tree = {f"{name}/": yard.inner(name).lstat() for name in disk.names(yard.root) if name not in _DROPS}
    tree = {name: status for name, status in tree.items() if stat.S_ISDIR(status.st_mode)}
    tree[""] = yard.root.lstat()
    tree |= {f"stacks/{entry.name}/": entry.lstat() for entry in disk.entries(yard.stacks)}
    for part in ("generations/", "locks/"):
        tree |= contents.scan(yard.root, [part])
    return tree


def left_behind(yard: Yard) -> Iterator[str]:
    """Phrases on what killed processes have left, which `gc` removes."""
    left = [*garbage.interrupted_builds(yard), *garbage.leftovers(yard)]
    if left:
        size = sum(item.bytes for item in left) / 1e6
        yield f"{counted(len(left), 'leftover')} of builds that ended early, {size:,.1f} MB"
    if lost := temporaries.found(yard):
        yield f"{counted(len(lost), 'temporary file')} of killed processes"


def notes_of(workspace: Workspace) -> Iterator[str]:
    """Sentences on findings that are not faults, and on how `gc` treats them."""
    yard = workspace.yard
    yield from (f"{text}: `stackyard gc` removes them" for text in left_behind(yard))
    waiting = trash.items(yard)
    if waiting:
        size, days = sum(item.what.bytes for item in waiting) / 1e6, workspace.site.removal.grace_days
        yield (
            f"{counted(len(waiting), 'thing')} in the trash, {size:,.1f} MB, not looked at: "
            f"`stackyard gc` deletes what has been there for {days:g} days"
        )
    for directory in (yard.cache, yard.locks):
        if directory.is_symlink() and not directory.resolve().is_relative_to(yard.root.resolve()):
            yield f"{directory} is a link to {directory.resolve()}, out of the yard"
    try:
        manifest = generations.current(yard)
        if manifest and not is_as_the_site_wants(workspace, manifest):
            yield "the site's present policy gives other modulefiles: the next deploy writes them"
    except (OSError, StackyardError):  # reported as a fault
        return
