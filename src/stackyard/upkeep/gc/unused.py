"""Published revisions that have not been used for a long time, according to the usage counts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from stackyard.core.errors import InputError, StackyardError
from stackyard.host.run import clock
from stackyard.yard.layout import Yard
from stackyard.yard.others import usage
from stackyard.yard.revision.manifest import Entry

Unused = Callable[[Entry], str]
"""Why a revision that users see counts as unused; empty: it does not."""


def unused_for(yard: Yard, days: int, kept_days: int) -> Unused:
    """The revisions that have not been used for this many days, according to the usage counts.

    Args:
        kept_days: for how long the counts are kept.

    Raises:
        InputError: uses have not been counted for so long, or loads of modules are not counted.
        StackyardError: counts of that period cannot be read, so their owner may have used any revision.
    """
    unread: dict[str, str] = {}
    uses, since = usage.read(yard, unread), (clock.today() - timedelta(days=days)).isoformat()
    first = usage.since(yard)
    if first:  # what is older was collected, or is about to be
        first = max(first, (clock.today() - timedelta(days=kept_days)).isoformat())
    if not first or first > since:
        known = f"counted since {first}" if first else "not counted"
        raise InputError(
            f"uses are {known}, not for {days} days", hint="`usage: {count: true}` in site.yaml counts them"
        )
    if not any(use.kinds["load"] for use in uses.values()):
        raise InputError(
            "loads of modules are not counted: what is loaded daily would seem unused",
            hint="add what `stackyard usage --hook lmod` prints to SitePackage.lua",
        )
    for month, problem in sorted(unread.items()):
        if month >= since[:7]:
            raise StackyardError(problem, hint="it may have a use of anything: let its owner make it readable, "
                                               "or remove it if it is not a count")  # fmt: skip

    def why(entry: Entry) -> str:
        last = uses[entry.module].last if entry.module in uses else ""
        if max(last, entry.created[:10]) >= since:
            return ""
        return f"not used since {last}" if last else f"never used since {first}"

    return why
