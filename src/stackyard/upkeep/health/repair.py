"""Restores damaged files of a revision, byte for byte, from its lock.

The revision is built again from its own lock, beside itself, at a path of the same length, so that files which contain
the prefix differ only in that path. Each damaged file is replaced by a rename, after its hash was compared with the one
recorded at the build: a file is restored exactly or not at all. Existing files are never written to, since other
revisions and the cache may share them.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.findings import counted
from stackyard.core.progress import Progress
from stackyard.deploy.entries import identity
from stackyard.deploy.published import rollback
from stackyard.host.files import at, copying, space
from stackyard.host.files.hashing import sha256_file, sha256_stream, urlsafe
from stackyard.host.run.identity import process_token
from stackyard.inputs.workspace import Workspace
from stackyard.lock.lockfile import text as lockfile
from stackyard.lock.lockfile.model import Lock, LockedVariant
from stackyard.make import seal
from stackyard.make.bytecode import cache as bytecode
from stackyard.make.bytecode.pyfiles import source_of
from stackyard.make.job import Job
from stackyard.upkeep.health.originals import Originals
from stackyard.upkeep.health.rebuild import built_again
from stackyard.verify.checks.content import look, noted_contents, seen, seen_of
from stackyard.verify.checks.yardfiles import modulefiles
from stackyard.yard import disk
from stackyard.yard.cache.audit import discard_damaged
from stackyard.yard.generation import generations
from stackyard.yard.generation.origin import Origin, UsedFile
from stackyard.yard.layout import Yard
from stackyard.yard.revision import contents, revisions
from stackyard.yard.revision.contents import Contents, Damage, Item
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import BuildRecord
from stackyard.yard.write import atomic, within

LOCK = "lock/stack.lock"


def require_in_place(paths: RevisionPaths) -> None:
    """Require that no link leads out of a revision: a repair would write and remove files there.

    Raises:
        StackyardError: one does.
    """
    top = Path(os.path.realpath(paths.yard))
    for place in (paths.root, *(paths.root / part for part in seal.PARTS)):
        real = os.path.realpath(place)
        if real != str(top / place.relative_to(paths.yard)):
            raise StackyardError(f"cannot repair {paths.root}: a link in {place} leads to {real}",
                                 hint="put the directory itself in its place")  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """The repaired and the lost files of a revision, by path in its directory (see `contents.written`)."""

    restored: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


def repair(record: BuildRecord, workspace: Workspace, progress: Progress, files: Iterable[UsedFile] = ()) -> Outcome:
    """Restore every damaged file of a revision. The caller has write access and holds the lease of the stack.

    A revision with a file that cannot be restored is marked: the next deploy of its stack builds a new revision.

    Args:
        files: files from which the copies in ``recipe/`` may have been made.

    Raises:
        StackyardError: the recorded hashes are lost, the revision cannot be built again (no network), a file cannot be
            replaced, or a link leads out of the revision.
    """
    paths = RevisionPaths.of(record.path)
    if not revisions.is_in(workspace.yard, record.path):
        raise StackyardError(
            f"cannot repair {record.module}: its record names {record.path}, which is not in this yard",
            hint="restore its record from a backup",
        )
    require_in_place(paths)
    try:
        return _repaired(record, workspace, progress, files)
    except PermissionError as error:
        raise StackyardError(
            f"cannot repair {record.module}: {(error.strerror or 'permission denied').lower()}: {error.filename}",
            hint="run it as the account that owns the files",
        ) from error
    except OSError as error:
        if space.is_full(error):
            hint = "free some space, then repair again: what was restored stays"
            raise disk.DiskFull(f"no space left while repairing {record.module}", hint=hint) from error
        raise disk.failure(error, f"repairing {record.module}") from error


def _repaired(record: BuildRecord, workspace: Workspace, progress: Progress, files: Iterable[UsedFile]) -> Outcome:
    paths = RevisionPaths.of(record.path)
    noted = seen_of(record, _noted(record))
    damages = _damages(record, noted)
    if damages:
        record.origin.require_repairable()
        progress.phase(record.module, "repair", counted(len(damages), "file"))
        _restore_lock(record, noted, workspace.yard)
        sources = _Sources(record, workspace, progress, files)
        try:
            for damage in damages:
                _mend(paths, damage, noted, sources)
        finally:
            sources.discard()
    lost = _names(_damages(record, noted))
    if lost:
        atomic.write_json(paths.damaged, {"files": lost}, top=paths.yard)
    else:
        within.unlink(paths.yard, paths.damaged)
    return Outcome(tuple(name for name in _names(damages) if name not in lost), lost)


def _names(damages: Iterable[Damage]) -> tuple[str, ...]:
    return tuple(sorted({contents.written(damage.path) for damage in damages}))


def files_read(yard: Yard) -> Iterator[UsedFile]:
    """The files that deploys to a yard read, with their hashes then: the copies in ``recipe/`` were made from them.

    Newest first; a generation is read only when the iteration reaches it.
    """
    return (file for manifest in generations.readable(yard) for file in manifest.origin.files)


def file_of(entry: Entry, yard: Yard) -> str:
    """The path from which a revision was last deployed, for use in a suggested command."""
    known = (file.path for file in files_read(yard) if identity(file.path) == entry.file)
    return next(known, entry.file or "FILE")


def repair_yard(workspace: Workspace, made_by: Origin | None = None) -> list[str]:
    """Restore the present modulefiles and discard damaged cache entries; returns a sentence for each repair."""
    done = [f"discarded: {problem}" for problem in discard_damaged(workspace.yard)]
    changed = list(modulefiles(workspace.yard))
    if changed:
        rollback.publish(workspace, lambda base: rollback.again(base, "modulefiles restored"), made_by)
        done += [f"restored: {problem}" for problem in changed]
    return done


def _noted(record: BuildRecord) -> Contents:
    """The recorded contents of the files; a damaged note is made again if all files are intact."""
    paths = RevisionPaths.of(record.path)
    if not record.files_sha256:
        raise StackyardError(
            f"cannot repair {record.module}: an earlier version built it, which did not note what its files held",
            hint=f"move {paths.root} away and deploy its file again",
        )
    try:
        return noted_contents(record)
    except StackyardError as error:
        noted_now = contents.note(paths.root, look(record))
        if hashlib.sha256(noted_now.to_text().encode()).hexdigest() != record.files_sha256:
            raise StackyardError(
                f"cannot repair {record.module}: {error.message}", hint=f"restore {paths.files} from a backup"
            ) from error
        atomic.write_text(paths.files, noted_now.to_text(), top=paths.yard)
        return noted_now


def _damages(record: BuildRecord, noted: Contents) -> list[Damage]:
    """All damages, after comparing every byte. Added files come first: they can be in the way of others.

    Directories come before what is in them, and bytecode after its source.
    """
    damages = contents.compare(noted, Path(record.path), seen(record), noted.hashed)
    return sorted(damages, key=lambda damage: (damage.what != "unexpected", damage.path.endswith(".pyc"), damage.path))


# --------------------------------------------------------------------------- where the bytes come from


class _Sources:
    """Sources of intact files: the caches, and the revision built again when first needed."""

    def __init__(
        self, record: BuildRecord, workspace: Workspace, progress: Progress, files: Iterable[UsedFile]
    ) -> None:
        self._record, self._given = record, tuple(dict.fromkeys(files))
        self._workspace, self._progress = workspace, progress
        self._kept = Originals(record, workspace.yard)
        root = Path(record.path)
        self._twin = RevisionPaths(root.with_name(f".{root.name[1:]}"))

    def find(self, name: str, item: Item) -> bytes | Path | None:
        """A file with the original content and time, or the content as bytes; None: not found.

        The caches are tried first, which avoids a build. A candidate is read and hashed, so it cannot be the damaged
        file.
        """
        if not name.startswith("prefix/"):
            same = (Path(file.path) for file in self._given if file.sha256 == item.sha256)
            # not linked: it is the user's own
            read = (path for path in same if path.is_file() and contents.digest_if_readable(path) == item.sha256)
            return next(map(at.read_regular, read), None)
        own = self._kept.find(item)
        if own is not None:
            return own
        path = self._job.paths.root / name
        if not path.is_file() or path.is_symlink():
            return None
        data = at.read_regular(path)
        for text in self._spellings(data):
            if hashlib.sha256(text).hexdigest() == item.sha256:
                return path if text is data else text
        return self._compiled(name.removeprefix("prefix/"), item)

    def _compiled(self, name: str, item: Item) -> bytes | None:
        """Bytecode with the prefix in it: compiled from the source at its final path, which was restored before."""
        source = source_of(name)
        if not source:
            return None
        target = self._job.work / "again.pyc"
        bytecode.compile_files(self._job, [(str(target), f"{self._record.prefix}/{source}", source)])
        is_same = target.is_file() and sha256_file(target) == item.sha256
        return at.read_regular(target) if is_same else None

    def discard(self) -> None:
        """Remove the temporary build."""
        disk.remove_tree(self._twin.root, self._twin.yard)

    def _spellings(self, data: bytes) -> Iterator[bytes]:
        """Candidate contents for the revision's path, from those of the temporary build; the most expensive last."""
        yield data
        moved = self._moved(data)
        yield moved
        yield self._with_hashes(moved)

    def _moved(self, data: bytes) -> bytes:
        return data.replace(os.fsencode(self._twin.root), os.fsencode(self._record.path))

    def _with_hashes(self, data: bytes) -> bytes:
        """A listing (RECORD, conda-meta) with the hashes that its files have at the final path."""
        for before, after in self._hashes.items():
            data = data.replace(before, after)
        return data

    @cached_property
    def _hashes(self) -> dict[bytes, bytes]:
        hashes: dict[bytes, bytes] = {}
        for name, status in contents.scan(self._job.paths.root, ("prefix/",)).items():
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
                data = at.read_regular(self._job.paths.root / name)
                before, after = hashlib.sha256(data), hashlib.sha256(self._moved(data))
                if before.digest() != after.digest():
                    hashes[before.hexdigest().encode()] = after.hexdigest().encode()
                    hashes[urlsafe(before.digest()).encode()] = urlsafe(after.digest()).encode()
        return hashes

    @cached_property
    def _job(self) -> Job:
        """The finished temporary build: all steps that need no user files, so without a post script."""
        self.discard()
        return built_again(self._record, self._workspace, self._twin, self._progress)


