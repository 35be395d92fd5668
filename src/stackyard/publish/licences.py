"""Licences are accepted explicitly, once per yard; who, when and the hash of the text are recorded."""

from __future__ import annotations

import getpass
import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stackyard.errors import InputError, MissingError
from stackyard.yard import atomic
from stackyard.yard.layout import Yard
from stackyard.yard.record import now

if TYPE_CHECKING:
    from stackyard.spec.models import Licence


def accepted(yard: Yard, licence: Licence) -> Mapping[str, Any] | None:
    """The acceptance of the present text of this licence in this yard or in a parent, or None."""
    digest = text_hash(licence)
    for each in yard.lineage():
        entry = _ledger(each).get(f"{licence.name}:{digest}")
        if entry is not None:
            return entry
    return None


def require(yard: Yard, licences: Collection[Licence], accepting: Collection[str]) -> tuple[Mapping[str, Any], ...]:
    """The acceptances of all licences; those named in `accepting` are accepted now by this user.

    Raises:
        MissingError: a licence was not accepted; nothing was built.
    """
    for licence in licences:
        if accepted(yard, licence) is None and licence.name in accepting:
            _accept(yard, licence)
    missing = [licence for licence in licences if accepted(yard, licence) is None]
    if missing:
        names = ", ".join(licence.name for licence in missing)
        options = " ".join(f"--accept-licence {json.dumps(licence.name)}" for licence in missing)
        texts = ", ".join(licence.text for licence in missing if licence.text)
        raise MissingError(
            f"licence not accepted in {yard.root}: {names}",
            hint=f"read {texts or 'its text'}, then deploy again with {options}",
        )
    found = [accepted(yard, licence) for licence in licences]
    return tuple(entry for entry in found if entry is not None)


def text_hash(licence: Licence) -> str:
    """sha256 of the licence's text; of its name where no text is given."""
    if not licence.text:
        return hashlib.sha256(licence.name.encode()).hexdigest()
    try:
        return hashlib.sha256(Path(licence.text).read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"cannot read the text of licence {licence.name}: {error}") from error


def _accept(yard: Yard, licence: Licence) -> None:
    entry = {
        "name": licence.name,
        "sha256": text_hash(licence),
        "variable": licence.variable,
        "who": getpass.getuser(),
        "when": now(),
    }
    ledger = _ledger(yard)
    ledger[f"{licence.name}:{entry['sha256']}"] = entry
    atomic.write_json(yard.licences, ledger)


def _ledger(yard: Yard) -> dict[str, dict[str, Any]]:
    path = yard.licences
    if not path.exists():
        return {}
    value: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return value
