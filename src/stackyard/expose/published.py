"""The operations of a revision, frozen when its modulefile is first written.

A site may change its paths or variables at any time. A shell that loaded a module before such a change must still
unload it cleanly, so ``module.json`` in the revision's directory is written once.
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
        site: the site, or a function that reads it, which is called only if the operations are not frozen yet.

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
            hint="restore it, or remove it to create it again from the record and the present site",
        ) from error


def freeze(record: BuildRecord, site: Site) -> EnvironmentChange:
    """`change_of`, written once; the revision's condarc is written with it."""
    from stackyard.expose.condarc import condarc_text  # late: reading operations needs no channel policy

    change, paths = change_of(record, site), RevisionPaths.of(record.path)
    if not paths.module.exists():
        atomic.write_text(paths.condarc, condarc_text(site))
        atomic.write_json(paths.module, {"format": _FORMAT, "change": change.to_json()})
    return change
