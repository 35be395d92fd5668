"""Notes on the limits of a revision's module, for `deploy` and `show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackyard.core.findings import some
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord

if TYPE_CHECKING:
    from stackyard.inputs.sites.sitemodels import Site

_NAMED = 5


def module_notes(record: BuildRecord) -> list[str]:
    """One sentence for each part of the packages' activation that is left out, then one per limit of a shell."""
    return [*record.activation.uncaptured, *_build_only(record), *shell_notes(record)]


def _build_only(record: BuildRecord) -> list[str]:
    names = [name for name in record.activation.build_only if not name.startswith(("_", "CONDA_BACKUP_"))]
    if not names:
        return []
    shown = some(names, _NAMED)
    return [f"variables of the compilers are not set for users: {shown}; `build: keep:` in a stack.yaml keeps them"]


def shell_notes(record: BuildRecord) -> list[str]:
    """One sentence per limit, for the formats in which the revision's module is published."""
    from stackyard.expose.limits import Format, notable
    from stackyard.expose.published import change_of

    modules = Yard(RevisionPaths.of(record.path).yard).modules
    files: dict[Format, str] = {"lua": f"{record.module}.lua", "tcl": record.module}
    formats = [name for name, file in files.items() if (modules / file).is_file()]
    return notable(change_of(record, _defaults), formats) if formats else []


def _defaults() -> Site:
    """The built-in site, for a revision whose operations are not frozen; imported late, so that `show` starts fast."""
    from stackyard.inputs.sites.sitemodels import Site

    return Site()
