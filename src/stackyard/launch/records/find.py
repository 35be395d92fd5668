"""Finding, listing, comparing and ending runs, also long after the connection that started them is gone."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from stackyard.errors import InputError, StackyardError
from stackyard.launch.records import arrays
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.record import (
    RunRecord,
    RunStatus,
    hostname,
    index_file,
    read_run,
    read_status,
    write_status,
)


def known_runs(folder: Path, *, everywhere: bool = False) -> list[RunPaths]:
    """The runs below a folder, oldest first; `everywhere` takes all that this person's index names and still exist."""
    if not everywhere:
        return [RunPaths(p.parent.absolute()) for p in sorted(folder.glob("*/record.json"))]
    seen: dict[str, RunPaths] = {}
    with suppress(OSError):
        for line in index_file().read_text(encoding="utf-8").splitlines():
            with suppress(ValueError, KeyError):
                root = Path(json.loads(line)["run"])
                if (root / "record.json").exists():
                    seen[str(root)] = RunPaths(root)
    return list(seen.values())


def find_run(name: str, folder: Path) -> RunPaths:
    """The run that a person means: a folder, a name below `folder`, the end of a name, or ``last``; with ``.3`` behind
    it task 3 of an array.

    Raises:
        InputError: there is none, or more than one.
    """
    path = Path(name)
    if (path / "record.json").exists():
        return RunPaths(path.absolute())
    whole, dot, index = name.rpartition(".")
    if dot and index.isdigit():
        task = arrays.task_paths(find_run(whole, folder), index)
        if not task.record.exists():
            raise InputError(f"task {index} of {whole} has not begun", hint=f"`stackyard runs show {whole}` lists them")
        return task
    here = known_runs(folder)
    if name == "last":
        if here:
            return here[-1]
        raise InputError(f"there are no runs in {folder}", hint="`stackyard runs --all` lists those of other folders")
    for candidates in (here, known_runs(folder, everywhere=True)):
        fitting = [r for r in candidates if r.name == name] or [r for r in candidates if r.name.endswith(name)]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            places = ", ".join(str(r.root) for r in fitting)
            raise InputError(f"several runs are called {name}: {places}", hint="name its folder")
    raise InputError(f"there is no run {name}", hint="`stackyard runs` lists the runs of this folder, --all every one")


def current_status(paths: RunPaths, *, ask: bool = True) -> RunStatus:
    """How a run stands now: its own word, and where that may be stale, the process table's or the scheduler's.

    Args:
        ask: ask the scheduler about queued and running jobs.
    """
    status = read_status(paths)
    if status.over:
        return status
    if status.job and (array := _array_of(paths)):
        return _array_status(paths, array, status, ask=ask)
    if status.job and ask:
        return _scheduler_says(paths, status)
    if status.pid and not status.job and status.host == hostname() and not _alive(status.pid):
        ended = replace(status, state="lost", message="the program that watched it is gone; its ranks were ended")
        write_status(paths, ended)
        return ended
    return status


def _array_of(paths: RunPaths) -> str:
    """What was asked with ``--array``, for the run as a whole; empty for any other, and for one of its tasks."""
    if paths.root.parent.name == "array":
        return ""
    schedulers: Mapping[str, Any] = read_run(paths).intent.get("batch", {})
    return str(schedulers.get("array", ""))


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
    """What the scheduler says of the tasks: of each where it can, else of all together once that is over."""
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
            found[index] = replace(own, state="lost", message="the scheduler does not know it any more")
        elif state.phase not in ("running", "unknown"):
            ended = "lost" if state.phase == "done" and each is None else state.phase
            found[index] = replace(own, state=ended, code=state.exit_code, message=state.reason)
    return found


