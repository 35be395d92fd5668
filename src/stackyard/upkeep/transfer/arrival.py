"""Adds a revision built by another yard to this one: unpacks, compares, verifies and publishes it.

The unpacked files must be exactly those in the record, each with its hash. The launcher of an image is made here if an
earlier version made it or it does not run here. The record is written last; without it, the next run removes the
leftovers of a killed one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

from stackyard.core.errors import ChecksFailed, InputError, MissingError, StackyardError
from stackyard.core.findings import some
from stackyard.core.progress import Progress
from stackyard.deploy import generation, licences, signing
from stackyard.deploy.deploy import USABLE, Outcome, Request, register, verified
from stackyard.deploy.entries import present
from stackyard.deploy.generation import Step
from stackyard.deploy.published import names
from stackyard.deploy.published import share_later as sharedlater
from stackyard.deploy.writing import DeployLeases
from stackyard.expose.published import write_beside
from stackyard.host.files import at
from stackyard.host.files.hashing import sha256_file
from stackyard.host.machine.probe import glibc, machine
from stackyard.images import needs
from stackyard.images.oci import artefact
from stackyard.images.oci.artefact import Artefact, Fit, SignedRecord
from stackyard.images.squashfs import launcher, possible
from stackyard.images.squashfs.launcher import compare
from stackyard.inputs.sites.siteyard import policy
from stackyard.inputs.workspace import Workspace
from stackyard.make.seal import PARTS
from stackyard.verify.checks.content import noted_contents
from stackyard.yard import disk
from stackyard.yard.cache import caches
from stackyard.yard.generation import generations
from stackyard.yard.generation.origin import origin
from stackyard.yard.layout import Yard
from stackyard.yard.revision import contents, revisions, signatures
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import BuildRecord, read_record
from stackyard.yard.write import atomic, reserve, within
from stackyard.yard.write.permissions import file_mode, program_mode, settle


def require_fit(fit: Fit, yard: Yard, *, mounting: bool = False) -> RevisionPaths:
    """The paths for a fetched revision, if it fits this yard and this machine.

    Args:
        mounting: also require that this machine can mount it if it is an image that this yard does not have yet.

    Raises:
        InputError: it is for another path, another platform or a newer C library.
        MissingError: this machine lacks the interpreter that it uses, or cannot mount its image.
    """
    stack, _, version = fit.module.partition("/")
    paths = yard.revision(stack, version)
    if "/" in version or str(paths.root) != fit.path:
        raise InputError(
            f"{fit.module} is for {fit.path}, and in this yard it would be {paths.root}: its files name their path",
            hint="pull it into a yard at that path, or build it here: `stackyard deploy FILE`",
        )
    here = machine().platform
    if fit.platform not in (here, "noarch"):
        raise InputError(f"{fit.module} is for {fit.platform}, and this machine is {here}",
                         hint="pull it on a machine of that platform")  # fmt: skip
    needs.require(needs.Needs(fit.glibc, fit.glibc_file), glibc(), stack=fit.module, system="this machine",
                  hint="build it here: `stackyard deploy FILE`")  # fmt: skip
    if fit.host_python and not _is_same(Path(fit.host_python), fit.host_sha256):
        raise MissingError(
            f"{fit.module} uses the interpreter {fit.host_python} of the machine that it was built on, and this "
            "machine does not have the same",
            hint="install that, or build it with `interpreter: {source: uv}` or conda's Python",
        )
    if fit.base:
        _require_base(fit)
    if mounting and fit.form == "squashfs" and not disk.is_there(paths.record):
        possible.require_mounting(
            f"cannot pull {fit.module}, an image",
            "pull it on a machine that can (`stackyard image status` shows the ways), or with --allow-unverified: "
            f"it is then verified on such a machine, by `stackyard verify --deep {fit.module}`",
        )
    return paths


def _require_base(fit: Fit) -> None:
    """Require the base of a fetched extension, which does not contain the base's files."""
    below = revisions.readable(RevisionPaths(Path(fit.base_prefix).parent))
    if below is None or below.input_hash != fit.base_hash:
        has = "which is not there" if below is None else "where another build of it is"
        raise InputError(f"{fit.module} is a layer on {fit.base} in {fit.base_prefix}, {has}",
                         hint="pull its base first, into that yard")  # fmt: skip


def _is_same(program: Path, sha256: str) -> bool:
    return program.is_file() and (not sha256 or sha256_file(program) == sha256)


