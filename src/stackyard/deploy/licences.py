"""Licences are accepted explicitly, by each account for itself; account, time and the hash of the text are recorded.

An acceptance by staff in the site's yard covers builds by staff there, and the commands that its account runs. Other
accounts that run them, or build the same in their own yards, must accept it too. The site decides whether loading a
module accepts a licence for its user (`expose.base`).
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stackyard.core.errors import InputError, MissingError, StackyardError
from stackyard.core.late import dataclass
from stackyard.expose.asking import asked_of_users, mark_name
from stackyard.host.files import at
from stackyard.host.run.identity import account_name
from stackyard.inputs.sites.settings import config_directory
from stackyard.inputs.sites.siteyard import in_sites_yard, is_sites
from stackyard.inputs.workspace import Workspace
from stackyard.lock.base import extension as onbase
from stackyard.yard import disk, formats, members
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord, now
from stackyard.yard.write import atomic
from stackyard.yard.write.lease import lease

if TYPE_CHECKING:
    from stackyard.deploy.deploy import Request
    from stackyard.inputs.models import Licence, Variant


@dataclass(frozen=True)
class Acceptance:
    """A record that an account accepted a text. `uid` is missing in the first format."""

    name: str
    sha256: str
    variable: str
    who: str
    when: str
    uid: int | None = None

    @property
    def is_mine(self) -> bool:
        """Whether this account accepted it."""
        return self.who == me() if self.uid is None else self.uid == os.getuid()


@dataclass(frozen=True)
class _Ledger:
    acceptances: tuple[Any, ...]


def _make(value: dict[str, Any]) -> tuple[Acceptance, ...]:
    return tuple(members.make(Acceptance, entry) for entry in members.make(_Ledger, value).acceptances)


LEDGER = formats.Kind(2, _make, {1: lambda value: {"acceptances": list(value.values())}}, checked_since=2, unnumbered=1)
"""``licences.json``. The first format had no number: acceptances by name and hash, one for all accounts."""


MARK = formats.Kind(
    1, lambda value: members.make(Acceptance, value), hint=lambda path: f"remove {path}, and accept the licence again"
)
"""What this account accepted, a file for each text in its home directory: the first command of a stack writes and reads
it, which knows no yard (`expose.asking`)."""


def accepted(workspace: Workspace, licence: Licence) -> Acceptance | None:
    """The acceptance of a licence's present text that covers builds of this account in this yard, or None."""
    return _holding(workspace, licence.name, text_hash(licence))


