"""Lets the members of a group load a revision of a yard that is closed to others.

The revision gets the group, and so do the parts of the yard that it depends on: bases, an interpreter installed by uv.
The group can enter the directories above, but not list them. The modulefile is written to the group's own directory
with each generation, since the yard's module directory shows all revisions of its owner.
"""

from __future__ import annotations

import grp
import os
import shlex
import stat
from collections.abc import Collection, Iterable
from pathlib import Path
from urllib.parse import unquote

from stackyard.core.errors import InputError, MissingError, StackyardError
from stackyard.core.late import dataclass
from stackyard.expose.generation import module_texts
from stackyard.host.files import at
from stackyard.host.files.filesystem import group_name
from stackyard.host.run.identity import whoami
from stackyard.inputs.workspace import Workspace
from stackyard.yard import disk
from stackyard.yard.cache import caches
from stackyard.yard.generation import generations
from stackyard.yard.kinds.extension import BaseRevision
from stackyard.yard.layout import Yard, place_of
from stackyard.yard.revision import revisions
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import BuildRecord, read_record
from stackyard.yard.write import atomic, trash, within
from stackyard.yard.write.permissions import Policy, applied, of_directory, settle

_AGAIN = "the revision is unchanged; share it again"
_READ_AND_ENTER = 0o050
_ANOTHER = "use a yard of your own for it, with --yard"


@dataclass(frozen=True)
class Group:
    """A group of this machine."""

    name: str
    number: int

    @classmethod
    def named(cls, text: str) -> Group:
        """The group of ``group:NAME``.

        Raises:
            InputError: no such group, or you are not a member of it.
        """
        kind, _, name = text.partition(":")
        if kind != "group" or not name:
            raise InputError(f"--with: {text!r} is not a group", hint="write --with group:NAME")
        try:
            number = grp.getgrnam(name).gr_gid
        except KeyError:
            raise InputError(f"no such group on this machine: {name}", hint="`id` shows yours") from None
        if os.geteuid() != 0 and number not in (os.getegid(), *os.getgroups()):
            hint = "only a member can give files to a group; `id` shows yours"
            raise InputError(f"you are not a member of the group {name}", hint=hint)
        return cls(name, number)


def require_shareable(yard: Yard, entry: Entry, group: Group) -> None:
    """Raise StackyardError if the group could not reach the yard, or another group would lose access by sharing."""
    if not revisions.is_in(yard, entry.folder):
        raise InputError(f"{entry.module} is not in your yard {yard.root}", hint="ask its owner")
    closed = [str(path) for path in reversed(yard.root.resolve().parents) if not _may_enter(path, group)]
    if closed:
        line = f"chmod o+x {shlex.join(closed)}"
        hint = f"let them pass: {line}; or keep the extension in a yard elsewhere, with --yard"
        raise StackyardError(f"members of {group.name} cannot enter {', '.join(closed)}", hint=hint)
    others = [name for name in groups(yard) if name != group.name]
    for directory in _above(yard, _parts(yard, entry)):
        status = directory.stat()
        taken = others or status.st_mode & 0o020 or status.st_gid != os.getegid()
        if status.st_gid != group.number and status.st_mode & 0o070 and taken:
            name = others[0] if others else group_name(status.st_gid)
            raise StackyardError(f"{directory} is shared with the group {name} already", hint=_ANOTHER)


def _may_enter(directory: Path, group: Group) -> bool:
    """Whether the mode of a directory lets members of a group pass; entries of an ACL do not count."""
    status = directory.stat()
    return bool(status.st_mode & 0o001 or (status.st_gid == group.number and status.st_mode & 0o010))


def shut_out(yard: Yard, group: Group) -> str:
    """The group whose members would lose read access to a yard when it is shared with another; empty: none.

    A user private group, named after its only member, does not count.
    """
    status = yard.root.stat()
    name = group_name(status.st_gid)
    return name if status.st_mode & 0o050 and status.st_gid != group.number and name != whoami() else ""


def share(workspace: Workspace, entry: Entry, group: Group) -> Path:
    """Share a revision and its dependencies in the yard; returns the directory for ``module use``.

    Raises:
        StackyardError: as for `require_shareable`; or a group cannot be set.
    """
    yard = workspace.yard
    require_shareable(yard, entry, group)
    disk.require_mounted_for_writing(yard.root, f"cannot share {entry.module}")
    if not disk.is_there(RevisionPaths.of(entry.folder).record):
        raise MissingError(f"{entry.folder} not found: {entry.module} was removed", hint="deploy its file again")
    parts, directory = _parts(yard, entry), yard.shared(group.name)
    policy = Policy(of_directory(yard.root).umask & ~_READ_AND_ENTER | 0o020, group.name)
    with disk.during(f"sharing {entry.module}", _AGAIN), applied(Policy(0o027)):
        for part in parts:
            settle(part, policy, top=_top(yard, part))
        within.make(yard.root, directory)
        _write_modules(workspace, group.name, {*modules_of(yard, group.name), entry.module})
        for place in (*_above(yard, parts), directory.parent, directory.parent.parent):
            _let_in(_top(yard, place), place, group)
    return directory