def arrive(arrived: Artefact, request: Request, progress: Progress, leases: DeployLeases) -> Outcome:
    """Add a fetched revision to this yard, publish it if its checks pass, and share it with the requested groups.

    Args:
        leases: the held lease to build its stack (`writing.building`).

    Raises:
        InputError: it does not fit, or another revision has its name.
        MissingError: something is missing on this machine, or a licence was not accepted.
        StackyardError: the fetched files are damaged, or the disk is full; all of them are removed again.
    """
    done = _arrive(arrived, request, progress, leases)
    new = (done.module,) if done.status in sharedlater.NEW else ()
    for text in sharedlater.share_new(request, new):
        progress.notice(text)  # it is published: nothing of this undoes it
    return done


def _arrive(arrived: Artefact, request: Request, progress: Progress, leases: DeployLeases) -> Outcome:
    paths, record = require_fit(arrived.fit, request.yard), arrived.record
    is_there = disk.is_there(paths.record)
    new = _later_signatures(arrived, paths) if is_there else ()
    _require_signed(arrived, request.yard, paths if is_there else None, new)
    _require_name(request.yard, record)
    if is_there:
        record = _there(paths, record)
        for text in new:
            signatures.add(paths, text)
        visible = {entry.module for entry in generations.entries(request.yard) if entry.is_visible}
        if record.module in visible:
            if new:
                signing.republish(request, origin(request.command))
            return Outcome(record.module, "unchanged", record.path, record=record, is_visible=True)
    else:
        _require_no_interpreter(record, request.yard)
        licences.require_of_record(request, record, request.accept)
        register(request.yard, record.base)
        record = _unpack(arrived, paths, request, progress)
        leases.check()
        revisions.mark(record, arrived.signed.record if arrived.signed else "")
    return _publish(_entry(arrived, paths), record, request, progress, leases)


def _require_signed(arrived: Artefact, yard: Yard, there: RevisionPaths | None, new: Iterable[str]) -> None:
    """Require the signatures that this yard demands for pulling, and those for loading, since a pull publishes.

    Args:
        there: the paths of the revision if this yard already has it; it is checked together with the `new` signatures.
    """
    text, texts = (arrived.signed.statement, arrived.signed.signatures) if arrived.signed else ("", ())
    if there is not None:
        text, texts = signatures.statement(there), (*signatures.texts(there), *new)
    for root, demand in [*signatures.demands_in(yard, "pull"), *signatures.demands_in(yard, "load")]:
        if why := signatures.problem_of(text, texts, demand):
            raise ChecksFailed(f"cannot pull {arrived.fit.module}: {why}, and {root} demands a valid signature",
                               hint="sign it where it was built (`stackyard sign REV`), and push it again")  # fmt: skip


def _require_no_interpreter(record: BuildRecord, yard: Yard) -> None:
    """Reject a bundled interpreter where signatures are demanded: the record covers only its program's hash."""
    demands = [*signatures.demands_in(yard, "pull"), *signatures.demands_in(yard, "load")]
    path = record.interpreter.get("path", "")
    if demands and record.interpreter.get("source") == "uv" and not os.path.lexists(path):
        raise ChecksFailed(
            f"cannot pull {record.module}: it comes with the interpreter {path}, which no signature covers, and "
            f"{demands[0][0]} demands a valid signature",
            hint=f"install that first: `uv python install -i {yard.pythons} {record.interpreter.get('version', '')}`",
        )


def _later_signatures(arrived: Artefact, paths: RevisionPaths) -> tuple[str, ...]:
    """The signatures that were added after this yard pulled or built the revision."""
    signed = arrived.signed
    if signed is None or signed.statement != signatures.statement(paths):
        return ()
    known = signatures.texts(paths)
    return tuple(text for text in signed.signatures if text not in known)


def _compare_signed(signed: SignedRecord, paths: RevisionPaths) -> None:
    """Require that the fetched files match the signed ones, and keep the signatures."""
    if signed.statement != signatures.statement_of(signed.record.encode(), disk.content(paths.module)):
        raise StackyardError(f"{paths.root.name} is not what was signed: its record or its operations were changed",
                             hint="push it again from where it was built")  # fmt: skip
    for text in signed.signatures:
        signatures.add(paths, text)


def _require_name(yard: Yard, record: BuildRecord) -> None:
    """Require that no other revision has, or ever had, this name."""
    past = (entry for manifest in generations.readable(yard) for entry in manifest.entries)
    if any(entry.module == record.module and entry.input_hash not in ("", record.input_hash) for entry in past):
        raise InputError(f"{record.module} is the name of another revision of this yard, built from other inputs",
                         hint="deploy its file here: the build becomes the next revision")  # fmt: skip


