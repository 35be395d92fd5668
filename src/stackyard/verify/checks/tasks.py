"""Runs import tasks in a few worker processes of the stack's Python and collects the outcomes.

Modules share their imports, so a batch in one process is an order of magnitude faster than a process per module. But
modules can interfere with each other; so a task that fails in a batch, except for a missing module, is retried alone in
a new process, and only that result counts.
"""

from __future__ import annotations

import json
import signal
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stackyard.core.late import dataclass
from stackyard.host.run.command import CommandError, Result, ending
from stackyard.verify.context import Context

IMPORT_TIMEOUT_S = 120.0
_BATCH = 25
_MOST_WORKERS = 8


@dataclass(frozen=True)
class ImportTask:
    """Import `module` and look up a chain of `attributes` in it. `id` is unique within one call of `run_tasks`."""

    id: int
    module: str
    attributes: tuple[str, ...] = ()
    timeout_s: float = IMPORT_TIMEOUT_S


@dataclass(frozen=True)
class Problem:
    """Why a task failed.

    Attributes:
        type: the exception's class; ``Timeout`` or ``Crash`` for a killed process.
        message: the last line of the traceback.
        missing: the module that was not found, if that is the cause.
        handled: whether the package caught this and raised its own error, so that the module is optional for it.
        file: where the exception was raised, with `line`.
    """

    type: str
    message: str
    missing: str = ""
    handled: bool = False
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class TaskOutcome:
    """The outcome of a task: `problem` is None if it passed, `alone` if it passed only in a separate process."""

    seconds: float
    problem: Problem | None = None
    alone: bool = False


def run_tasks(context: Context, tasks: Sequence[ImportTask]) -> dict[int, TaskOutcome]:
    """Run all tasks in the environment of the loaded module; returns the outcome of each by ID."""
    if not tasks:
        return {}
    workers = max(1, min(context.machine.cores, _MOST_WORKERS, -(-len(tasks) // _BATCH)))
    size = -(-len(tasks) // workers)
    batches = [list(tasks[start : start + size]) for start in range(0, len(tasks), size)]
    outcomes: dict[int, TaskOutcome] = {}
    with ThreadPoolExecutor(max_workers=workers) as pool:
        for done in pool.map(lambda batch: _batch(context, batch), batches):
            outcomes.update(done)
        again = [task for task in tasks if _doubtful(outcomes[task.id])]
        for done in pool.map(lambda task: _batch(context, [task]), again if len(tasks) > 1 else []):
            for number, outcome in done.items():
                alone = outcome.problem is None
                outcomes[number] = TaskOutcome(outcome.seconds, outcome.problem, alone)
    return outcomes


def _doubtful(outcome: TaskOutcome) -> bool:
    """Whether other modules of the batch may be the cause. A module that timed out is not retried."""
    problem = outcome.problem
    return problem is not None and not problem.missing and problem.type != "Timeout"


def _batch(context: Context, tasks: list[ImportTask]) -> dict[int, TaskOutcome]:
    """Run tasks in as few processes as possible: one, and a new one after each crash."""
    outcomes: dict[int, TaskOutcome] = {}
    while tasks:
        done, died = _process(context, tasks)
        outcomes.update(done)
        if not done:
            return outcomes | {task.id: TaskOutcome(0.0, died) for task in tasks}
        tasks = [task for task in tasks if task.id not in outcomes]
    return outcomes


def _process(context: Context, tasks: list[ImportTask]) -> tuple[dict[int, TaskOutcome], Problem]:
    """Run one worker process: its outcomes, including the task that killed it, and its end."""
    assert context.python is not None
    environ = {
        **context.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "MPLBACKEND": context.environ.get("MPLBACKEND", "Agg"),
        "QT_QPA_PLATFORM": context.environ.get("QT_QPA_PLATFORM", "offscreen"),
    }
    with tempfile.TemporaryDirectory(dir=context.work) as name:
        directory = Path(name)
        (directory / "tasks").write_text(json.dumps([asdict(task) for task in tasks]), encoding="ascii")
        (directory / "cwd").mkdir()
        python = str(context.python.path)
        argv = [python, "-W", "ignore", "-c", _source(), str(directory / "tasks"), str(directory / "journal")]
        limit = sum(task.timeout_s for task in tasks) + 60
        try:
            result = context.run(argv, env=environ, cwd=directory / "cwd", timeout_s=limit, check=False)
        except CommandError as error:
            result = error.result
        journal = directory / "journal"
        lines = journal.read_text(encoding="ascii").splitlines() if journal.exists() else []
    return _read(lines, result, {task.id: task for task in tasks})


def _read(lines: list[str], result: Result, tasks: dict[int, ImportTask]) -> tuple[dict[int, TaskOutcome], Problem]:
    outcomes: dict[int, TaskOutcome] = {}
    running: int | None = None
    for line in lines:
        words: list[Any] = json.loads(line)
        if words[0] == "start":
            running = words[1]
        else:
            outcomes[words[1]] = TaskOutcome(words[2], Problem(**words[3]) if words[3] else None)
            running = None
    died = _death(result, tasks[running].timeout_s if running is not None else 0)
    if running is not None:
        outcomes[running] = TaskOutcome(result.seconds, died)
    return outcomes, died


def _death(result: Result, timeout_s: float) -> Problem:
    last = (result.stderr.strip().splitlines() or [""])[-1]
    if result.returncode == -signal.SIGALRM:
        return Problem("Timeout", f"timed out after {timeout_s:g} s")
    return Problem("Crash", f"interpreter {ending(result.returncode)}" + (f": {last}" if last else ""))


def _source() -> str:
    return Path(__file__).with_name("worker.py").read_text(encoding="utf-8")
