"""The state of a job as reported by qstat(1B) and pbs_job_attributes(7B)."""

from __future__ import annotations

import json
import re
from typing import Any

from stackyard.host.run.command import CommandError, Result
from stackyard.launch.plan.model import JobPhase, JobState
from stackyard.launch.plan.schedulers.asking import ask, signalled

_PHASES: dict[str, JobPhase] = {
    "Q": "queued", "H": "queued", "W": "queued", "T": "queued", "M": "queued", "B": "running",
    "R": "running", "E": "running", "S": "running", "U": "running", "F": "done", "X": "done",
}  # fmt: skip
# JOB_EXEC_* of OpenPBS's job.h with a specific meaning.
_SPECIAL: dict[int, tuple[JobPhase, str]] = {
    -4: ("node-fail", "the daemon of the node restarted"),
    -5: ("node-fail", "the daemon of the node restarted"),
    -6: ("node-fail", "the daemon of the node restarted"),
    -20: ("node-fail", "lost connection to the first node of the job"),
    -25: ("failed", "killed: CPU limit exceeded"),
    -26: ("failed", "killed: virtual memory limit exceeded"),
    -27: ("failed", "killed: memory limit exceeded"),
    -28: ("failed", "killed: CPU time limit exceeded"),
    -29: ("timeout", "killed: wall time limit exceeded"),
}


def ask_state(job: str) -> JobState:
    """The state of a job, finished ones included (``-x``).

    Raises MissingError (no qstat), CommandError (no answer from the server).
    """
    result = ask(("qstat", "-x", "-f", "-F", "json", job))
    if result.returncode and re.search(r"unknown job id", result.output, re.IGNORECASE):
        return JobState("unknown", "PBS no longer lists this job")
    jobs = list(_jobs(result).values())
    if not jobs:
        raise CommandError(f"cannot read the state of job {job} from PBS", result)
    return _state(jobs[0])


def ask_tasks(job: str) -> dict[str, JobState]:
    """The states of an array's subjobs (``-t``), by index; empty for an array that PBS no longer lists.

    Raises MissingError (no qstat), CommandError (no answer from the server).
    """
    result = ask(("qstat", "-t", "-x", "-f", "-F", "json", job))
    jobs = _jobs(result)
    if not jobs and not re.search(r"unknown job id", result.output, re.IGNORECASE):
        raise CommandError(f"cannot read the states of the tasks of job {job} from PBS", result)
    found = {}
    for name, attributes in jobs.items():
        if index := re.match(r"\d+\[(\d+)\]", name):
            found[index[1]] = _state(attributes)
    return found


def _jobs(result: Result) -> dict[str, dict[str, Any]]:
    """OpenPBS 19 writes control characters into JSON; they are accepted."""
    try:
        value = json.loads(result.stdout, strict=False)
    except ValueError:
        return {}
    return dict(value.get("Jobs", {})) if isinstance(value, dict) else {}


def _state(attributes: dict[str, Any]) -> JobState:
    phase = _PHASES.get(str(attributes.get("job_state", "")), "unknown")
    restarts = max(int(attributes.get("run_count", 1)) - 1, 0)
    hosts = _hosts(str(attributes.get("exec_host", "")))
    comment = str(attributes.get("comment", ""))
    if phase != "done":
        return JobState(phase, comment if phase == "queued" else "", None, hosts, restarts)
    status = attributes.get("Exit_status")
    if status is None:
        return JobState("cancelled", comment, None, hosts, restarts)
    phase, reason, code = ended(int(status), comment)
    return JobState(phase, reason or comment, code, hosts, restarts)


def ended(status: int, comment: str) -> tuple[JobPhase, str, int]:
    """Exit_status: the script's exit status; 256 + signal (128 + signal from a shell); negative: an error of PBS.

    A job cancelled by qdel is recognized by its comment, as is one over its wall time on servers without -29.
    """
    if status in _SPECIAL:
        phase, reason = _SPECIAL[status]
        return phase, reason, signalled(0, 15)
    code = signalled(0, status - 256) if status > 256 else status
    if status and re.search(r"walltime .*exceeded|exceeded .*walltime", comment):
        return "timeout", comment, code
    if status in (256 + 15, 256 + 9, 128 + 15, 128 + 9) and "terminated" in comment:
        return "cancelled", comment, code
    if status < 0:
        return "failed", f"PBS failed to run the job ({status})", 1
    return ("failed" if status else "done"), "", code


def _hosts(text: str) -> tuple[str, ...]:
    """``x1/0*64+x2/0*64`` as names."""
    return tuple(dict.fromkeys(part.split("/")[0] for part in text.split("+") if part))
