"""Copies to a new place the files that a move does not rebuild: none or few of them contain the yard's path."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from stackyard.core.errors import InputError, StackyardError
from stackyard.core.findings import some
from stackyard.deploy.plan import Task
from stackyard.deploy.published.share import Group, share
from stackyard.host.files import at, copying
from stackyard.host.files.hashing import sha256_file
from stackyard.host.run.identity import process_token
from stackyard.images.squashfs import launcher
from stackyard.images.squashfs.stubs import text_of
from stackyard.inputs.models import Site
from stackyard.inputs.workspace import Workspace
from stackyard.lock.lockfile import text as lockfile
from stackyard.lock.lockfile.model import Lock
from stackyard.make import adopted
from stackyard.make.seal import PARTS
from stackyard.upkeep.extensions.file import LOCK
from stackyard.upkeep.transfer.arrival import close
from stackyard.upkeep.transfer.rebuilding import LocatedRevision, Ways
from stackyard.verify.checks.content import noted_contents, seen, seen_of
from stackyard.yard import disk
from stackyard.yard.cache import caches
from stackyard.yard.generation import generations, manifestfile
from stackyard.yard.kinds.payload import STUB
from stackyard.yard.layout import Yard
from stackyard.yard.others import usage
from stackyard.yard.revision import contents, revisions
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import MANIFEST, Manifest
from stackyard.yard.revision.record import BuildRecord
from stackyard.yard.write import atomic, trash, within
from stackyard.yard.write.permissions import file_mode

_MOST_BYTES = 1 << 22
"""No text file of an interpreter that names its path is larger."""


def beside(ways: Ways) -> Iterator[str]:
    """Copy the files beside the revisions: locks, extensions' files, licences, bases, counts, sources, wheels.

    Yields a sentence for each user's entry that is not a regular file.
    """
    old, new = ways.source, ways.target
    owners = _owners(old)
    for source, target in ((old.locks, new.locks), (old.extensions, new.extensions)):
        _tree(old, source, new, target, owners)
    for source, target in ((old.bases, new.bases), (old.sources, new.sources), (old.wheels, new.wheels)):
        _tree(old, source, new, target, owners, link=True)  # written once, so that a link is as good as a copy
    for source, target in ((old.licences, new.licences), (old.signatures, new.signatures)):
        if disk.is_there(source) and not disk.is_there(target):
            with at.parent(old.root, source) as origin, at.parent(new.root, target) as place:
                _file(origin, place, owners)
    yield from _counts(old, new)
    for name in disk.names(old.pythons):
        if disk.is_directory(old.interpreter(name)) and not disk.is_there(new.interpreter(name)):
            _interpreter(old.interpreter(name), new.interpreter(name), ways, owners)


def _owners(yard: Yard) -> tuple[int, ...]:
    """The accounts that own files of a yard; none if the yard has a writing group: any member counts."""
    status = yard.root.stat()
    return () if status.st_mode & 0o020 else tuple({status.st_uid, os.geteuid()})


def _top(yard: Yard, path: Path) -> Path:
    """The directory of the yard below which links are not followed."""
    return caches.trusted(yard) if path.is_relative_to(yard.cache) else yard.root


def _tree(old: Yard, source: Path, new: Yard, target: Path, owners: tuple[int, ...], *, link: bool = False) -> None:
    """Copy a tree without the files that the target has already; each file appears complete.

    Raises:
        OSError: it contains something other than files and directories of the yard; the error has its path.
    """
    with suppress(FileNotFoundError), at.parent(_top(old, source), source) as place, at.opened(*place) as top:
        for directory, path, entries in at.walk(top):
            with at.directory(_top(new, target), target / path, make=True) as into:
                there = set(at.names(into))
                for entry in entries:
                    is_new = entry.name not in there and not entry.name.startswith(".")
                    if is_new and not entry.is_dir(follow_symlinks=False):
                        with within.named(source / path):
                            _file((directory, entry.name), (into, entry.name), owners, link=link)


def _file(source: at.Place, target: at.Place, owners: tuple[int, ...], *, link: bool = False) -> None:
    directory, name = target
    part = f".{name[:100]}.{process_token()}"
    try:
        copying.copy_tree(source, (directory, part), owners, link=link)
        atomic.fault_point("carry")
        os.rename(part, name, src_dir_fd=directory, dst_dir_fd=directory)  # noqa: TID251  by descriptors
    except BaseException:
        at.remove_tree(directory, part)
        raise


def _counts(old: Yard, new: Yard) -> Iterator[str]:
    """Copy the usage counts. A file's owner is the user who is counted, so only root copies those of other accounts.

    Any account can create entries there: those that are not count files are skipped and reported.
    """
    if not disk.is_directory(new.usage) or not disk.is_directory(old.usage):
        return
    with at.directory(old.root, old.usage) as directory:
        for name in sorted(at.names(directory)):
            try:
                data, status = at.read_bounded(directory, name, usage.MOST_BYTES)
                if status.st_nlink != 1:
                    raise at.UnexpectedFileError(errno.EMLINK, "has other names, which may be anywhere", name)
                if os.geteuid() in (0, status.st_uid) and not os.path.lexists(new.usage / name):
                    owner = (status.st_uid, status.st_gid) if os.geteuid() == 0 else None
                    atomic.write_bytes(new.usage / name, data, mode=0o644, top=new.root, owner=owner)
            except FileNotFoundError:
                continue
            except OSError as error:
                yield f"not carried over: {contents.written(str(old.usage / name))}: {(error.strerror or '').lower()}"


def _interpreter(source: Path, target: Path, ways: Ways, owners: tuple[int, ...]) -> None:
    """Copy an interpreter of uv: it finds its library by relative path, and names its own path in a few text files.

    The link beside its directory (``cpython-3.12-...``) is copied too.
    """
    top = _top(ways.target, target)
    within.make(top, target.parent)
    if source.is_symlink():
        within.symlink(top, target, ways.there(str(source.readlink())))
        return
    part = target.with_name(f".{target.name}")
    disk.remove_tree(part, top)
    disk.copy_tree(source, part, owners, link=False, top=_top(ways.source, source))
    before, after = os.fsencode(ways.built_in), os.fsencode(ways.target.root)
    with at.parent(top, part) as place, at.opened(*place) as copied:
        for directory, _, entries in at.walk(copied):
            for entry in entries:
                _rewrite(directory, entry, before, after)
    within.rename(top, part, target)


def _rewrite(directory: int, entry: os.DirEntry[str], before: bytes, after: bytes) -> None:
    """Replace a path in a text file."""
    if not entry.is_file(follow_symlinks=False) or entry.stat(follow_symlinks=False).st_size > _MOST_BYTES:
        return
    data, status = at.read_bounded(directory, entry.name, _MOST_BYTES)
    if before in data and b"\0" not in data:
        name = f".{entry.name[:100]}.{process_token()}"
        with at.open_new(directory, name) as stream:
            stream.write(data.replace(before, after))
            os.fchmod(stream.fileno(), status.st_mode & 0o777)
        os.rename(name, entry.name, src_dir_fd=directory, dst_dir_fd=directory)  # noqa: TID251  by descriptors


def lock_of_extension(revision: LocatedRevision, task: Task, ways: Ways) -> None:
    """Copy the lock of an extension's file, adapted to its base at the new place: `update` need not solve it."""
    place = ways.target.extension(revision.entry.stack) / LOCK
    if revision.record.base is None or not disk.is_there(place):
        return
    before = lockfile.read(revision.paths.lock).variants
    if [variant.spec_hash for variant in lockfile.read(place).variants] == [variant.spec_hash for variant in before]:
        atomic.write_text(place, lockfile.dump(Lock(revision.entry.stack, (task.locked,))), top=ways.target.root)


