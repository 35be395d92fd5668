"""What a check is: an object of the table that a verification walks (`verify.table`), or one that a site adds."""

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
    """A check of every revision."""
    return True


def looked_into(record: BuildRecord) -> bool:
    """A check of a revision whose files and programs can be looked at: a container has its own way of starting them."""
    return not record.payload.is_system


@dataclass(frozen=True)
class Check:
    """One check, or several that share their work.

    Attributes:
        kinds: the kinds of its results; it runs where one of them is asked for.
        stage: when it runs.
        run: carries it out; a check that does not pass is a result, and raises nothing.
        applies: whether it is one for a revision.
        title: what is shown when it begins; empty: nothing.
    """

    kinds: tuple[Kind, ...]
    stage: Stage
    run: Callable[[Context], list[CheckResult]]
    applies: Callable[[BuildRecord], bool] = always
    title: str = ""
