"""The state of a job as reported by bjobs(1)."""

from __future__ import annotations

from collections.abc import Sequence

from stackyard.host.run.command import CommandError
from stackyard.launch.plan.model import JobPhase, JobState
from stackyard.launch.plan.schedulers.asking import ask
from stackyard.launch.plan.schedulers.slurm_state import together

_PHASES: dict[str, JobPhase] = {
    "PEND": "queued",
    "PSUSP": "queued",
    "WAIT": "queued",
    "PROV": "starting",
    "RUN": "running",
    "USUSP": "running",
    "SSUSP": "running",
    "DONE": "done",
    "POST_DONE": "done",
    "EXIT": "failed",
    "POST_ERR": "failed",
    "ZOMBI": "node-fail",
    "UNKWN": "unknown",
}
_REASONS: dict[str, JobPhase] = {
    "TERM_RUNLIMIT": "timeout",
    "TERM_DEADLINE": "timeout",
    "TERM_OWNER": "cancelled",
    "TERM_ADMIN": "cancelled",
    "TERM_FORCE_OWNER": "cancelled",
    "TERM_FORCE_ADMIN": "cancelled",
    "TERM_PREEMPT": "cancelled",
    "TERM_REQUEUE_OWNER": "queued",
    "TERM_REQUEUE_ADMIN": "queued",
    "TERM_ZOMBIE": "node-fail",
    "TERM_CSM_ALLOC": "node-fail",
    "TERM_RMS": "node-fail",
}
FIELDS = "stat exit_code exit_reason exec_host pend_reason delimiter='|'"


def ask_state(job: str) -> JobState:
    """The state of a job, of one index (``12[3]``), or of an array as a whole.

    Raises MissingError (no bjobs), CommandError (no answer from LSF).
    """
    result = ask(("bjobs", "-noheader", "-o", FIELDS, job))
    rows = [line.split("|") for line in result.stdout.splitlines() if line.count("|") >= 4]
    if rows:
        return together([_row(row) for row in rows])
    if "is not found" in result.output:
        return JobState("unknown", "LSF no longer lists this job")
    raise CommandError(f"cannot read the state of job {job} from LSF", result)


def _row(row: Sequence[str]) -> JobState:
    stat, code, why, hosts, pending = ("" if part.strip() == "-" else part.strip() for part in row[:5])
    phase = _PHASES.get(stat, "unknown")
    word = why.split(":")[0].strip()
    if phase == "failed" and word in _REASONS:
        phase = _REASONS[word]
    ended = phase in ("done", "failed", "cancelled", "timeout", "node-fail")
    exit_code = int(code) if code.isdigit() else (0 if phase == "done" else None)
    reason = why if ended else pending or ("" if phase != "unknown" else stat)
    return JobState(phase, reason, exit_code if ended else None, _hosts(hosts))


def _hosts(text: str) -> tuple[str, ...]:
    """``batch1:42*h41n01:42*h41n02``: compute nodes; a launch node comes first, without a count."""
    parts = text.split(":") if text else []
    counted = [part.split("*")[1] for part in parts if "*" in part]
    if counted and len(counted) == len(parts) - 1 and "*" not in parts[0]:
        return tuple(dict.fromkeys(counted))
    return tuple(dict.fromkeys(part.split("*")[-1] for part in parts))