# --------------------------------------------------------------------------- history


def history(ways: Ways) -> None:
    """Copy the manifests of all generations, so that names stay taken and the files of each deploy known."""
    for manifest in generations.readable(ways.source):
        place = ways.target.generation(manifest.number).manifest
        if not manifestfile.is_there(place):
            atomic.write_json(place, _there(manifest, ways).to_json(), checked=True, top=ways.target.root)


def _there(manifest: Manifest, ways: Ways) -> Manifest:
    value = ways.over({**manifest.to_json(), "format": MANIFEST.version, "files": {}})
    return Manifest.from_json(value)


# --------------------------------------------------------------------------- images that are copied


def image(revision: LocatedRevision, ways: Ways, site: Site) -> BuildRecord:
    """Copy an image that cannot be made again (wrapped, adopted): its record and stubs alone name the yard.

    Raises:
        MissingError: no compiler for its launcher.
        StackyardError: a file differs from its note, or the disk is full.
    """
    paths = ways.target.revision(revision.entry.stack, Path(revision.entry.folder).name)
    if disk.is_there(paths.record):
        built = revisions.readable(paths)
        if built is not None and built.input_hash == revision.record.input_hash:
            return built
    old, new, owners = revision.paths.yard, paths.yard, _owners(ways.source)
    disk.remove_tree(paths.root, new)
    within.make(new, paths.root)
    for part in PARTS:
        disk.copy_tree(revision.paths.root / part, paths.root / part, owners, link=False, top=old)
    within.put(new, revision.paths.image, paths.image, link=True, source_top=old)
    within.set_mode(new, paths.image, lambda _: file_mode() & 0o444)
    within.put(new, revision.paths.files, paths.files, source_top=old)
    former = revision.record
    launcher.make(paths.launcher, container=former.payload.is_system, adopted=bool(former.origin.adopted_from))
    moved = BuildRecord.from_json(ways.over(revision.located.to_json()))
    if former.origin.adopted_from:
        within.put(new, revision.paths.adopted, paths.adopted, source_top=old)
        atomic.write_text(paths.prefix / STUB, text_of(paths.prefix), mode=0o444, top=new)
        moved = adopted.moved(moved, (former.prefix,))
    record = moved.with_launcher(sha256_file(paths.launcher))
    _require_same(record, paths)
    close(paths, Workspace(site, ways.target))
    revisions.mark(record)
    return record


