"""The definition of a check: a row of the table that a verification runs (`verify.table`), or an addition of a site."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from stackyard.core.late import dataclass
from stackyard.verify.context import Context
from stackyard.verify.report import CheckResult, Kind
from stackyard.yard.revision.record import BuildRecord

Stage = Literal["files", "programs", "own", "after"]
"""When a check runs: before the module is loaded; in its environment, two at a time; in it, one at a time, since it may
use the whole machine; at the end, to see what the others changed."""


def always(_record: BuildRecord) -> bool:
    """Applies to every revision."""
    return True


def looked_into(record: BuildRecord) -> bool:
    """Applies to revisions whose files and programs are accessible: a container starts them in its own way."""
    return not record.payload.is_system


@dataclass(frozen=True)
class Check:
    """One check, or several that share their work.

    Attributes:
        kinds: the kinds of its results; it runs if one of them is requested.
        stage: when it runs.
        run: runs the check; a failure is a result, not an exception.
        applies: whether it applies to a revision.
        title: the line to show when it begins; empty: none.
    """

    kinds: tuple[Kind, ...]
    stage: Stage
    run: Callable[[Context], list[CheckResult]]
    applies: Callable[[BuildRecord], bool] = always
    title: str = ""
