"""How a run stands now and how it ended: its own status, the process table and the scheduler; and cancelling it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stackyard.errors import InputError, StackyardError
from stackyard.host.identity import hostname
from stackyard.launch.records import arrays
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.private import forget_private
from stackyard.launch.records.record import RunStatus, read_run, read_status, write_status


def current_status(paths: RunPaths, *, ask: bool = True) -> RunStatus:
    """How a run stands now: by status.json, and where that may be stale, by the process table or the scheduler.

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
    if status.pid and not status.job and status.host == hostname() and not _alive(status.pid):
        ended = replace(status, state="lost", message="launcher process died; ranks terminated")
        write_status(paths, ended)
        return ended
    return status


def _array_of(paths: RunPaths) -> str:
    """The indices given with ``--array``, for an array as a whole; empty for any other run, and for a task."""
    if paths.array:
        return ""
    batch: Mapping[str, Any] = read_run(paths).intent.get("batch", {})
    return str(batch.get("array", ""))


def array_tasks(paths: RunPaths, *, ask: bool = True) -> dict[str, RunStatus]:
    """How each task of an array stands, by its index; empty for any other run."""
    array = _array_of(paths)
    if not array:
        return {}
    job = read_status(paths).job
    return arrays.statuses(paths, array, (lambda: _task_states(paths, job, array)) if ask and job else None)


def _array_status(paths: RunPaths, array: str, status: RunStatus, *, ask: bool) -> RunStatus:
    whole = arrays.together(status, array_tasks(paths, ask=ask))
    if whole.over:
        write_status(paths, whole)
    return whole


def _task_states(paths: RunPaths, job: str, array: str) -> dict[str, RunStatus]:
    """The tasks as the scheduler reports them: each one where it can, else the array once it has ended."""
    from stackyard.launch.plan import schedulers
    from stackyard.launch.plan.model import JobState

    scheduler = schedulers.get(read_run(paths).scheduler)
    try:
        each = scheduler.task_states(job)
        states = each if each is not None else dict.fromkeys(map(str, arrays.indices(array)), scheduler.state(job))
    except StackyardError:
        return {}
    found: dict[str, RunStatus] = {}
    for index in map(str, arrays.indices(array)):
        state, own = states.get(index, JobState("unknown")), read_status(arrays.task_paths(paths, index))
        if state.phase in ("queued", "starting"):
            found[index] = replace(own, state="queued")
        elif state.phase == "unknown" and each is not None:
            found[index] = replace(own, state="lost", message="unknown to the scheduler")
        elif state.phase not in ("running", "unknown"):
            ended = "lost" if state.phase == "done" and each is None else state.phase
            found[index] = replace(own, state=ended, code=state.exit_code, message=state.reason)
    return found


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
    write_status(paths, ended)
    return ended


def why_ended(paths: RunPaths, status: RunStatus, *, patience_s: float = 10.0) -> RunStatus:
    """The scheduler's own reason why a job was terminated.

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
    write_status(paths, ended)
    return ended


def cancel(paths: RunPaths) -> str:
    """Cancel a run: through its scheduler, or by interrupting its launcher process. One sentence on what was done.

    Raises:
        InputError: the run has already ended, was never started, or its launcher process is on another host.
    """
    record, status = read_run(paths), current_status(paths)
    if status.over:
        raise InputError(f"run {paths.name} has already ended ({status.state})")
    if status.job and record.how != "launch":
        from stackyard.launch.plan import schedulers

        schedulers.get(record.scheduler).cancel(status.job)
        if status.state == "queued":  # no process of its own will record the end
            forget_private(paths)
        return f"cancelled {record.scheduler} job {status.job}"
    if not status.pid:
        raise InputError(
            f"run {paths.name} was never started", hint="nothing is running; remove its directory if you like"
        )
    if status.host != hostname():
        raise InputError(
            f"the launcher process of run {paths.name} is on {status.host}", hint=f"cancel it there: ssh {status.host}"
        )
    os.kill(status.pid, signal.SIGINT)
    return f"interrupted launcher process {status.pid}; it terminates its ranks"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
