"""The status of a run: from its own file, the process table and the scheduler; and cancelling a run."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from stackyard.core.errors import InputError, StackyardError
from stackyard.host.run.identity import Identity, hostname
from stackyard.launch.records import arrays
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.private import forget_private
from stackyard.launch.records.record import RunStatus, read_run, read_status, write_status


def current_status(paths: RunPaths, *, ask: bool = True) -> RunStatus:
    """The present status of a run, from status.json, and if that may be stale, from process table or scheduler.

    Args:
        ask: query the scheduler about queued and running jobs.
    """
    status = read_status(paths)
    if status.over:
        return status
    if status.job and (array := _array_of(paths)):
        return _array_status(paths, array, status, ask=ask)
    if status.job and ask:
        return _by_scheduler(paths, status)
    return status if status.job else _by_process(paths, status)


def _by_process(paths: RunPaths, status: RunStatus) -> RunStatus:
    """The status, or ``lost`` if the process that carried the run out has ended without recording an end."""
    process = Identity.from_json(status.process)
    if process is None or status.state != "running":
        return status
    if process.fate == "dead":
        ended = replace(status, state="lost", message=f"launcher process {process.pid} has died; ranks terminated")
        _keep(paths, ended)
        return ended
    if process.before_restart:  # for certain only where no other machine has this name, so it is not written down
        return replace(status, state="lost", message=f"{process.host} was restarted since; all processes terminated")
    return status


def _keep(paths: RunPaths, status: RunStatus) -> None:
    """Store a newly found status; skipped on a full disk, and for a run of another account."""
    with suppress(OSError, StackyardError):
        write_status(paths, status)


def _array_of(paths: RunPaths) -> str:
    """The indices given with ``--array``, for an array as a whole; empty for any other run, and for a task."""
    if paths.array:
        return ""
    batch: Mapping[str, Any] = read_run(paths).intent.get("batch", {})
    return str(batch.get("array", ""))


def array_tasks(paths: RunPaths, *, ask: bool = True) -> dict[str, RunStatus]:
    """The status of each task of an array, by its index; empty for any other run."""
    array = _array_of(paths)
    if not array:
        return {}
    job = read_status(paths).job
    return arrays.statuses(paths, array, (lambda: _task_states(paths, job, array)) if ask and job else None)


def _array_status(paths: RunPaths, array: str, status: RunStatus, *, ask: bool) -> RunStatus:
    whole = arrays.together(status, array_tasks(paths, ask=ask))
    if whole.over:
        _keep(paths, whole)
    return whole


def _task_states(paths: RunPaths, job: str, array: str) -> dict[str, RunStatus]:
    """The scheduler's report on the tasks: on each one if possible, else on the array once it has ended."""
    from stackyard.launch.plan import schedulers
    from stackyard.launch.plan.model import JobState

    scheduler = schedulers.get(read_run(paths).scheduler)
    try:
        answer = scheduler.task_states(job)
        states = answer if answer is not None else dict.fromkeys(map(str, arrays.indices(array)), scheduler.state(job))
    except StackyardError:
        return {}
    by_task: dict[str, RunStatus] = {}
    for index in map(str, arrays.indices(array)):
        state, own = states.get(index, JobState("unknown")), read_status(arrays.task_paths(paths, index))
        if state.phase in ("queued", "starting"):
            by_task[index] = replace(own, state="queued")
        elif state.phase == "unknown" and states and own.state == "planned":  # Slurm keeps no record of such a task
            by_task[index] = replace(own, state="cancelled", message="cancelled before its start")
        elif state.phase == "unknown" and answer is not None:
            by_task[index] = replace(own, state="lost", message="unknown to the scheduler")
        elif state.phase not in ("running", "unknown"):
            ended = "lost" if state.phase == "done" and answer is None else state.phase
            by_task[index] = replace(own, state=ended, code=state.exit_code, message=state.reason)
    return by_task


