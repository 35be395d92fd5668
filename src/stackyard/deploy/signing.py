"""The signing of published revisions (`stackyard.yard.revision.signatures`): the key, and which signers are accepted.

A revision is signed when its record and its operations are written, before it is published. So a process that was
killed in between leaves a revision that is not published, and the next deploy signs it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from stackyard.core.errors import InputError, StackyardError
from stackyard.core.progress import Progress
from stackyard.deploy import generation
from stackyard.deploy.published import rollback
from stackyard.expose.published import freeze
from stackyard.host.tools import sshkeygen
from stackyard.inputs.reading.paths import with_home
from stackyard.inputs.sites.siteyard import is_sites
from stackyard.inputs.workspace import Workspace
from stackyard.yard import disk
from stackyard.yard.generation import generations
from stackyard.yard.generation.origin import Origin
from stackyard.yard.layout import Yard
from stackyard.yard.revision import revisions, signatures
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import BuildRecord
from stackyard.yard.revision.signatures import NAMESPACE
from stackyard.yard.write import atomic

VARIABLE = "STACKYARD_SIGN_KEY"
NAME_ONE = f"name it: `signatures: key:` of site.yaml (for the site's yard), ${VARIABLE}, or `stackyard sign --key`"


def key_of(workspace: Workspace, named: str = "") -> Path | None:
    """The key that signs in a yard: the named one, that of the variable, or the site's in its own yard; else None."""
    own = workspace.site.signatures.key if is_sites(workspace) or not workspace.site.yard else ""
    key = named or os.environ.get(VARIABLE, "") or own
    return with_home(key).absolute() if key else None


def require_key(workspace: Workspace, noted: Yard | None = None) -> Path | None:
    """The key for a publication, tested before hours of building.

    Args:
        noted: the yard whose note states the demands; None: this yard. For a move, the old yard has the note.

    Raises:
        InputError: this yard publishes only signed revisions, and no key is named.
        StackyardError: the key cannot be used, or does not belong to an allowed signer.
    """
    key = key_of(workspace)
    if key is not None:
        _require_accepted("", sshkeygen.sign("", key, NAMESPACE), noted or workspace.yard, key)
    elif who := _demanding(workspace, noted or workspace.yard):
        raise InputError(
            f"cannot publish in {workspace.yard.root}: {who} demands signatures, and no key is named", hint=NAME_ONE
        )
    return key


def _demanding(workspace: Workspace, noted: Yard) -> str:
    """The source of the demand for signatures: a yard with a note of it, or the site's file; empty: none."""
    roots = [str(root) for root, _ in signatures.demands_in(noted, "load")]
    by_site = is_sites(workspace) and "load" in workspace.site.signatures.require
    return next(iter(roots), workspace.site.file if by_site else "")


def sign_built(record: BuildRecord, workspace: Workspace, key: Path | None) -> None:
    """Sign a revision that is built and not published yet; without a key nothing is signed.

    Raises:
        StackyardError: as for `sign`.
    """
    if key is None:
        return
    with disk.during(f"signing {record.module}"):
        freeze(record, workspace.site)
        atomic.fault_point("sign-before")
        sign(record, workspace.yard, key)


def sign(record: BuildRecord, yard: Yard, key: Path) -> str:
    """Sign a revision in its present state; returns the signer.

    Raises:
        StackyardError: it cannot be signed; or the key does not belong to an allowed signer.
    """
    paths = RevisionPaths.of(record.path)
    text = signatures.statement(paths)
    signature = sshkeygen.sign(text, key, NAMESPACE)
    who = _require_accepted(text, signature, yard, key)
    signer = signatures.add(paths, signature)
    return who or signer


def signature_of(text: str, yard: Yard, key: Path) -> str:
    """The signature of a statement, checked to be acceptable in a yard. Raises as `sign` does."""
    signature = sshkeygen.sign(text, key, NAMESPACE)
    _require_accepted(text, signature, yard, key)
    return signature


def _require_accepted(text: str, signature: str, yard: Yard, key: Path) -> str:
    """The signer of a signature, by the yard's lists of allowed signers; empty without lists.

    Raises:
        StackyardError: the key does not belong to an allowed signer.
    """
    who = ""
    for _, demand in signatures.demands(yard.root, [above.root for above in yard.above()]):
        verdict = signatures.judgement(signature, text, demand)
        if verdict.problem:
            raise StackyardError(f"{key} is not an accepted signing key: {verdict.problem}",
                                 hint=f"add it to {demand.allowed_signers}, or sign with another one")  # fmt: skip
        who = str(verdict) if verdict.checked else who
    return who


def republish(workspace: Workspace, made_by: Origin) -> None:
    """Write the modules again if a new signature, or a change of allowed signers, changed which can be loaded."""
    present = generations.current(workspace.yard)
    if present is not None and not generation.is_as_the_site_wants(workspace, present):
        rollback.publish(workspace, lambda base: rollback.again(base, "signatures"), made_by)


def tell_refused(yard: Yard, progress: Progress) -> None:
    """Report published revisions that can no longer be loaded because a signature is missing."""
    for module, why in refused(yard, generations.entries(yard)).items():
        progress.notice(f"{why}; sign it: stackyard sign {module}")


def refused(yard: Yard, entries: Iterable[Entry]) -> dict[str, str]:
    """Why revisions of a yard may not be loaded, by module."""
    return signatures.refusals(entries, records_of(entries), yard)


def records_of(entries: Iterable[Entry]) -> dict[str, BuildRecord]:
    """The records of the entries, without unreadable ones."""
    read = (revisions.readable(RevisionPaths.of(entry.folder)) for entry in entries if entry.state != "missing")
    return {record.module: record for record in read if record is not None}
