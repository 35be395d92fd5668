"""The state of a job: from Slurm's controller, else from the accounting."""

from __future__ import annotations

import re
from collections.abc import Sequence

from stackyard.core.hostlist import expand
from stackyard.host.run.command import CommandError, Result
from stackyard.launch.plan.model import JobPhase, JobState
from stackyard.launch.plan.schedulers.asking import ask, signalled

PHASES: dict[str, JobPhase] = {
    "PENDING": "queued",
    "REQUEUED": "queued",
    "REQUEUE_HOLD": "queued",
    "REQUEUE_FED": "queued",
    "SPECIAL_EXIT": "queued",
    "RESV_DEL_HOLD": "queued",
    "SUSPENDED": "running",
    "STOPPED": "running",
    "CONFIGURING": "starting",
    "RUNNING": "running",
    "COMPLETING": "running",
    "RESIZING": "running",
    "SIGNALING": "running",
    "STAGE_OUT": "running",
    "COMPLETED": "done",
    "FAILED": "failed",
    "OUT_OF_MEMORY": "failed",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",
    "PREEMPTED": "cancelled",
    "TIMEOUT": "timeout",
    "DEADLINE": "timeout",
    "NODE_FAIL": "node-fail",
    "BOOT_FAIL": "node-fail",
    "LAUNCH_FAILED": "node-fail",
}
_ORDER: tuple[JobPhase, ...] = (
    "running", "starting", "queued", "node-fail", "timeout", "failed", "cancelled", "unknown", "done",
)  # fmt: skip
_SPOKEN = frozenset({"OUT_OF_MEMORY", "PREEMPTED", "DEADLINE", "BOOT_FAIL", "SUSPENDED", "SPECIAL_EXIT", "REVOKED"})
_ENDED = frozenset({"done", "failed", "cancelled", "timeout", "node-fail"})


def ask_state(job: str) -> JobState:
    """The state of a job, of one task of an array (``12_3``), or of an array as a whole (its least finished task).

    Raises MissingError (no scontrol), CommandError (no answer from the controller).
    """
    result = ask(("scontrol", "-o", "show", "job", job))
    if result.returncode == 0:
        states = [_controller(line) for line in result.stdout.splitlines() if line.startswith("JobId=")]
        return together(states)
    if "Invalid job id" not in result.output:
        raise CommandError(f"cannot read the state of job {job} from Slurm", result)
    return _accounted(job)


def ask_tasks(job: str) -> dict[str, JobState]:
    """The state of every task of an array by index; tasks that have not started share a line of the output.

    Raises MissingError (no scontrol), CommandError (no answer from the controller).
    """
    result = ask(("scontrol", "-o", "show", "job", job))
    if result.returncode:
        if "Invalid job id" in result.output:
            return {}
        raise CommandError(f"cannot read the state of job {job} from Slurm", result)
    states: dict[str, JobState] = {}
    for line in result.stdout.splitlines():
        span = re.search(r" ArrayTaskId=(\S+)", line)
        for first, last, step in re.findall(r"(\d+)(?:-(\d+)(?::(\d+))?)?", span[1].partition("%")[0] if span else ""):
            for index in range(int(first), int(last or first) + 1, int(step or 1)):
                states[str(index)] = _controller(line)
    return states


def is_preempted(job: str) -> bool:
    """Whether a job is running and about to be preempted. Raises MissingError, CommandError."""
    line = ask(("scontrol", "-o", "show", "job", job)).stdout
    return " JobState=RUNNING" in line and re.search(r" PreemptTime=\d", line) is not None


def together(states: Sequence[JobState]) -> JobState:
    """The state of a whole array: running while one task is, else the worst final state."""
    if not states:
        return JobState("unknown")
    return min(states, key=lambda state: _ORDER.index(state.phase))


def _controller(line: str) -> JobState:
    """The state from one line of ``scontrol -o show job``.

    A job's name may contain spaces and equals signs, and so may later fields set by users (Command, Comment): the first
    occurrence of each field after JobState counts, which Slurm wrote.
    """
    said: dict[str, str] = {}
    for match in re.finditer(r" ([A-Z][A-Za-z]*)=(.*?)(?= [A-Z][A-Za-z/:]*=|$)", line[line.find(" JobState=") :]):
        said.setdefault(match[1], match[2].strip())
    nodes = said.get("NodeList", "")
    return state_of(
        said.get("JobState", ""),
        said.get("ExitCode", "0:0"),
        reason=said.get("Reason", ""),
        hosts=() if nodes in ("", "(null)") else expand(nodes),
        restarts=int(said.get("Restarts", "0") or 0),
    )


def state_of(
    word: str, exit_code: str, *, reason: str = "", hosts: tuple[str, ...] = (), restarts: int = 0
) -> JobState:
    """A state from Slurm's values, such as ``CANCELLED by 0`` and ``3:0`` (exit code and signal)."""
    bare = word.split(maxsplit=1)[0].rstrip("+") if word else ""
    phase = PHASES.get(bare, "unknown")
    code, _, number = exit_code.partition(":")
    ended = phase in _ENDED
    why = "" if reason in ("None", "(null)") else reason
    if bare in _SPOKEN or (phase == "unknown" and bare):
        why = bare if not why else f"{bare} ({why})"
    return JobState(phase, why, signalled(int(code or 0), int(number or 0)) if ended else None, hosts, restarts)


def _accounted(job: str) -> JobState:
    """The state from sacct's database, else from the job completion file (``-c``); unknown without both."""
    for how in ((), ("-c",)):
        columns = "State,ExitCode,NodeList"
        result = ask(("sacct", *how, *(() if how else ("-X",)), "-n", "-P", "-j", job, "-o", columns))
        states = _rows(result)
        if states:
            return together(states)
    return JobState("unknown", "Slurm no longer lists this job")


def _rows(result: Result) -> list[JobState]:
    states = []
    for line in result.stdout.splitlines() if result.returncode == 0 else ():
        parts = line.split("|")
        if len(parts) == 3 and parts[0]:
            hosts = () if parts[2].startswith(("None", "(null)")) or not parts[2] else expand(parts[2])
            states.append(state_of(parts[0], parts[1] or "0:0", hosts=hosts))
    return states