def _there(paths: RevisionPaths, fresh_record: BuildRecord) -> BuildRecord:
    record = read_record(paths.record)
    if (record.input_hash, record.files_sha256) != (fresh_record.input_hash, fresh_record.files_sha256):
        raise InputError(f"{paths.root} holds another build of {fresh_record.module}: a revision never changes",
                         hint="deploy its file here: the build becomes the next revision")  # fmt: skip
    return record


# --------------------------------------------------------------------------- its files


def _unpack(arrived: Artefact, paths: RevisionPaths, request: Request, progress: Progress) -> BuildRecord:
    """Unpack the files to their place; returns the record, which differs if the launcher was made here."""
    progress.phase(arrived.record.module, "unpack")
    try:
        _clear(paths)
        with at.parent(request.yard.root, paths.work, make=True) as (directory, name):
            os.mkdir(name, 0o700, dir_fd=directory)
        artefact.unpack(arrived, paths.work)
        atomic.fault_point("arrival-unpacked")
        _place(paths, arrived.record)
        _interpreter(arrived.record, paths, request.yard)
        _compare(arrived.record, paths)
        if arrived.signed:
            _compare_signed(arrived.signed, paths)
        record = _with_launcher(arrived, paths)
        write_beside(record, request.site)
        close(paths, request)
    except BaseException as error:
        if not disk.is_there(paths.record):
            _clear(paths)
        if isinstance(error, OSError):
            hint = "published revisions are unchanged; free some space if none is left, and pull it again"
            raise disk.failure(error, f"unpacking {arrived.record.module}", hint) from error
        raise
    disk.remove_tree(paths.work, paths.yard)
    return record


def _clear(paths: RevisionPaths) -> None:
    for left in disk.entries(paths.root):
        disk.remove_tree(left, paths.yard)


def _place(paths: RevisionPaths, record: BuildRecord) -> None:
    """Move the parts of a revision, and nothing else, to their place."""
    around = paths.work / artefact.BESIDE
    own = [artefact.LAUNCHER] if record.payload.launcher_sha256 else []
    known = {name.rstrip("/") for name in (*artefact.DIRECTORIES, *artefact.FILES, PARTS[0], *own)}
    for entry in disk.entries(around):
        if entry.name in artefact.LEFT_OUT:
            continue
        if entry.name not in known or entry.is_symlink():
            raise StackyardError(f"{record.module} is not a revision: it has {entry.name}", hint="push it again")
        within.rename(paths.yard, entry, paths.root / entry.name)
    if record.payload.is_packed:
        within.rename(paths.yard, paths.work / artefact.IMAGE_FILE, paths.image)
        within.set_mode(paths.yard, paths.image, lambda _: file_mode() & 0o444)


def _with_launcher(arrived: Artefact, paths: RevisionPaths) -> BuildRecord:
    """Make sure that the launcher of an image matches the record and runs here, or make one; the record with its hash.

    Artefacts of earlier versions have no launcher; one is made here and, as before, not recorded.

    Raises:
        MissingError: it does not run here, and its hash was signed.
        StackyardError: it differs from the launcher in the record.
    """
    record = arrived.record
    if record.payload.is_packed and not record.payload.launcher_sha256:
        launcher.make(paths.launcher)
    elif compare.has_launcher(record):
        if disk.is_file(paths.launcher):
            within.set_mode(paths.yard, paths.launcher, lambda _: program_mode() & ~0o222)
        if bad := compare.problem(record):
            raise StackyardError(f"{record.module} does not hold what was built: {bad}",
                                 hint="push it again from where it was built")  # fmt: skip
        if not launcher.works(paths.launcher):
            return _with_own_launcher(arrived, paths)
    return record


def _with_own_launcher(arrived: Artefact, paths: RevisionPaths) -> BuildRecord:
    record = arrived.record
    if arrived.signed:
        raise MissingError(
            f"the launcher that {record.module} was signed with does not run on this machine",
            hint="build it here: `stackyard deploy FILE`",
        )
    within.unlink(paths.yard, paths.launcher)
    launcher.make(paths.launcher)
    return record.with_launcher(sha256_file(paths.launcher))