def _restore_lock(record: BuildRecord, noted: Contents, yard: Yard) -> None:
    """Restore the revision's lock, on which the repair depends, from the locks kept in the yard."""
    paths = RevisionPaths.of(record.path)
    item, path = noted.files.get(LOCK), paths.lock
    if item is None or (path.is_file() and sha256_file(path) == item.sha256):
        return
    for file in sorted(lock_file for ancestor in yard.lineage() for lock_file in ancestor.locks.rglob("*.lock")):
        for locked in _variants(file):
            data = lockfile.dump(Lock(locked.stack, (locked,))).encode()
            if hashlib.sha256(data).hexdigest() == item.sha256:
                _put(paths.yard, path, item, data)
                return
    raise StackyardError(
        f"cannot repair {record.module}: {path} is damaged, and the yard keeps no other copy of it",
        hint="restore it from a backup, or move the revision away and deploy its file again",
    )


def _variants(path: Path) -> tuple[LockedVariant, ...]:
    try:
        return lockfile.read(path).variants
    except StackyardError:
        return ()


# --------------------------------------------------------------------------- putting them in place


def _mend(paths: RevisionPaths, damage: Damage, noted: Contents, sources: _Sources) -> None:
    """Restore one file, if its content is found. No link on the way to it is followed."""
    path, item, top = paths.root / damage.path, noted.files.get(damage.path), paths.yard
    if damage.what == "unexpected":
        with (
            suppress(FileNotFoundError),
            _directory(top, path) as (directory, name),
        ):  # or in a directory that was removed
            at.remove_tree(directory, name)
    elif item is None:
        with _directory(top, path) as (directory, name):
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=directory)
            at.set_mode(directory, name, lambda status: status.st_mode & 0o7555, kinds=(stat.S_IFDIR,))
    elif damage.what == "permissions" and _is_ours(top, path):
        within.set_mode(top, path, lambda _: item.mode & 0o777)  # never set-user-ID, whatever was noted
    elif item.target:
        with _directory(top, path):
            atomic.replace_symlink(path, item.target, top=top)
    elif (source := sources.find(damage.path, item)) is not None:
        _put(top, path, item, source)