def variables(
    workspace: Workspace, record: BuildRecord, environ: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """The environment variables by which this account accepts the licences of a revision, for verifying it.

    Args:
        environ: variables that are set here count as acceptances too.
    """
    named = [entry for entry in record.licences if entry.get("variable")]
    granted = {e["variable"]: "yes" for e in named if _holding(workspace, e["name"], e["sha256"])}
    return granted | {e["variable"]: environ[e["variable"]] for e in named if environ.get(e["variable"])}


@dataclass(frozen=True)
class NeededLicence:
    """A licence of a revision that an account has not accepted yet: its name, the hash of its text, its variable."""

    name: str
    sha256: str
    variable: str


def needed(workspace: Workspace, record: BuildRecord, environ: Mapping[str, str]) -> list[NeededLicence]:
    """The licences of a revision that this account has to accept before it uses it.

    Licences that the site accepts for all users are left out, and those whose variable the user has set.
    """
    licences = [NeededLicence(e["name"], e["sha256"], e["variable"]) for e in record.licences if e.get("variable")]
    for_all = workspace.site.licences.on_behalf_of_users if in_sites_yard(record.path, workspace.site) else ()
    return [
        licence
        for licence in licences
        if licence.name not in for_all
        and not environ.get(licence.variable)
        and _holding(workspace, licence.name, licence.sha256) is None
    ]


def unaccepted(workspace: Workspace, record: BuildRecord, environ: Mapping[str, str]) -> MissingError | None:
    """An error about the licences that this account must accept before the commands of a revision run; None: none."""
    missing = [licence.name for licence in needed(workspace, record, environ)]
    if not missing:
        return None
    lines = (f"stackyard licences accept {shlex.quote(name)} --of {record.module}" for name in missing)
    return MissingError(
        f"licence not accepted by {me()}: {', '.join(missing)}; without it nothing of the revision is run",
        hint=f"read and accept it: {' && '.join(lines)}",
    )


def text_of(record: BuildRecord, sha256: str) -> str:
    """The text of a licence as kept in the revision; empty if its file has none."""
    try:
        texts = (at.read_regular(path) for path in disk.entries(RevisionPaths.of(record.path).recipe) if path.is_file())
        match = next((text for text in texts if hashlib.sha256(text).hexdigest() == sha256), b"")
    except (OSError, StackyardError):
        return ""
    return match.decode("utf-8", "replace")


def accept(yard: Yard, licence: NeededLicence) -> Acceptance:
    """Record that this account accepts a licence of a revision: for a user, in every yard that has the same text."""
    entry = Acceptance(licence.name, licence.sha256, licence.variable, me(), now(), os.getuid())
    _add(yard, entry)
    _mark(entry)
    return entry


def mine(yard: Yard) -> list[tuple[Path, Acceptance]]:
    """The acceptances of this account and their places: in a yard, its parents, and at a stack's first command."""
    readable = (ancestor for ancestor in yard.lineage() if os.access(ancestor.licences, os.R_OK))
    rows = [(ancestor.root, entry) for ancestor in readable for entry in _ledger(ancestor) if entry.is_mine]
    known = {(entry.name, entry.sha256) for _, entry in rows}
    marks = (formats.load(path, MARK) for path in sorted(_marks().glob("[!.]*.json")))
    return [*rows, *((_marks(), entry) for entry in marks if (entry.name, entry.sha256) not in known)]


def require(
    workspace: Workspace, licences: Collection[Licence], accepting: Collection[str]
) -> tuple[Mapping[str, Any], ...]:
    """The acceptances of all licences; this account now accepts those named in `accepting`.

    Raises:
        MissingError: a licence was not accepted; nothing was built.
    """
    for licence in licences:
        if licence.name in accepting and accepted(workspace, licence) is None:
            accept(workspace.yard, NeededLicence(licence.name, text_hash(licence), licence.variable))
    acceptances = {licence: accepted(workspace, licence) for licence in licences}
    for entry in acceptances.values():
        if entry is not None and entry.is_mine and not disk.is_there(_place(entry.name, entry.sha256)):
            _mark(entry)  # accepted before deploys wrote it
    missing = [licence for licence, entry in acceptances.items() if entry is None]
    if missing:
        names = ", ".join(licence.name for licence in missing)
        options = " ".join(f"--accept-licence {json.dumps(licence.name)}" for licence in missing)
        texts = ", ".join(licence.text for licence in missing if licence.text)
        raise MissingError(
            f"licence not accepted by {me()} in {workspace.yard.root}: {names}",
            hint=f"read {texts or 'its text'}, then deploy again with {options}",
        )
    return tuple(asdict(entry) for entry in acceptances.values() if entry is not None)


def require_of_record(
    workspace: Workspace, record: BuildRecord, accepting: Collection[str]
) -> tuple[Mapping[str, Any], ...]:
    """As `require`, for a revision built elsewhere: acceptances of other accounts do not count here.

    Raises:
        MissingError: a licence was not accepted.
    """
    return tuple(asdict(_of_record(workspace, record, entry, accepting)) for entry in record.licences)


def _of_record(
    workspace: Workspace, record: BuildRecord, entry: Mapping[str, Any], accepting: Collection[str]
) -> Acceptance:
    acceptance = _holding(workspace, entry["name"], entry["sha256"])
    if acceptance is None and entry["name"] not in accepting:
        raise MissingError(
            f"licence not accepted by {me()} in {workspace.yard.root}: {entry['name']}, of {record.module}",
            hint=f"read its text, then the same again with --accept-licence {json.dumps(entry['name'])}",
        )
    return acceptance or accept(
        workspace.yard, NeededLicence(entry["name"], entry["sha256"], entry.get("variable", ""))
    )


def require_for_build(request: Request, variant: Variant) -> tuple[Mapping[str, Any], ...]:
    """The acceptances of all licences of a variant, and of those of its base that each user accepts.

    Raises:
        MissingError: a licence was not accepted; nothing was built.
    """
    own = require(request, variant.licences, request.accept)
    base = onbase.record_of(variant.base) if variant.base else None
    if base is None:
        return own
    record = replace(base, licences=tuple(asked_of_users(base, request.site)))
    return (*own, *require_of_record(request, record, request.accept))


def text_hash(licence: Licence) -> str:
    """sha256 of the licence's text; of its name where no text is given."""
    if not licence.text:
        return hashlib.sha256(licence.name.encode()).hexdigest()
    try:
        return hashlib.sha256(at.read_regular(Path(licence.text))).hexdigest()
    except OSError as error:
        raise InputError(f"cannot read the text of licence {licence.name}: {error}") from error


def _holding(workspace: Workspace, name: str, sha256: str) -> Acceptance | None:
    """The account's acceptance, in this yard or in a parent; in the site's yard also one by other staff."""
    for yard in workspace.yard.lineage():
        for entry in _ledger(yard) if os.access(yard.licences, os.R_OK) else ():
            ours = entry.is_mine or (yard is workspace.yard and is_sites(workspace))
            if ours and (entry.name, entry.sha256) == (name, sha256):
                return entry
    return _marked(name, sha256)


def _marks() -> Path:
    return config_directory() / "licences"


def _place(name: str, sha256: str) -> Path:
    return _marks() / mark_name(name, sha256)


def _marked(name: str, sha256: str) -> Acceptance | None:
    """The acceptance of this account that the first command of a stack finds."""
    path = _place(name, sha256)
    if not disk.is_there(path) or path.stat().st_uid != os.geteuid():
        return None
    entry = formats.load(path, MARK)
    return entry if entry.is_mine and (entry.name, entry.sha256) == (name, sha256) else None


def _mark(entry: Acceptance) -> None:
    """Keep an acceptance where the commands of a stack look for it; with a read-only home, they ask each time."""
    with suppress(OSError):
        path = _place(entry.name, entry.sha256)
        atomic.write_json(path, {"format": MARK.version, **asdict(entry)})


def _add(yard: Yard, entry: Acceptance) -> None:
    with lease(
        yard.lease("licences"), f"the licences of {yard.root}", wait_s=300
    ) as own_lease:  # other deploys add theirs
        ledger = [asdict(acceptance) for acceptance in (*_ledger(yard), entry)]
        own_lease.check()
        atomic.write_json(yard.licences, {"format": LEDGER.version, "acceptances": ledger}, checked=True, top=yard.root)


def me() -> str:
    """The name of this account, from the system and not from a variable, which anyone can set."""
    return account_name(os.getuid())


def _ledger(yard: Yard) -> tuple[Acceptance, ...]:
    """The acceptances in a yard; empty only if the file does not exist, since the file is rewritten from them."""
    return formats.load(yard.licences, LEDGER) if disk.is_there(yard.licences) else ()
