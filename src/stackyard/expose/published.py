"""The operations of a revision, frozen when its modulefile is first written.

A site may change its paths or variables at any time. A shell that loaded a module before such a change must still
unload it cleanly, so ``module.json`` in the revision's directory is written once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stackyard.change import EnvironmentChange
from stackyard.expose.base import full_change
from stackyard.yard import atomic, formats
from stackyard.yard.layout import RevisionPaths
from stackyard.yard.record import BuildRecord

if TYPE_CHECKING:
    from stackyard.spec.models import Site


@dataclass(frozen=True)
class _Frozen:
    change: tuple[dict[str, Any], ...]


MODULE = formats.Kind(
    2,
    lambda value: EnvironmentChange.from_json(formats.make(_Frozen, value).change),
    {1: lambda value: value},  # format 2 renamed two operations, whose former names are always read
    lambda _path: "restore it, or remove it to create it again from the record and the present site",
)
"""``module.json``: the operations of a revision."""


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
    return formats.load(frozen, MODULE)


def freeze(record: BuildRecord, site: Site) -> EnvironmentChange:
    """`change_of`, written once; the revision's condarc is written with it."""
    from stackyard.expose.condarc import condarc_text  # late: reading operations needs no channel policy

    change, paths = change_of(record, site), RevisionPaths.of(record.path)
    if not paths.module.exists():
        atomic.write_text(paths.condarc, condarc_text(site))
        atomic.write_json(paths.module, {"format": MODULE.version, "change": change.to_json()})
    return change