def _scheduler_says(paths: RunPaths, status: RunStatus) -> RunStatus:
    from stackyard.launch.plan import schedulers

    record = read_run(paths)
    if record.scheduler == "none":
        return status
    try:
        state = schedulers.get(record.scheduler).state(status.job)
    except StackyardError as error:
        return replace(status, message=f"{record.scheduler} does not answer: {error.message}")
    if state.phase in ("queued", "starting"):
        return replace(status, state="queued", message=state.reason)
    if state.phase == "running":
        return replace(status, state="running", phase=status.phase or "starting", message=state.reason)
    fresh = read_status(paths)  # the run itself may have said more in the meantime
    if fresh.over:
        return fresh
    if state.phase == "unknown" and status.ended:  # its ranks were ended from outside, and it did not come back
        return replace(status, state="cancelled", phase="")
    if state.phase == "unknown":
        message = f"{record.scheduler} does not know job {status.job} any more, and the run did not say how it ended"
        return replace(status, state="lost", message=message)
    ended = replace(status, state=state.phase, code=state.exit_code, message=state.reason, ended=time.time())
    write_status(paths, ended)
    return ended


def why_ended(paths: RunPaths, status: RunStatus, *, patience_s: float = 10.0) -> RunStatus:
    """How a job that was told to end really ended, in its scheduler's words.

    The hub only sees a signal: a person may have sent it, or the scheduler because the time was over or a node lost.

    Args:
        patience_s: how long to wait until the scheduler has noticed the end as well.
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
    ended = replace(status, state=state.phase, message=state.reason or "ended by the scheduler")
    write_status(paths, ended)
    return ended


def cancel(paths: RunPaths) -> str:
    """End a run: through its scheduler, or by interrupting the program that watches it. What was done, in words.

    Raises:
        InputError: it has ended already, or runs on another host.
    """
    record, status = read_run(paths), current_status(paths)
    if status.over:
        raise InputError(f"run {paths.name} has ended already ({status.state})")
    if status.job and record.how != "launch":
        from stackyard.launch.plan import schedulers

        schedulers.get(record.scheduler).cancel(status.job)
        return f"told {record.scheduler} to end job {status.job}"
    if not status.pid:
        raise InputError(f"run {paths.name} was only planned", hint="nothing runs, so there is nothing to cancel")
    if status.host != hostname():
        raise InputError(f"run {paths.name} is watched on {status.host}", hint=f"cancel it there: ssh {status.host}")
    os.kill(status.pid, signal.SIGINT)
    return f"interrupted process {status.pid}; it ends its ranks"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def compare(a: RunPaths, b: RunPaths) -> list[tuple[str, str, str]]:
    """What differs between two runs: (what, in a, in b), from what was asked to how it ended."""
    left, right = _facts(a), _facts(b)
    names = list(dict.fromkeys([*left, *right]))
    return [(n, left.get(n, ""), right.get(n, "")) for n in names if left.get(n, "") != right.get(n, "")]


def _facts(paths: RunPaths) -> dict[str, str]:
    record, status = read_run(paths), read_status(paths)
    facts: dict[str, str] = {}
    _flatten(
        {
            "intent": record.intent,
            "stack": record.stack,
            "site": record.site,
            "code": record.code,
            "versions": record.versions,
            "command line": str(record.plan.get("command", "")).replace(str(paths.root), "{run}"),
            "environment": record.environment,
            "state": status.state,
            "exit code": status.code,
            "hosts": " ".join(status.hosts),
            "seconds": status.seconds,
            "first failure": status.first.get("message", "") if status.first else "",
        },
        "",
        facts,
    )
    return facts


def _flatten(value: Any, name: str, into: dict[str, str]) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            _flatten(item, f"{name}.{key}" if name else str(key), into)
    elif isinstance(value, float):
        into[name] = f"{value:.3g}"
    elif isinstance(value, (list, tuple)):
        into[name] = json.dumps(value, ensure_ascii=False)
    elif value not in (None, ""):
        into[name] = str(value)


def row(paths: RunPaths, record: RunRecord, status: RunStatus) -> dict[str, Any]:
    """What the list of runs says of one."""
    intent = record.intent
    return {
        "run": paths.name,
        "folder": str(paths.root),
        "how": record.how,
        "state": status.state,
        "code": status.code,
        "phase": status.phase,
        "job": status.job,
        "nodes": intent.get("nodes", 1),
        "created": record.created,
        "seconds": status.seconds.get("total", 0),
        "program": " ".join(intent.get("program", ())),
        "message": (status.first or {}).get("message", "") or status.message,
        "tasks": status.tasks,
    }