def _interpreter(record: BuildRecord, paths: RevisionPaths, yard: Yard) -> None:
    """Add an interpreter installed by uv to the yard, unless the yard has it."""
    if record.interpreter.get("source") != "uv":
        return
    path = Path(record.interpreter["path"])
    came = paths.work / artefact.INTERPRETER / yard.pythons.relative_to(yard.root)
    if not path.is_relative_to(yard.pythons):
        raise InputError(f"{record.module} uses the interpreter {path}, which is not in the yard",
                         hint="build it here: `stackyard deploy FILE`")  # fmt: skip
    top = caches.trusted(yard)
    with at.directory(paths.yard, came) as source, at.directory(top, yard.pythons, make=True) as pythons:
        for link in _home(came, at.parts(path.relative_to(yard.pythons).as_posix())[0], yard):
            if not os.path.lexists(yard.interpreter(link.name)):
                os.rename(link.name, link.name, src_dir_fd=source, dst_dir_fd=pythons)  # noqa: TID251  by descriptors
    if not _is_same(path, record.interpreter.get("sha256", "")):
        raise StackyardError(f"{path} is not the interpreter that {record.module} was built with",
                             hint="build it here: `stackyard deploy FILE`")  # fmt: skip


def _home(came: Path, name: str, yard: Yard) -> list[Path]:
    """The directory of an interpreter, given its name or that of a link to it, and the links to it."""
    home = _leads_to(came / name, yard)
    return [entry for entry in disk.entries(came) if _leads_to(entry, yard) == home]


def _leads_to(place: Path, yard: Yard) -> str:
    """The name of a directory, or of the sibling that a link points to; empty for a link to anything else."""
    if not place.is_symlink():
        return place.name
    target = Path(os.path.normpath(yard.interpreter(str(place.readlink()))))
    return target.name if target.parent == yard.pythons else ""


def _compare(record: BuildRecord, paths: RevisionPaths) -> None:
    """Compare every byte, and the times of files, with the recorded build."""
    noted = noted_contents(record)
    image = record.payload.is_packed
    if record.payload.changed(paths.image):
        raise StackyardError(f"{paths.image.name} of {record.module} is damaged: its hash is not the one in the record",
                             hint="push it again from where it was built")  # fmt: skip
    own = noted.without(PARTS[0]) if image else noted
    _as_noted(paths, {name: own.files[name] for name in own.hashed})
    tree = contents.scan(paths.root, PARTS[1:] if image else PARTS)
    damages = sorted(str(damage) for damage in contents.compare(own, paths.root, tree, own.hashed))
    if damages:
        raise StackyardError(f"{record.module} does not hold what was built: {some(damages, 3)}",
                             hint="push it again from where it was built")  # fmt: skip


def _as_noted(paths: RevisionPaths, items: Mapping[str, contents.Item]) -> None:
    """Set recorded modes and times on existing files; paths behind links are skipped, and reported later."""
    for directory, inside in within.by_directory(items).items():
        with suppress(FileNotFoundError, NotADirectoryError), at.directory(paths.yard, paths.root / directory) as place:
            for name in inside:
                item = items[f"{directory}/{name}" if directory else name]
                with suppress(
                    FileNotFoundError, at.UnexpectedFileError
                ):  # not a file of this account: it is found damaged
                    at.set_mode(place, name, lambda _, mode=item.mode: mode & 0o777 | 0o200, kinds=(stat.S_IFREG,))  # type: ignore[misc]
                    os.utime(name, ns=(item.mtime_ns, item.mtime_ns), dir_fd=place, follow_symlinks=False)


def close(paths: RevisionPaths, workspace: Workspace) -> None:
    """Set the permissions of a revision by this yard's policy: readable for others, not writable."""
    for part in disk.entries(paths.root):
        if part != paths.work:
            settle(part, policy(workspace), linked=False, top=paths.yard)
    contents.seal(paths.root, contents.scan(paths.root, PARTS), directories=False)
    contents.seal(paths.root, contents.scan(paths.root, PARTS[:1]), directories=True)


# --------------------------------------------------------------------------- publishing


def _entry(arrived: Artefact, paths: RevisionPaths) -> Entry:
    """The entry to publish, with the labels it has in its source yard."""
    record = arrived.record
    own = {field.name: getattr(record, field.name) for field in fields(Entry) if hasattr(record, field.name)}
    state = {"state": "published", "superseded": False, "folder": str(paths.root)}
    return Entry(**{**arrived.entry, **own, **state})


def _publish(entry: Entry, record: BuildRecord, request: Request, progress: Progress, leases: DeployLeases) -> Outcome:
    def after(before: Iterable[Entry], state: str) -> tuple[Entry, ...]:
        joined = {**present(before), entry.module: Entry(**{**vars(entry), "state": state})}
        return names.claim(joined.values())

    yard = request.yard
    with generation.draft(request, origin(request.command)) as draft:
        draft.write(after(generations.entries(yard), "published"))
        done = verified(record, draft.modules, request, progress, deep=record.payload.is_packed)
        if done.status in USABLE:
            draft.publish(lambda base: Step(after(base.entries, done.status), f"pull {record.module}"), leases.check)
            reserve.keep(yard)
    return done