def unshare(workspace: Workspace, entry: Entry, group: Group, *, dry_run: bool = False) -> None:
    """Stop sharing a revision: remove its modulefile, and the group's access to parts it no longer needs.

    Raises:
        InputError: it is not shared with the group.
    """
    yard = workspace.yard
    shared = modules_of(yard, group.name)
    if entry.module not in shared:
        raise InputError(
            f"{entry.module} is not shared with {group.name}", hint=f"what is: {', '.join(sorted(shared)) or 'nothing'}"
        )
    if dry_run:
        return
    left = [e for e in generations.entries(yard) if e.module in shared - {entry.module} and _is_there(e)]
    needed = {part for e in left for part in _parts(yard, e)}
    with disk.during(f"sharing {entry.module}", _AGAIN), applied(Policy(0o027)):
        _write_modules(workspace, group.name, shared - {entry.module})
        for part in _parts(yard, entry) if _is_there(entry) else ():
            if part not in needed:
                settle(part, Policy(of_directory(yard.root).umask | 0o070), linked=False,  # the others' files too
                       top=_top(yard, part))  # fmt: skip
        if shared == {entry.module} and not disk.names(yard.shared_later(group.name, "x").parent):
            disk.remove_tree(yard.shared(group.name).parent, yard.root)


def refresh(workspace: Workspace) -> None:
    """Write the modulefiles for all groups again, from the generation that has just become current."""
    for group in groups(workspace.yard):
        if disk.is_there(workspace.yard.shared(group)):  # else nothing is shared with it yet
            _write_modules(workspace, group, modules_of(workspace.yard, group))


def groups(yard: Yard) -> list[str]:
    """The groups with access to parts of a yard."""
    return sorted(unquote(name) for name in disk.names(yard.shared("x").parent.parent) if not name.startswith("."))


def modules_of(yard: Yard, group: str) -> set[str]:
    """The modules that a group has access to."""
    directory = yard.shared(group)
    names = (path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())
    return {name.removesuffix(".lua") for name in names if not name.rpartition("/")[2].startswith(".")}


def _is_there(entry: Entry) -> bool:
    return entry.state not in ("removed", "missing") and disk.is_there(RevisionPaths.of(entry.folder).record)


def _parts(yard: Yard, entry: Entry) -> list[Path]:
    """The parts of the yard that a revision needs: its directory, those of its bases, its interpreter."""

    def below(base: BaseRevision) -> BuildRecord | None:
        directory = Path(base.prefix).parent
        return read_record(yard.named(directory).record) if revisions.is_in(yard, str(directory)) else None

    paths = yard.named(entry.folder)
    line = list(read_record(paths.record).lineage(below))
    parts = [paths.root, *(yard.named(Path(record.prefix).parent).root for record in line[1:])]
    parts += [part for record in line for part in _interpreter(yard, record)]
    return list(dict.fromkeys(parts))


def _interpreter(yard: Yard, record: BuildRecord) -> list[Path]:
    """The directories of an interpreter that uv installed into the yard: the link in use and its target."""
    if record.interpreter.get("source") != "uv":
        return []
    named = Path(record.interpreter["path"])
    return [
        yard.interpreter(path.relative_to(root).parts[0])
        for path, root in ((named, yard.pythons), (named.resolve(), yard.pythons.resolve()))
        if path != root and path.is_relative_to(root) and ".." not in path.parts
    ]


def _above(yard: Yard, parts: Iterable[Path]) -> list[Path]:
    """The directories of the yard above the parts that a revision needs, the yard itself first."""
    inner = (directory for part in parts for directory in part.parents if directory.is_relative_to(yard.root))
    return sorted(set(inner))


def _top(yard: Yard, path: Path) -> Path:
    """The directory below which no link is followed to a part; an interpreter is in the cache, which may be a link."""
    return caches.trusted(yard) if path.is_relative_to(yard.cache) else yard.root


def _let_in(top: Path, directory: Path, group: Group) -> None:
    """Let a group enter a directory, without any other change of permissions."""
    with at.directory(top, directory) as handle:
        status = os.fstat(handle)
        mode = stat.S_IMODE(status.st_mode)
        if status.st_gid != group.number:
            at.change_open(handle, mode & ~0o060 | 0o010 | (mode & 0o004) << 3, group.number)
        elif not mode & 0o010:
            at.change_open(handle, mode | 0o010)


def _write_modules(workspace: Workspace, group: str, modules: Collection[str]) -> None:
    """Write exactly the modulefiles that a group has access to; those of removed revisions refuse to load."""
    yard = workspace.yard
    directory = yard.shared(group)
    entries = [e for e in generations.entries(yard) if e.module in modules and e.state != "missing"]
    removed = trash.removed(yard)
    places = {e.module: removed.get(place_of(e.folder)) or RevisionPaths.of(e.folder) for e in entries}
    read = {module: revisions.readable(paths) for module, paths in places.items()}
    texts = module_texts(entries, {module: record for module, record in read.items() if record}, workspace)
    for path, text in texts.items():
        atomic.write_text(directory / path, text, top=yard.root)
    for left in [path for path in directory.rglob("*") if path.is_file()]:
        if left.relative_to(directory).as_posix() not in texts:
            within.unlink(yard.root, left)
    settle(directory, Policy(0o027, group), top=yard.root)
