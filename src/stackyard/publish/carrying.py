"""What a move carries over as it is: what names no path of the yard, or names it in a few text files only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from stackyard.build.seal import PARTS
from stackyard.errors import InputError, StackyardError
from stackyard.findings import some
from stackyard.host.hashing import sha256_file
from stackyard.image import launcher
from stackyard.lock import text as lockfile
from stackyard.lock.model import Lock
from stackyard.publish.extending import LOCK
from stackyard.publish.plan import Task
from stackyard.publish.remaking import Kept, Ways
from stackyard.publish.share import Group, share
from stackyard.spec.models import Site
from stackyard.spec.siteyard import policy
from stackyard.verify.content import noted_contents
from stackyard.yard import atomic, contents, disk, generations, manifestfile, revisions, trash
from stackyard.yard.folders import RevisionPaths
from stackyard.yard.layout import Yard
from stackyard.yard.permissions import file_mode, settle
from stackyard.yard.record import MANIFEST, BuildRecord, Manifest

_MOST_BYTES = 1 << 22
"""No text file of an interpreter that names its path is larger."""


def beside(ways: Ways) -> None:
    """Carry over what lies beside the revisions: locks, extensions' files, licences, bases, counts, sources, wheels."""
    old, new = ways.source, ways.target
    for source, target in ((old.locks, new.locks), (old.extensions, new.extensions)):
        _tree(source, target, link=False)
    for source, target in ((old.bases, new.bases), (old.sources, new.sources), (old.wheels, new.wheels)):
        _tree(source, target, link=True)  # written once, so that a link is as good as a copy
    for source, target in ((old.licences, new.licences), (old.signatures, new.signatures)):
        if disk.is_there(source) and not disk.is_there(target):
            _file(source, target)
    _counts(old, new)
    for name in disk.names(old.pythons):
        if disk.is_folder(old.interpreter(name)) and not disk.is_there(new.interpreter(name)):
            _interpreter(old.interpreter(name), new.interpreter(name), ways)


def _tree(source: Path, target: Path, *, link: bool) -> None:
    """A tree without what it has already; each file appears whole."""
    for folder, _, files in os.walk(source):
        place = target / Path(folder).relative_to(source)
        place.mkdir(parents=True, exist_ok=True)
        for name in files:
            if not os.path.lexists(place / name) and not name.startswith("."):
                _file(Path(folder, name), place / name, link=link)


def _file(source: Path, target: Path, *, link: bool = False) -> None:
    part = atomic.temporary(target)
    try:
        disk.link_or_copy(source, part, link=link)
        atomic.fault_point("carry")
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _counts(old: Yard, new: Yard) -> None:
    """The counts of uses: the owner of a file is who used the revisions, so only root carries those of others over."""
    for file in disk.entries(old.usage) if disk.is_folder(new.usage) else ():
        with suppress(OSError):
            place, owner = new.inner(str(file.relative_to(old.root))), file.stat()
            if os.geteuid() in (0, owner.st_uid) and not disk.is_there(place):
                _file(file, place)
                os.chown(place, owner.st_uid, owner.st_gid)


def _interpreter(source: Path, target: Path, ways: Ways) -> None:
    """An interpreter of uv: it finds its library relative to itself, and names its path in a few text files.

    An interpreter is a link beside its directory too (``cpython-3.12-...``), which is copied as it is.
    """
    if source.is_symlink():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(ways.there(str(source.readlink())))
        return
    part = target.with_name(f".{target.name}")
    disk.remove_tree(part)
    part.parent.mkdir(parents=True, exist_ok=True)
    disk.copy_tree(source, part, link=False)
    before, after = os.fsencode(ways.built_in), os.fsencode(ways.target.root)
    for folder, _, files in os.walk(part):
        for name in files:
            _rewrite(Path(folder, name), before, after)
    part.rename(target)


def _rewrite(file: Path, before: bytes, after: bytes) -> None:
    if file.is_symlink() or file.stat().st_size > _MOST_BYTES:
        return
    data = file.read_bytes()
    if before in data and b"\0" not in data:
        file.write_bytes(data.replace(before, after))


def lock_of_extension(kept: Kept, made: Task, ways: Ways) -> None:
    """The lock beside the file of an extension, on its base at the new place, so that `update` need not solve it."""
    place = ways.target.extension(kept.entry.stack) / LOCK
    if kept.record.base is None or not disk.is_there(place):
        return
    before = lockfile.read(kept.paths.lock).variants
    if [each.spec_hash for each in lockfile.read(place).variants] == [each.spec_hash for each in before]:
        atomic.write_text(place, lockfile.dump(Lock(kept.entry.stack, (made.locked,))))


# --------------------------------------------------------------------------- history