def _by_scheduler(paths: RunPaths, status: RunStatus) -> RunStatus:
    from stackyard.launch.plan import schedulers

    record = read_run(paths)
    if record.scheduler == "none":
        return status
    try:
        state = schedulers.get(record.scheduler).state(status.job)
    except StackyardError as error:
        return replace(status, message=f"cannot query {record.scheduler}: {error.message}")
    if state.phase in ("queued", "starting"):
        return replace(status, state="queued", message=state.reason)
    if state.phase == "running":
        return replace(status, state="running", phase=status.phase or "starting", message=state.reason)
    fresh = read_status(paths)  # the run may have changed it meanwhile
    if fresh.over:
        return fresh
    if state.phase == "unknown" and status.ended:  # terminated from outside and not requeued
        return replace(status, state="cancelled", phase="")
    if state.phase == "unknown":
        message = f"job {status.job} is unknown to {record.scheduler}, and the run recorded no end"
        return replace(status, state="lost", message=message)
    ended = replace(status, state=state.phase, code=state.exit_code, message=state.reason, ended=time.time())
    _keep(paths, ended)
    return ended


def why_ended(paths: RunPaths, status: RunStatus, *, patience_s: float = 10.0) -> RunStatus:
    """The status with the scheduler's own reason why a job was terminated.

    The hub only receives a signal: from you, or from the scheduler after a time limit or the loss of a node.

    Args:
        patience_s: how long to wait until the scheduler reports the end as well.
    """
    if status.state != "cancelled" or not status.job or status.message:
        return status
    from stackyard.launch.plan import schedulers

    until = time.monotonic() + patience_s
    try:
        scheduler = schedulers.get(read_run(paths).scheduler)
        while (state := scheduler.state(status.job)).phase in ("running", "starting") and time.monotonic() < until:
            time.sleep(0.5)
    except StackyardError:
        return status
    if state.phase not in ("timeout", "node-fail"):
        return status
    ended = replace(status, state=state.phase, message=state.reason or "terminated by the scheduler")
    _keep(paths, ended)
    return ended


def cancel(paths: RunPaths) -> str:
    """Cancel a run: through its scheduler, or by interrupting its launcher process. Returns a sentence about it.

    Only the recorded process is signalled, not another one that has its number by now.

    Raises:
        InputError: the run has already ended, was never started, or its launcher process cannot be signalled from here.
    """
    record, status = read_run(paths), current_status(paths)
    if status.over:
        why = f": {status.message}" if status.state == "lost" and status.message else ""
        raise InputError(f"run {paths.name} has already ended ({status.state}){why}")
    if status.job and record.how != "launch":
        from stackyard.launch.plan import schedulers

        schedulers.get(record.scheduler).cancel(status.job)
        if status.state == "queued":  # no process of its own will record the end
            forget_private(paths)
        return f"cancelled {record.scheduler} job {status.job}"
    if status.state != "running":
        raise InputError(
            f"run {paths.name} was never started", hint="nothing is running; remove its directory if you like"
        )
    return _interrupt(paths, status)


def cancel_task(paths: RunPaths, index: str) -> None:
    """Cancel one task of an array, started or not; a task that has ended is skipped. Raises CommandError."""
    from stackyard.launch.plan import schedulers

    scheduler = schedulers.get(read_run(paths).scheduler)
    scheduler.cancel(scheduler.task_id(read_status(paths).job, index))


def _interrupt(paths: RunPaths, status: RunStatus) -> str:
    process = Identity.from_json(status.process)
    if process is None:
        host = f" on {status.host}" if status.host else ""
        hint = f"find the launcher process with `ps -ef`{host}, and interrupt it with `kill -INT PID`"
        raise InputError(f"the status of run {paths.name} does not say which process runs it", hint=hint)
    fate = process.fate
    if fate == "unknown":
        raise _out_of_reach(paths, process)
    if fate == "dead":
        raise InputError(f"run {paths.name} has just ended: its launcher process is gone")
    try:
        os.kill(process.pid, signal.SIGINT)
    except PermissionError:
        hint = f"only {process.user} can cancel it"
        raise InputError(f"run {paths.name} belongs to {process.user}, not to you", hint=hint) from None
    return f"interrupted launcher process {process.pid}; it terminates its ranks"


def _out_of_reach(paths: RunPaths, process: Identity) -> InputError:
    """The error for a process that cannot be signalled from here, with the host from which it can."""
    command = f"`stackyard runs cancel {shlex.quote(str(paths.root))}`"
    if process.host != hostname():
        hint = f"cancel it there: `ssh {process.host}`, then {command}"
        return InputError(f"the launcher process of run {paths.name} is on {process.host}", hint=hint)
    message = f"the launcher process of run {paths.name} cannot be seen from here, e.g. since it is in a container"
    return InputError(message, hint=f"cancel it where it was started: {command}")
