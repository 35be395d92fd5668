"""Makes the launcher of a revision again, and records its hash if the record has none or another one.

Signatures cover the record. So a signed record is changed only together with a new signature by the same key, which is
written first: after a kill at any point, one of the signatures matches the revision.
"""

from __future__ import annotations

from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.core.findings import counted
from stackyard.deploy import signing
from stackyard.host.files.hashing import sha256_file
from stackyard.host.files.scratch import scratch
from stackyard.host.tools import sshkeygen
from stackyard.images.squashfs import launcher
from stackyard.inputs.workspace import Workspace
from stackyard.yard import disk
from stackyard.yard.layout import Yard
from stackyard.yard.revision import revisions, signatures
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord
from stackyard.yard.write import atomic, within

_AGAIN = "-again.sig"


def renew(record: BuildRecord, workspace: Workspace) -> list[str]:
    """Make the recorded launcher again, or record the hash of a new one; returns messages about it.

    The caller has write access to the yard and holds the lease of the stack.

    Raises:
        MissingError: no compiler for the launcher of a wrapped image.
        StackyardError: the record is signed, and cannot be signed again; nothing was changed.
    """
    paths = RevisionPaths.of(record.path)
    with scratch("launcher") as work:
        path = work / paths.launcher.name
        _make(path, record, workspace.yard)
        digest = sha256_file(path)
        if digest == record.payload.launcher_sha256:
            within.put(paths.yard, path, paths.launcher)
            return [paths.launcher.name]
        new = record.with_launcher(digest)
        text = atomic.json_text(new.to_json(), checked=True)
        signed = _signed_again(paths, text, workspace)
        within.put(paths.yard, path, paths.launcher)
        atomic.fault_point("launcher-made")
        return [paths.launcher.name, *_recorded(new, text, signed)]


def _make(target: Path, record: BuildRecord, yard: Yard) -> None:
    """The launcher: with the recorded hash if this version produces it or another revision has it."""
    launcher.make(target, container=record.payload.is_system, adopted=bool(record.origin.adopted_from))
    sha256 = record.payload.launcher_sha256
    if not sha256 or sha256_file(target) == sha256:
        return
    for other in revisions.built(yard, on_damage=lambda *_: None):
        place = RevisionPaths.of(other.path).launcher
        if other.payload.launcher_sha256 == sha256 and disk.is_file(place) and sha256_file(place) == sha256:
            within.put(target.parent, place, target, source_top=RevisionPaths.of(other.path).yard)
            return


def _recorded(record: BuildRecord, text: str, signed: str) -> list[str]:
    """Write the record after its new signature and before the old ones are removed."""
    paths = RevisionPaths.of(record.path)
    if not signed:
        revisions.mark(record, text)
        return [paths.record.name]
    place = signatures.place_of(paths, signed)
    others = len([file for file in signatures.files(paths) if file != place])
    atomic.write_text(place.with_name(f"{place.stem}{_AGAIN}"), signed, top=paths.yard)
    revisions.mark(record, text)
    finish(paths)
    gone = [f"without {counted(others, 'signature')} of other keys, of what it was"] if others else []
    return [paths.record.name, f"signed again by {sshkeygen.fingerprint(signed)}", *gone]


def finish(paths: RevisionPaths) -> None:
    """Remove the signatures that a new one replaces, or a new one whose record was not written (after a kill)."""
    for new in (file for file in signatures.files(paths) if file.name.endswith(_AGAIN)):
        broken = {path for path, _ in signatures.broken(paths)}
        for path in {new} if new in broken else broken:
            within.unlink(paths.yard, path)
        if new not in broken:
            within.rename(paths.yard, new, new.with_name(f"{new.name.removesuffix(_AGAIN)}.sig"))


def _signed_again(paths: RevisionPaths, text: str, workspace: Workspace) -> str:
    """A signature of the record with this text; empty: the present one is unsigned.

    A repair signs only with the key that signed the present record.

    Raises:
        StackyardError: it is signed by another key than the given one, or no key is given.
    """
    present, own = signatures.statement(paths), [data for data in signatures.texts(paths) if data]
    if not own:
        return ""
    what = f"cannot record the launcher of {paths.root.parent.name}/{paths.root.name}: its record is signed"
    key = signing.key_of(workspace)
    if key is None:
        raise StackyardError(f"{what}, and no key is named to sign it again", hint=signing.NAME_ONE)
    signature = signing.signature_of(
        signatures.statement_of(text.encode(), disk.content(paths.module)), workspace.yard, key
    )
    same = [other for other in own if sshkeygen.fingerprint(other) == sshkeygen.fingerprint(signature)]
    if not any(sshkeygen.fits(present, other, signatures.NAMESPACE) for other in same):
        hint = f"`stackyard sign` compares it and signs it with that; then repair again ({paths.root})"
        raise StackyardError(f"{what}, and not by {key}", hint=hint)
    return signature