def history(ways: Ways) -> None:
    """The manifests of all generations: names stay taken, and each deploy's files known. Their modulefiles stay."""
    for manifest in generations.readable(ways.source):
        place = ways.target.generation(manifest.number).manifest
        if not manifestfile.is_there(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            atomic.write_json(place, _there(manifest, ways).to_json(), checked=True)


def _there(manifest: Manifest, ways: Ways) -> Manifest:
    value = ways.over({**manifest.to_json(), "format": MANIFEST.version, "files": {}})
    return Manifest.from_json(value)


# --------------------------------------------------------------------------- wrapped images


def container(kept: Kept, ways: Ways, site: Site) -> BuildRecord:
    """A wrapped image: no file of it names the yard but its record. Its launcher is made here.

    Raises:
        MissingError: no compiler for the launcher.
        StackyardError: a file is not what was noted, or the disk is full.
    """
    paths = ways.target.revision(kept.entry.stack, Path(kept.entry.folder).name)
    if disk.is_there(paths.record):
        found = revisions.readable(paths)
        if found is not None and found.input_hash == kept.record.input_hash:
            return found
    disk.remove_tree(paths.root)
    paths.root.mkdir(parents=True)
    for part in PARTS:
        disk.copy_tree(kept.paths.root / part, paths.root / part, link=False)
    disk.link_or_copy(kept.paths.image, paths.image)
    paths.image.chmod(file_mode() & 0o444)
    shutil.copyfile(kept.paths.files, paths.files)
    launcher.make(paths.launcher, container=True)
    moved = BuildRecord.from_json(ways.over(kept.located.to_json()))
    record = replace(moved, form=replace(moved.form, launcher=sha256_file(paths.launcher)))
    _require_same(record, paths)
    for each in disk.entries(paths.root):
        settle(each, policy(ways.target, site), linked=False)
    contents.seal(paths.root, contents.scan(paths.root, PARTS), folders=False)
    contents.seal(paths.root, contents.scan(paths.root, PARTS[:1]), folders=True)
    revisions.mark(record)
    return record


def _require_same(record: BuildRecord, paths: RevisionPaths) -> None:
    noted = noted_contents(record)
    damages = contents.compare(noted, paths.root, contents.scan(paths.root, PARTS), noted.hashed)
    wrong = sorted({str(each) for each in damages if each.what != "permissions"})
    if wrong:
        raise StackyardError(f"its files are not what was built: {some(wrong, 3)}",
                             hint=f"see `stackyard verify {record.module} --deep` in its yard")  # fmt: skip


# --------------------------------------------------------------------------- shares, and what stays


def shares(ways: Ways, site: Site) -> Iterator[str]:
    """Share again what was shared with groups; a sentence for each that cannot be."""
    entries = generations.entries(ways.target)
    for name in disk.names(ways.source.shares):
        folder = ways.source.shared(name)
        _tree(ways.source.shared_later(name, "x").parent, ways.target.shared_later(name, "x").parent, link=False)
        for entry in entries:
            files = (folder / entry.module, folder / f"{entry.module}.lua")
            if entry.state != "missing" and any(disk.is_there(each) for each in files):
                try:
                    share(ways.target, site, entry, Group.named(f"group:{name}"))
                except (InputError, StackyardError) as error:
                    yield f"{entry.module} is not shared with {name}: {error.message}; {error.hint}"


def require_free(yard: Yard) -> None:
    """Raise StackyardError where something of an earlier move is in the way: it would be taken for what is here now.

    A move that was killed has moved each part, or not; none is in both places.
    """
    left = next((aside for there, aside in _pairs(yard) if os.path.lexists(there) and os.path.lexists(aside)), None)
    if left is not None:
        raise StackyardError(
            f"cannot move {yard.root}: {left} exists, from before an earlier move",
            hint=f"once you know that nobody needs it: mv {left.parent} to another place, and move again",
        )


def _pairs(yard: Yard) -> list[tuple[Path, Path]]:
    """What is built again, each with the place where it is put aside."""
    former, names = yard.former(), ("stacks", "shares", "generations", "modules")
    return [(getattr(yard, name), getattr(former, name)) for name in names]


def put_aside(yard: Yard) -> None:
    """Move the revisions and generations of a yard that is built again in its place; a kill leaves the rest to do."""
    yard.former().root.mkdir(exist_ok=True)
    for there, aside in _pairs(yard):
        if os.path.lexists(there) and not os.path.lexists(aside):
            there.rename(aside)
            atomic.fault_point("put-aside")


def throw_away(yard: Yard) -> None:
    """Put what was put aside into the trash, from which `gc` deletes it once the grace time is over."""
    for path in disk.entries(yard.former().root):
        if path.is_symlink():
            path.unlink()
        else:
            trash.settle(trash.put(yard, path, trash.note_of("leftover", yard, path, os.urandom(6).hex(),
                                                              reason="before the yard was moved")))  # fmt: skip
    with suppress(FileNotFoundError):  # a killed move had come as far as this
        yard.former().root.rmdir()
