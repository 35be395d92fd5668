"""Licences are accepted explicitly, by an account for itself; who, when and the hash of the text are recorded.

What staff accept in the site's yard holds for what staff build there, and for nobody else: who builds the same in a
yard of their own accepts it too. Whether loading a module accepts for users is for the site to say (`expose.base`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stackyard.errors import InputError, MissingError
from stackyard.host.identity import account_name
from stackyard.spec.siteyard import is_sites
from stackyard.yard import atomic, disk, formats, members
from stackyard.yard.layout import Yard
from stackyard.yard.lease import lease
from stackyard.yard.record import BuildRecord, now

if TYPE_CHECKING:
    from stackyard.spec.models import Licence, Site


@dataclass(frozen=True)
class Acceptance:
    """That an account accepted a text. `uid` is missing in what the first format recorded."""

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


def accepted(yard: Yard, site: Site, licence: Licence) -> Acceptance | None:
    """The acceptance of the present text of a licence that holds for a build of this account in this yard, or None."""
    return _holding(yard, site, licence.name, text_hash(licence))


def variables(yard: Yard, site: Site, record: BuildRecord) -> dict[str, str]:
    """The variables by which this account accepts the licences of a revision, for verifying it."""
    needed = [entry for entry in record.licences if entry.get("variable")]
    return {e["variable"]: "yes" for e in needed if _holding(yard, site, e["name"], e["sha256"])}


def require(
    yard: Yard, site: Site, licences: Collection[Licence], accepting: Collection[str]
) -> tuple[Mapping[str, Any], ...]:
    """The acceptances of all licences; those named in `accepting` are accepted now by this account.

    Raises:
        MissingError: a licence was not accepted; nothing was built.
    """
    for licence in licences:
        if licence.name in accepting and accepted(yard, site, licence) is None:
            _accept(yard, licence)
    found = {licence: accepted(yard, site, licence) for licence in licences}
    missing = [licence for licence, entry in found.items() if entry is None]
    if missing:
        names = ", ".join(licence.name for licence in missing)
        options = " ".join(f"--accept-licence {json.dumps(licence.name)}" for licence in missing)
        texts = ", ".join(licence.text for licence in missing if licence.text)
        raise MissingError(
            f"licence not accepted by {me()} in {yard.root}: {names}",
            hint=f"read {texts or 'its text'}, then deploy again with {options}",
        )
    return tuple(asdict(entry) for entry in found.values() if entry is not None)


def text_hash(licence: Licence) -> str:
    """sha256 of the licence's text; of its name where no text is given."""
    if not licence.text:
        return hashlib.sha256(licence.name.encode()).hexdigest()
    try:
        return hashlib.sha256(Path(licence.text).read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"cannot read the text of licence {licence.name}: {error}") from error


def _holding(yard: Yard, site: Site, name: str, sha256: str) -> Acceptance | None:
    """One's own acceptance, in this yard or in a parent; in the site's yard also that of other staff."""
    for each in yard.lineage():
        for entry in _ledger(each) if os.access(each.licences, os.R_OK) else ():
            ours = entry.is_mine or (each is yard and is_sites(yard, site))
            if ours and (entry.name, entry.sha256) == (name, sha256):
                return entry
    return None


def _accept(yard: Yard, licence: Licence) -> None:
    entry = Acceptance(licence.name, text_hash(licence), licence.variable, me(), now(), os.getuid())
    with lease(yard.lease("licences"), f"the licences of {yard.root}", wait_s=300) as held:  # other deploys add theirs
        ledger = [asdict(each) for each in (*_ledger(yard), entry)]
        held.check()
        atomic.write_json(yard.licences, {"format": LEDGER.version, "acceptances": ledger}, checked=True)


def me() -> str:
    """The name of this account, from the machine and not from a variable that anyone can set."""
    return account_name(os.getuid())


def _ledger(yard: Yard) -> tuple[Acceptance, ...]:
    """What was accepted in a yard; nothing only where the file does not exist, since it is written again from this."""
    return formats.load(yard.licences, LEDGER) if disk.is_there(yard.licences) else ()
