"""Repairs faults outside of prefixes: caches, modulefiles, modes, stubs (for prefixes: `upkeep.health.repair`)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.findings import counted, some
from stackyard.deploy import signing
from stackyard.deploy.published import rollback
from stackyard.host.files import at
from stackyard.host.run.identity import account_name
from stackyard.images.squashfs.launcher.compare import is_recorded
from stackyard.images.squashfs.stubs import text_of
from stackyard.inputs.workspace import Workspace
from stackyard.upkeep.health import launchers
from stackyard.upkeep.health.fsck.fault import Fault, Report
from stackyard.upkeep.health.fsck.image import launcher_fault, links
from stackyard.upkeep.health.repair import file_of, require_in_place
from stackyard.verify.checks.content import noted_contents
from stackyard.yard import disk
from stackyard.yard.cache import caches, notes
from stackyard.yard.generation import generations
from stackyard.yard.generation.origin import Origin
from stackyard.yard.kinds.payload import STUB
from stackyard.yard.layout import Yard, own_part
from stackyard.yard.revision import revisions
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import BuildRecord
from stackyard.yard.write import atomic, trash, within

_SHOWN = 4


def require_owner(yard: Yard) -> None:
    """Raise StackyardError where this account may not repair the yard."""
    disk.require_mounted_for_writing(yard.root, f"cannot repair {yard.root}")
    if not os.access(yard.root, os.W_OK | os.X_OK):
        owner = account_name(yard.root.stat().st_uid)
        raise StackyardError(
            f"cannot repair {yard.root}: it belongs to {owner}, and you may not write to it",
            hint=f"run it as {owner}; without --repair it only reads",
        )


def rest(report: Report, workspace: Workspace, made_by: Origin) -> Iterator[str]:
    """Repair all faults outside of prefixes; yields a sentence for each repair.

    The caches come first, since files are restored from them. The caller has write access to the yard.
    """
    own = [fault for fault in report.faults if fault.path.is_relative_to(workspace.yard.root) and _is_in_place(fault)]
    yield from _discarded(own)
    yield from _rights(own, workspace.yard.root)
    yield from _modules(report, workspace, made_by)
    unrecorded = {directory for directory in report.unrecorded if Path(directory).is_relative_to(workspace.yard.root)}
    for directory in sorted({fault.directory for fault in own if fault.directory} | unrecorded):
        record = revisions.readable(RevisionPaths.of(directory))
        if record is not None and record.path == directory and record.payload.launcher:
            yield from _launcher(record, workspace)
            done = mend_stubs(record, own)
            yield from [f"{record.module}: restored {some(done, _SHOWN)}"] if done else []
    if unrecorded:
        signing.republish(workspace, made_by)


def _launcher(record: BuildRecord, workspace: Workspace) -> Iterator[str]:
    """Make a missing, changed or unrecorded launcher again, and finish a repair of it that was killed."""
    launchers.finish(RevisionPaths.of(record.path))
    if launcher_fault(record) or not is_recorded(record):
        try:
            require_in_place(RevisionPaths.of(record.path))
            yield f"{record.module}: restored {some(launchers.renew(record, workspace), _SHOWN)}"
        except StackyardError as error:
            yield f"{error.message}; {error.hint}" if error.hint else error.message


def _is_in_place(fault: Fault) -> bool:
    """Whether no link leads out of the revision of a fault; `upkeep.health.repair` reports such a link."""
    try:
        if fault.directory:
            require_in_place(RevisionPaths.of(fault.directory))
    except StackyardError:
        return False
    return True


def listed(yard: Yard) -> tuple[Entry, ...]:
    """The published entries; none if they cannot be read, which is a separate fault."""
    try:
        return generations.entries(yard)
    except StackyardError:
        return ()


def _discarded(faults: Iterable[Fault]) -> Iterator[str]:
    """Discard changed cache entries; builds make them again from the lock."""
    damaged = (fault for fault in faults if fault.entry and fault.what not in ("permissions", "owner"))
    for fault in {fault.entry.path: fault for fault in damaged if fault.entry}.values():
        assert fault.entry is not None
        part, kind, path = fault.entry.part, fault.entry.kind, fault.entry.path
        try:
            kind.discard(path, part)
            if kind.linked:
                within.unlink(caches.trusted(part), notes.place(part, kind, path))
        except OSError as error:
            yield f"not discarded: {path}: {error.strerror}; its owner can: `stackyard fsck --repair`"
            continue
        yield f"discarded: {fault.line(own_part(part).root)}"


def _rights(faults: Iterable[Fault], root: Path) -> Iterator[str]:
    """Remove write permission from accounts that must not have it."""
    for fault in faults:
        if fault.what != "permissions":
            continue
        closed = _closed(fault)
        try:
            top = caches.trusted(fault.entry.part) if fault.entry else root
            within.set_mode(top, fault.path, lambda status, closed=closed: status.st_mode & ~closed)  # type: ignore[misc]
        except FileNotFoundError:
            continue
        except OSError as error:
            yield f"not repaired: {fault.path}: {error.strerror}; run it as the account that owns it"


def _closed(fault: Fault) -> int:
    """The permission bits to clear: all write bits in sealed trees, else those of other accounts."""
    if fault.entry:
        return 0o022 if fault.entry.kind.is_rewritten(str(fault.path)) or fault.path.is_dir() else 0o222
    if not fault.revision:
        return 0o022
    in_prefix = fault.path.is_relative_to(RevisionPaths.of(fault.directory).prefix)
    return 0o222 if in_prefix or not fault.path.is_dir() else 0o022


def _modules(report: Report, workspace: Workspace, made_by: Origin) -> Iterator[str]:
    """Write the present modulefiles again; damaged ones of former generations go to the trash, as with `gc`."""
    yard = workspace.yard
    try:
        shown = generations.current_number(yard)
    except StackyardError:
        return
    for number in generations.numbers(yard):
        modules = yard.generation(number).modules
        wrong = [fault for fault in report.faults if fault.path.is_relative_to(modules) and fault.what == "changed"]
        if not wrong:
            continue
        if number == shown:
            rollback.publish(workspace, lambda base: rollback.again(base, "modulefiles restored"), made_by)
            yield f"restored: {counted(len(wrong), 'modulefile')} of the present generation"
        if modules.is_dir() and not any(modules.parent.glob(yard.generation(number).mark("*").name)):
            what = trash.note_of("modules", yard, modules, f"fsck-{number}", reason="damaged modulefiles")
            trash.put(yard, modules, what)
            yield f"put into the trash: the modulefiles of generation {number}, which users no longer see"


def mend_stubs(record: BuildRecord, faults: Iterable[Fault]) -> list[str]:
    """Make missing or changed stubs again; returns their names."""
    paths, done = RevisionPaths.of(record.path), list[str]()
    if record.payload.has_stubs:
        expected = links(record, noted_contents(record))
        for fault in (item for item in faults if item.path.is_relative_to(paths.prefix) and item.what != "permissions"):
            name = fault.path.relative_to(paths.root).as_posix()
            with at.directory(paths.yard, fault.path.parent) as directory, at.writable(directory):
                done += [name] if _mend_stub(paths.yard, fault.path, record, expected.get(name, "")) else []
    return done


def _mend_stub(top: Path, path: Path, record: BuildRecord, target: str) -> bool:
    """Restore a stub, or remove a wrong file; whether that was done. Files only in the image are not copied."""
    if path.name == STUB:
        atomic.write_text(path, text_of(Path(record.prefix)), mode=0o444, top=top)
    elif target:
        atomic.replace_symlink(path, target, top=top)
    elif path.is_symlink() or path.is_file():
        within.unlink(top, path)
    else:
        return False
    return True


def note_lost_images(report: Report) -> list[str]:
    """Mark revisions whose images cannot be restored, so that a deploy of their files builds new ones."""
    files = {entry.module: file_of(entry, report.yard) for entry in listed(report.yard)}
    done = []
    for fault in report.faults:
        paths = RevisionPaths.of(fault.directory)
        lost = fault.directory and fault.path == paths.image and fault.what in ("missing", "changed")
        if lost and fault.path.is_relative_to(report.yard.root) and _is_in_place(fault):
            atomic.write_json(paths.damaged, {"files": [paths.image.name]}, top=report.yard.root)
            record = revisions.readable(paths)
            verb = "adopt --image" if record and record.origin.adopted_from else "deploy"
            again = f"stackyard {verb} {files.get(fault.revision, 'FILE')}"
            done.append(f"{fault.revision}: cannot make its image again: `{again}` builds the next one")
    return list(dict.fromkeys(done))
