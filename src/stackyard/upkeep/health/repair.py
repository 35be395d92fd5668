"""Restores damaged files of a revision, byte for byte, from what is locked.

The revision is built again from its own lock, beside itself, at a path of the same length, so that a file which
contains its prefix differs in nothing but that path. Each damaged file is then replaced by a rename, after its hash was
compared with the one that was noted when the revision was built: a file is restored as it was, or not at all. Nothing
is written into an existing file, since other revisions and the cache may share it.
"""

from __future__ import annotations

import base64
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
from stackyard.host.files.hashing import sha256_file, sha256_stream
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
    """See that no link leads out of a revision: a repair would write and remove files there.

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
    """What became of the damaged files of a revision, by their paths in its directory (as `contents.written`)."""

    restored: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


def repair(record: BuildRecord, workspace: Workspace, progress: Progress, given: Iterable[UsedFile] = ()) -> Outcome:
    """Restore every damaged file of a revision. The caller may write to the yard and holds the lease of the stack.

    A revision with a file that cannot be made again is marked: a deploy of its file builds another one in its place.

    Args:
        given: files that copies in ``recipe/`` may have been made of.

    Raises:
        StackyardError: it is not known what the files held, it cannot be built again (no network), a file cannot be
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
        return _repaired(record, workspace, progress, given)
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


def _repaired(record: BuildRecord, workspace: Workspace, progress: Progress, given: Iterable[UsedFile]) -> Outcome:
    paths = RevisionPaths.of(record.path)
    noted = seen_of(record, _noted(record))
    damages = _damages(record, noted)
    if damages:
        record.origin.require_repairable()
        progress.phase(record.module, "repair", counted(len(damages), "file"))
        _restore_lock(record, noted, workspace.yard)
        sources = _Sources(record, workspace, progress, given)
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
    """The files that deploys to a yard read, with what they held then: copies in ``recipe/`` were made of them.

    The newest first. A generation is read when one of its files is asked for.
    """
    return (file for manifest in generations.readable(yard) for file in manifest.origin.files)


def file_of(entry: Entry, yard: Yard) -> str:
    """The path by which the file of a revision was deployed last, for a command to type."""
    known = (file.path for file in files_read(yard) if identity(file.path) == entry.file)
    return next(known, entry.file or "FILE")


def repair_yard(workspace: Workspace, made_by: Origin | None = None) -> list[str]:
    """Restore the modulefiles that users see and discard damaged entries of the caches; a sentence for each."""
    done = [f"discarded: {problem}" for problem in discard_damaged(workspace.yard)]
    changed = list(modulefiles(workspace.yard))
    if changed:
        rollback.publish(workspace, lambda base: rollback.again(base, "modulefiles restored"), made_by)
        done += [f"restored: {problem}" for problem in changed]
    return done


def _noted(record: BuildRecord) -> Contents:
    """What the files held; a damaged note is made again where all of them are whole."""
    paths = RevisionPaths.of(record.path)
    if not record.files_sha256:
        raise StackyardError(
            f"cannot repair {record.module}: an earlier version built it, which did not note what its files held",
            hint=f"move {paths.root} away and deploy its file again",
        )
    try:
        return noted_contents(record)
    except StackyardError as error:
        made = contents.note(paths.root, look(record))
        if hashlib.sha256(made.to_text().encode()).hexdigest() != record.files_sha256:
            raise StackyardError(
                f"cannot repair {record.module}: {error.message}", hint=f"restore {paths.files} from a backup"
            ) from error
        atomic.write_text(paths.files, made.to_text(), top=paths.yard)
        return made


def _damages(record: BuildRecord, noted: Contents) -> list[Damage]:
    """Every byte compared. What was added comes first: it may have the place of a directory, or of a file in it.

    Directories come before what is in them, and bytecode after its source.
    """
    found = contents.compare(noted, Path(record.path), seen(record), noted.hashed)
    return sorted(found, key=lambda damage: (damage.what != "unexpected", damage.path.endswith(".pyc"), damage.path))


# --------------------------------------------------------------------------- where the bytes come from


