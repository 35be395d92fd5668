"""The operations of a revision as they were when its module was first written; they stay as they are from then on.

A site may change its paths or variables any day. A shell that loaded a module before that day must still unload it
cleanly, so the revision's folder keeps ``module.json``, written once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from stackyard.change import EnvironmentChange
from stackyard.errors import StackyardError
from stackyard.expose.base import full_change
from stackyard.yard import atomic
from stackyard.yard.layout import RevisionPaths
from stackyard.yard.record import BuildRecord

if TYPE_CHECKING:
    from stackyard.spec.models import Site

_FORMAT = 1


def change_of(record: BuildRecord, site: Site | Callable[[], Site]) -> EnvironmentChange:
    """What loading this revision does: the frozen operations, or those that would be frozen now. Writes nothing.

    Args:
        site: the site, or how to get it: it is not needed where the operations are frozen.

    Raises:
        StackyardError: ``module.json`` is damaged or of a newer format.
    """
    frozen = RevisionPaths.of(record.path).module
    if not frozen.exists():
        return full_change(record, site() if callable(site) else site)
    try:
        value = json.loads(frozen.read_text(encoding="utf-8"))
        if value["format"] != _FORMAT:
            raise ValueError(f"format {value['format']}")
        return EnvironmentChange.from_json(value["change"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StackyardError(
            f"cannot read {frozen}: {error}",
            hint="restore it, or remove it: it is then made anew from the record and the site as it is now",
        ) from error


def freeze(record: BuildRecord, site: Site) -> EnvironmentChange:
    """`change_of`, kept for good; the revision's condarc is written with it."""
    from stackyard.expose.condarc import condarc_text  # late: reading operations needs no channel policy

    change, paths = change_of(record, site), RevisionPaths.of(record.path)
    if not paths.module.exists():
        atomic.write_text(paths.condarc, condarc_text(site))
        atomic.write_json(paths.module, {"format": _FORMAT, "change": change.to_json()})
    return change