def _require_same(record: BuildRecord, paths: RevisionPaths) -> None:
    noted = seen_of(record, noted_contents(record))
    damages = contents.compare(noted, paths.root, seen(record), noted.hashed)
    wrong = sorted({str(damage) for damage in damages if damage.what != "permissions"})
    wrong += filter(None, [record.payload.changed(paths.image)] if record.payload.has_stubs else [])
    if wrong:
        raise StackyardError(f"its files are not what was built: {some(wrong, 3)}",
                             hint=f"see `stackyard verify {record.module} --deep` in its yard")  # fmt: skip


# --------------------------------------------------------------------------- shares, and what stays


def shares(ways: Ways, site: Site) -> Iterator[str]:
    """Share with the same groups as before; yields a sentence for each failure."""
    entries = generations.entries(ways.target)
    for name in disk.names(ways.source.shares):
        directory = ways.source.shared(name)
        later = (yard.shared_later(name, "x").parent for yard in (ways.source, ways.target))
        _tree(ways.source, next(later), ways.target, next(later), _owners(ways.source))
        for entry in entries:
            files = (directory / entry.module, directory / f"{entry.module}.lua")
            if entry.state != "missing" and any(disk.is_there(file) for file in files):
                try:
                    share(Workspace(site, ways.target), entry, Group.named(f"group:{name}"))
                except (InputError, StackyardError) as error:
                    yield f"{entry.module} is not shared with {name}: {error.message}; {error.hint}"


def require_free(yard: Yard) -> None:
    """Raise StackyardError if files of an earlier move are in the way: they would be confused with the present ones.

    A killed move leaves each part in exactly one of the two places.
    """
    left = next((aside for there, aside in _pairs(yard) if os.path.lexists(there) and os.path.lexists(aside)), None)
    if left is not None:
        raise StackyardError(
            f"cannot move {yard.root}: {left} exists, from before an earlier move",
            hint=f"once you know that it is not needed: mv {left.parent} to another place, and move again",
        )


def _pairs(yard: Yard) -> list[tuple[Path, Path]]:
    """The directories to be built again, each with the place where it is put aside."""
    former, names = yard.former(), ("stacks", "shares", "generations", "modules")
    return [(getattr(yard, name), getattr(former, name)) for name in names]


def put_aside(yard: Yard) -> None:
    """Move the revisions and generations of a yard that is rebuilt in place; a killed run can be continued."""
    within.make(yard.root, yard.former().root)
    for there, aside in _pairs(yard):
        if os.path.lexists(there) and not os.path.lexists(aside):
            within.rename(yard.root, there, aside)
            atomic.fault_point("put-aside")


def throw_away(yard: Yard) -> None:
    """Move the parts that were put aside to the trash, from which `gc` deletes them after the grace time."""
    for path in disk.entries(yard.former().root):
        if path.is_symlink():
            within.unlink(yard.root, path)
        else:
            trash.settle(trash.put(yard, path, trash.note_of("leftover", yard, path, os.urandom(6).hex(),
                                                              reason="before the yard was moved")))  # fmt: skip
    with suppress(FileNotFoundError):  # a killed move had come as far as this
        within.rmdir(yard.root, yard.former().root)