class _Sources:
    """The revision built again, when the first file of it is asked for."""

    def __init__(
        self, record: BuildRecord, workspace: Workspace, progress: Progress, given: Iterable[UsedFile]
    ) -> None:
        self._record, self._given = record, tuple(dict.fromkeys(given))
        self._workspace, self._progress = workspace, progress
        self._kept = Originals(record, workspace.yard)
        root = Path(record.path)
        self._twin = RevisionPaths(root.with_name(f".{root.name[1:]}"))

    def find(self, name: str, item: Item) -> bytes | Path | None:
        """The bytes of a file as they were: a file that has them and their time, or the bytes; None: not found.

        What the caches still have comes first: then nothing is built. It is read, so that it is not the damaged file.
        """
        if not name.startswith("prefix/"):
            same = (Path(file.path) for file in self._given if file.sha256 == item.sha256)
            # not linked: it is the user's own
            read = (path for path in same if path.is_file() and contents.digest_if_readable(path) == item.sha256)
            return next(map(at.read_regular, read), None)
        kept = self._kept.find(item)
        if kept is not None:
            return kept
        path = self._job.paths.root / name
        if not path.is_file() or path.is_symlink():
            return None
        data = at.read_regular(path)
        for text in self._spellings(data):
            if hashlib.sha256(text).hexdigest() == item.sha256:
                return path if text is data else text
        return self._compiled(name.removeprefix("prefix/"), item)

    def _compiled(self, name: str, item: Item) -> bytes | None:
        """Bytecode of a file with the prefix in it: from the source at its place, which was restored before."""
        source = source_of(name)
        if not source:
            return None
        target = self._job.work / "again.pyc"
        bytecode.compile_files(self._job, [(str(target), f"{self._record.prefix}/{source}", source)])
        found = target.is_file() and sha256_file(target) == item.sha256
        return at.read_regular(target) if found else None

    def discard(self) -> None:
        """Remove what was built."""
        disk.remove_tree(self._twin.root, self._twin.yard)

    def _spellings(self, data: bytes) -> Iterator[bytes]:
        """The bytes of a file of the build, as they may be at the place of the revision; the last ones cost most."""
        yield data
        moved = self._moved(data)
        yield moved
        yield self._with_hashes(moved)

    def _moved(self, data: bytes) -> bytes:
        return data.replace(os.fsencode(self._twin.root), os.fsencode(self._record.path))

    def _with_hashes(self, data: bytes) -> bytes:
        """A listing (RECORD, conda-meta) with the hashes that its files have at the other path."""
        for before, after in self._hashes.items():
            data = data.replace(before, after)
        return data

    @cached_property
    def _hashes(self) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for name, status in contents.scan(self._job.paths.root, ("prefix/",)).items():
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
                data = at.read_regular(self._job.paths.root / name)
                before, after = hashlib.sha256(data), hashlib.sha256(self._moved(data))
                if before.digest() != after.digest():
                    found[before.hexdigest().encode()] = after.hexdigest().encode()
                    found[_urlsafe(before.digest())] = _urlsafe(after.digest())
        return found

    @cached_property
    def _job(self) -> Job:
        """The build, done: the steps that need no file of the user: all but a post script."""
        self.discard()
        return built_again(self._record, self._workspace, self._twin, self._progress)


def _urlsafe(digest: bytes) -> bytes:
    return base64.urlsafe_b64encode(digest).rstrip(b"=")


def _restore_lock(record: BuildRecord, noted: Contents, yard: Yard) -> None:
    """Restore the revision's lock, from which the rest is restored, from those that the yard keeps."""
    paths = RevisionPaths.of(record.path)
    item, path = noted.files.get(LOCK), paths.lock
    if item is None or (path.is_file() and sha256_file(path) == item.sha256):
        return
    for kept in sorted(kept for each in yard.lineage() for kept in each.locks.rglob("*.lock")):
        for locked in _variants(kept):
            data = lockfile.dump(Lock(locked.stack, (locked,))).encode()
            if hashlib.sha256(data).hexdigest() == item.sha256:
                _put(paths.yard, path, item, data)
                return
    raise StackyardError(
        f"cannot repair {record.module}: {path} is damaged, and the yard keeps no other copy of it",
        hint="restore it from a backup, or move the revision away and deploy its file again",
    )


def _variants(kept: Path) -> tuple[LockedVariant, ...]:
    try:
        return lockfile.read(kept).variants
    except StackyardError:
        return ()


# --------------------------------------------------------------------------- putting them in place


def _mend(paths: RevisionPaths, damage: Damage, noted: Contents, sources: _Sources) -> None:
    """Put one file in place, if its bytes are found. No link on the way to it is followed."""
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
    elif (found := sources.find(damage.path, item)) is not None:
        _put(top, path, item, found)


@contextmanager
def _directory(top: Path, path: Path) -> Iterator[at.Place]:
    """The open directory of a path and its name there, to write in it: it may be sealed, and is again afterwards."""
    with within.named(path.parent), at.parent(top, path) as place, at.writable(place[0]):
        yield place


def _is_ours(top: Path, path: Path) -> bool:
    with at.parent(top, path) as (directory, name):
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_uid == os.geteuid()


def _put(top: Path, path: Path, item: Item, found: bytes | Path) -> None:
    """Give a file its bytes, mode and time, under a name of its own, and then its name."""
    made = f".{path.name[:100]}.{process_token()}"
    with _directory(top, path) as (directory, name):
        try:
            _write(directory, made, item, found)
            atomic.fault_point("mend")
            with os.fdopen(os.open(made, at.READ, dir_fd=directory), "rb") as stream:
                if sha256_stream(stream) != item.sha256:
                    raise StackyardError(f"cannot restore {path}: what it is restored from changed while it was read",
                                         hint="repair again")  # fmt: skip
            if stat.S_ISDIR(_mode(directory, name)):
                at.remove_tree(directory, name)
            os.replace(made, name, src_dir_fd=directory, dst_dir_fd=directory)  # noqa: TID251  by descriptors
        finally:
            at.remove_tree(directory, made)  # a rename to another name of the same file leaves both
        atomic.fault_point("mended")


def _mode(directory: int, name: str) -> int:
    """The mode of what has a name; 0 for nothing."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0


def _write(directory: int, name: str, item: Item, found: bytes | Path) -> None:
    """Write, or link, what was found."""
    if isinstance(found, Path) and _can_be_linked(found, item):
        with at.parent(found.parent, found) as origin:
            copying.copy_tree(origin, (directory, name), link=True)
        return
    with at.open_new(directory, name) as stream:
        stream.write(at.read_regular(found) if isinstance(found, Path) else found)
        stream.flush()
        at.change_open(stream.fileno(), item.mode & 0o777)
        at.set_times(stream.fileno(), item.mtime_ns)


def _can_be_linked(found: Path, item: Item) -> bool:
    """Whether a file is this account's and has the time and the mode that it had: it is not changed by being linked."""
    status = found.lstat()
    same = (status.st_mtime_ns, stat.S_IMODE(status.st_mode)) == (item.mtime_ns, item.mode)
    return same and status.st_uid == os.geteuid()