@contextmanager
def _directory(top: Path, path: Path) -> Iterator[at.Place]:
    """The open directory of a path, and the name in it; a sealed directory is writable within the ``with`` block."""
    with within.named(path.parent), at.parent(top, path) as place, at.writable(place[0]):
        yield place


def _is_ours(top: Path, path: Path) -> bool:
    with at.parent(top, path) as (directory, name):
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_uid == os.geteuid()


def _put(top: Path, path: Path, item: Item, source: bytes | Path) -> None:
    """Write a file with its content, mode and time under a temporary name, then rename it."""
    part = f".{path.name[:100]}.{process_token()}"
    with _directory(top, path) as (directory, name):
        try:
            _write(directory, part, item, source)
            atomic.fault_point("mend")
            with os.fdopen(os.open(part, at.READ, dir_fd=directory), "rb") as stream:
                if sha256_stream(stream) != item.sha256:
                    raise StackyardError(f"cannot restore {path}: what it is restored from changed while it was read",
                                         hint="repair again")  # fmt: skip
            if stat.S_ISDIR(_mode(directory, name)):
                at.remove_tree(directory, name)
            os.replace(part, name, src_dir_fd=directory, dst_dir_fd=directory)  # noqa: TID251  by descriptors
        finally:
            at.remove_tree(directory, part)  # a rename to another name of the same file leaves both
        atomic.fault_point("mended")


def _mode(directory: int, name: str) -> int:
    """The mode of a directory entry; 0 if it does not exist."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0


def _write(directory: int, name: str, item: Item, source: bytes | Path) -> None:
    """Write the found bytes, or link the found file."""
    if isinstance(source, Path) and _can_be_linked(source, item):
        with at.parent(source.parent, source) as origin:
            copying.copy_tree(origin, (directory, name), link=True)
        return
    with at.open_new(directory, name) as stream:
        stream.write(at.read_regular(source) if isinstance(source, Path) else source)
        stream.flush()
        at.change_open(stream.fileno(), item.mode & 0o777)
        at.set_times(stream.fileno(), item.mtime_ns)


def _can_be_linked(path: Path, item: Item) -> bool:
    """Whether a file has the recorded owner, time and mode, so that a link does not change it."""
    status = path.lstat()
    same = (status.st_mtime_ns, stat.S_IMODE(status.st_mode)) == (item.mtime_ns, item.mode)
    return same and status.st_uid == os.geteuid()
