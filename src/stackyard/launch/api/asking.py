"""Asks schedulers whether batch jobs have ended, before files that they use are removed."""

from __future__ import annotations

from stackyard.core.errors import StackyardError
from stackyard.launch.plan import schedulers

_OVER = ("done", "failed", "cancelled", "timeout", "node-fail")


def is_over(scheduler: str, job: str) -> bool | None:
    """Whether a job has ended; None where its scheduler cannot be asked or does not know the job."""
    try:
        phase = schedulers.get(scheduler).state(job).phase
    except StackyardError:
        return None
    return None if phase == "unknown" else phase in _OVER
