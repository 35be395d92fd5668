"""Job arrays: one run, a record for each index below it, and the status of the whole."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.private import forget_private
from stackyard.launch.records.record import RunRecord, RunStatus, read_status
from stackyard.yard.write import atomic

_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")
_WORST = ("node-lost", "failed", "hung", "no-start", "timeout", "lost", "cancelled")


def indices(text: str) -> tuple[int, ...]:
    """The indices in ``0-9:3,12%2``, in order; the limit after ``%`` is ignored."""
    numbers: list[int] = []
    for first, last, step in _RANGE.findall(text.partition("%")[0]):
        numbers += range(int(first), int(last or first) + 1, int(step or 1) or 1)
    return tuple(dict.fromkeys(numbers))


def task_paths(paths: RunPaths, index: str) -> RunPaths:
    """The directory of one task."""
    return RunPaths(paths.root / "array" / index)


def begin_task(paths: RunPaths, record: RunRecord, index: str) -> RunPaths:
    """The directory of a task that is about to run, with its own record."""
    task = task_paths(paths, index)
    task.root.mkdir(parents=True, exist_ok=True)
    plan = {**record.plan, "command": str(record.plan.get("command", "")).replace(str(paths.root), str(task.root))}
    if not task.record.exists():
        atomic.write_json(task.record, asdict(replace(record, run=task.name, plan=plan)), mode=0o600)
    return task


def tasks(paths: RunPaths, array: str) -> dict[str, RunPaths]:
    """Every task by its index, including those that have not started."""
    return {str(index): task_paths(paths, str(index)) for index in indices(array)}


def statuses(
    paths: RunPaths, array: str, states: Callable[[], dict[str, RunStatus]] | None = None
) -> dict[str, RunStatus]:
    """The status of each task.

    Args:
        states: queries the scheduler; called once, and only if a task has not recorded its own end.
    """
    by_index = {index: read_status(task) for index, task in tasks(paths, array).items()}
    if states is None or all(status.over for status in by_index.values()):
        return by_index
    by_scheduler = states()
    again = {index: read_status(task) for index, task in tasks(paths, array).items()}  # ended meanwhile
    return {index: status if status.over else by_scheduler.get(index, status) for index, status in again.items()}


def together(whole: RunStatus, parts: dict[str, RunStatus]) -> RunStatus:
    """The status of the run from its tasks' statuses: not ended until all have, then the worst end.

    `message` counts the tasks; the exit code and the first failure are those of the task that failed first.
    """
    count = Counter(_word(status) for status in parts.values())
    message = ", ".join(f"{number} {word}" for word, number in sorted(count.items(), key=lambda item: -item[1]))
    said = f"{message} of {len(parts)} tasks"
    started = [status.started for status in parts.values() if status.started]
    whole = replace(whole, message=said, phase="", tasks=dict(count), started=min(started, default=whole.started))
    # a task that ended, while others wait, makes the array a running one
    going = [status for status in parts.values() if not status.over]
    if going:
        running = any(status.state == "running" for status in going) or len(going) < len(parts)
        return replace(whole, state="running" if running else "queued", code=None)
    ended = max((status.ended for status in parts.values()), default=0)
    # the state is the gravest of all; the first task that ended in it explains it
    bad = sorted((item for item in parts.items() if not item[1].ended_well), key=lambda item: item[1].ended)
    whole = replace(whole, ended=ended, seconds={"total": round(max(0.0, ended - whole.started), 3)}, code=0)
    if not bad:
        return replace(whole, state="done")
    worst = next((word for word in _WORST if any(status.state == word for _, status in bad)), bad[0][1].state)
    index, first = next((item for item in bad if item[1].state == worst), bad[0])
    why = first.first.get("message", "") or first.message or worst
    return replace(whole, state=worst, code=first.code or 1, first={**first.first, "message": f"task {index}: {why}"})


def forget_shared(task: RunPaths, array: str) -> None:
    """Remove the values that an array's tasks share, once the last task has ended."""
    if task.array and all(read_status(other).over for other in tasks(task.array, array).values()):
        forget_private(task.array)


def news(before: dict[str, RunStatus], now: dict[str, RunStatus]) -> Sequence[str]:
    """One sentence for each task that has ended since."""
    said = []
    for index, status in now.items():
        if status.over and not (index in before and before[index].over):
            message = status.first.get("message", "") if status.first else ""
            why = f": {message or status.message}" if (message or status.message) and not status.ended_well else ""
            said.append(f"task {index} {status.state}{why}")
    return said


def _word(status: RunStatus) -> str:
    return "queued" if status.state == "planned" else status.state
