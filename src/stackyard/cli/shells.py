"""The limits of a revision's module in some shells, for `deploy` and `show`."""

from __future__ import annotations

from pathlib import Path

from stackyard.yard.layout import Yard
from stackyard.yard.record import BuildRecord


def shell_notes(record: BuildRecord) -> list[str]:
    """One sentence per limit, for the formats in which the revision's module is published."""
    from stackyard.expose.limits import Format, notable
    from stackyard.expose.published import change_of
    from stackyard.spec.sitemodels import Site

    modules = Yard(Path(record.path).parents[2]).modules  # <yard>/stacks/<stack>/<revision>
    files: dict[Format, str] = {"lua": f"{record.module}.lua", "tcl": record.module}
    formats = [name for name, file in files.items() if (modules / file).is_file()]
    return notable(change_of(record, Site), formats) if formats else []
