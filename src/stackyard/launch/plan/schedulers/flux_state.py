"""The state of a job as reported by flux-jobs(1)."""

from __future__ import annotations

from stackyard.host.run.command import CommandError
from stackyard.launch.plan.model import JobPhase, JobState
from stackyard.launch.plan.schedulers.asking import ask, signalled
from stackyard.launch.plan.schedulers.hostlist import expand

FORMAT = "{state}|{result}|{returncode}|{exception.type}|{nodelist}|{exception.note}"
_STATES: dict[str, JobPhase] = {
    "NEW": "queued", "DEPEND": "queued", "PRIORITY": "queued", "SCHED": "queued", "RUN": "running",
    "CLEANUP": "running",
}  # fmt: skip
_RESULTS: dict[str, JobPhase] = {
    "COMPLETED": "done", "FAILED": "failed", "CANCELED": "cancelled", "TIMEOUT": "timeout",
}  # fmt: skip


def ask_state(job: str) -> JobState:
    """The state of a job. Raises MissingError (no flux), CommandError (no answer from Flux)."""
    result = ask(("flux", "jobs", "-n", "-o", FORMAT, job))
    rows = [line.split("|", 5) for line in result.stdout.splitlines() if line.count("|") >= 5]
    if rows:
        return _row(rows[0])
    if "No such file" in result.output or "unknown" in result.output.lower():
        return JobState("unknown", "Flux no longer lists this job")
    raise CommandError(f"cannot read the state of job {job} from Flux", result)


def _row(row: list[str]) -> JobState:
    state, result, code, exception, nodes, note = (part.strip() for part in row)
    hosts = expand(nodes) if nodes else ()
    if state != "INACTIVE":
        return JobState(_STATES.get(state, "unknown"), "" if state == "RUN" else state, None, hosts)
    phase = _RESULTS.get(result, "unknown")
    if phase == "failed" and exception in ("node-failure", "exec") and "lost" in note:
        phase = "node-fail"
    number = int(code) if code.lstrip("-").isdigit() else None
    if number is not None and number < 0:
        number = None if number == -128 else signalled(0, -number)
    reason = ": ".join(part for part in (exception, note) if part)
    return JobState(phase, reason, number, hosts)
