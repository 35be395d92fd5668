"""The exceptions of the Python API for a failed run or rank."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from stackyard.core.errors import StackyardError
from stackyard.launch.records.record import RunStatus

if TYPE_CHECKING:
    from stackyard.launch.api.handles import Run

REMEDIES = {
    "timeout": "request more time (time_min=...)",
    "node-lost": "start it again; spare=1 also replaces bad nodes before the program starts",
    "node-fail": "start it again; requeue=True lets the scheduler do so",
    "lost": "see the batch log in the run directory: the job ended without recording why",
}
"""By state, what to do where the first failure has no known cause."""


@contextmanager
def hints_shown() -> Iterator[None]:
    """Within a ``with`` block, give the text of an uncaught error its hint."""
    try:
        yield
    except StackyardError as error:
        error.shows_hint = True
        raise


class RunFailed(StackyardError):
    """A run that did not succeed; `hint` is the remedy, `detail` has the last lines of the first rank that failed.

    Attributes:
        run: the run; its logs and its record are there.
        state: ``failed``, ``timeout``, ``cancelled``, ``node-lost``, ``node-fail``, ``hung``, ``no-start`` or ``lost``.
        code: the exit status of the first rank that failed.
        rank, host: the first rank that failed and its node; -1 and empty where not known.
        cause: the known cause of the failure; empty where not known.
    """

    def __init__(self, run: Run, status: RunStatus, why: str = "") -> None:
        first: dict[str, Any] = status.first or {}
        known: dict[str, Any] = first.get("cause") or {}
        self.cause: str = known.get("cause", "")
        said = why or first.get("message") or status.message
        what = "failed" if why else status.state
        super().__init__(
            f"run {run.name} {what}" + (f": {said}" if said else "") + (f"; {self.cause}" if self.cause else ""),
            hint=known.get("remedy") or REMEDIES.get(status.state, f"the logs are in {run.directory}"),
            detail="\n".join(first.get("tail") or ()) or None,
        )
        self.run, self.state, self.code = run, status.state, status.code
        self.rank, self.host = int(first.get("task", -1)), str(first.get("host", ""))

    def __str__(self) -> str:
        return "\n".join(filter(None, (self.message, self.detail, f"hint: {self.hint}")))


class RemoteTraceback(Exception):
    """The remote traceback of an exception: the `__cause__` of an exception that a rank raised.

    Attributes:
        text: the traceback of the rank.
    """

    def __init__(self, rank: int, host: str, text: str) -> None:
        super().__init__(rank, host, text)
        self.rank, self.host, self.text = rank, host, text

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host}\n\n{self.text}"


class RankFailed(StackyardError):
    """The exception of a rank that cannot be raised here: it cannot be pickled, or would end this program.

    Attributes:
        kind: the name of its class.
        text: the traceback of the rank.
    """

    def __init__(self, message: str, *, rank: int, host: str, kind: str, text: str, hint: str | None = None) -> None:
        super().__init__(f"rank {rank} on {host}: {message}", hint=hint, detail=text)
        self.rank, self.host, self.kind, self.text = rank, host, kind, text
