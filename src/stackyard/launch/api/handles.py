"""`Run`: the handle of a recorded run in the Python API, in this process or any other."""

from __future__ import annotations

import time
from functools import cached_property
from pathlib import Path

from stackyard.core.errors import InputError
from stackyard.core.quoting import facts_html
from stackyard.launch.api.failures import RunFailed
from stackyard.launch.api.runs import rank_log
from stackyard.launch.records.follow import Watch
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.record import RunRecord, RunStatus, read_run, read_status
from stackyard.launch.records.status import array_tasks, cancel, current_status

POLL_S, POLL_MOST_S, POLL_GROWTH = 0.05, 2.0, 1.03
"""Seconds between looks at a run's status.json, and how they grow: about a thirtieth of what the run has taken so far.
The scheduler is asked much less often (`records.follow`)."""


class Run:
    """A run: its request, its state, the output of its ranks.

    Attributes:
        directory: the run directory.
    """

    def __init__(self, directory: Path | str) -> None:
        """The run that is recorded in a directory. Raises InputError if its record is missing or damaged."""
        self.directory = Path(directory).absolute()
        self._paths = RunPaths(self.directory)
        self._record: RunRecord = read_run(self._paths)

    @property
    def name(self) -> str:
        """Its name, such as ``2026-11-21-001``; for a task of an array ``2026-11-21-001.3``."""
        return self._paths.name

    @property
    def how(self) -> str:
        """``launch``, ``submit`` or ``deploy``."""
        return self._record.how

    @property
    def created(self) -> str:
        """The time of its recording, with the time zone."""
        return self._record.created

    @cached_property
    def program(self) -> tuple[str, ...]:
        """The words of its program; for a job with roles that of the first."""
        return self._record.program

    @property
    def nodes(self) -> int:
        """The number of requested nodes."""
        return int(self._record.intent.get("nodes", 1))

    @property
    def status(self) -> RunStatus:
        """Its present status, from its record and if needed from the scheduler, which is queried each time."""
        return current_status(self._paths)

    @property
    def state(self) -> str:
        """``planned``, ``queued``, ``running``, ``done``, or a kind of failure; as in `status`."""
        return self.status.state

    @property
    def code(self) -> int | None:
        """Its exit status: that of the first rank that failed; None before the end. Does not query the scheduler."""
        return read_status(self._paths).code

    @property
    def job(self) -> str:
        """The id of its job; empty without one. Does not query the scheduler."""
        return read_status(self._paths).job

    @property
    def hosts(self) -> tuple[str, ...]:
        """The nodes that it ran on; empty before the end. Does not query the scheduler."""
        return read_status(self._paths).hosts

    @property
    def seconds(self) -> float:
        """Its run time in seconds; 0 before the end. Does not query the scheduler."""
        return float(read_status(self._paths).seconds.get("total", 0))

    @property
    def tasks(self) -> tuple[Run, ...]:
        """The tasks of an array that have started; empty for any other run."""
        paths = sorted(self.directory.glob("array/*/record.json"), key=lambda path: int(path.parent.name))
        return tuple(Run(path.parent) for path in paths)

    def task_states(self) -> dict[str, str]:
        """The state of each task of an array, by its index."""
        return {index: status.state for index, status in array_tasks(self._paths).items()}

    def log(self, rank: int = 0) -> str:
        """The output of a rank so far; with ``logs="node"`` the output of all ranks of its node.

        Raises:
            InputError: no such log.
        """
        path = rank_log(self._paths, rank)
        if not path.exists():
            hint = f"name a task: run.tasks[0].log({rank})" if self.tasks else f"its logs are in {path.parent}"
            raise InputError(f"run {self.name} has no log of rank {rank}", hint=hint)
        return path.read_text(encoding="utf-8", errors="replace")

    def wait(self, timeout: float | None = None, *, raises: bool = True) -> RunStatus:
        """Wait until it has ended, and return its status.

        Args:
            timeout: seconds.
            raises: raise an exception if it fails.

        Raises:
            TimeoutError: it has not ended.
            RunFailed: it did not succeed.
        """
        watch, until, pause = Watch(self._paths), time.monotonic() + (timeout or 0), POLL_S
        while not (status := watch.look()).over:
            left = until - time.monotonic()
            if timeout is not None and left <= 0:
                raise TimeoutError(f"run {self.name} is {status.state} after {timeout:g} s")
            time.sleep(pause if timeout is None else min(pause, left))
            pause = min(pause * POLL_GROWTH, POLL_MOST_S)
        return self.ended(status, raises=raises)

    def ended(self, status: RunStatus, *, raises: bool = True) -> RunStatus:
        """Return the status. Raises RunFailed if it is not a success."""
        if raises and not status.ended_well:
            raise RunFailed(self, status)
        return status

    def cancel(self) -> None:
        """Cancel the run with all its ranks.

        Raises:
            InputError: it has ended, or its process cannot be signalled from here.
        """
        cancel(self._paths)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and other.directory == self.directory

    def __hash__(self) -> int:
        return hash(self.directory)

    def _repr_html_(self) -> str:
        status = read_status(self._paths)
        facts = {
            "state": status.state if not status.code else f"{status.state} ({status.code})", "program": self._words,
            "created": self.created, "job": status.job, "hosts": " ".join(status.hosts[:8]),
            "seconds": f"{self.seconds:.1f}" if self.seconds else "", "directory": str(self.directory),
            "failure": (status.first or {}).get("message", "") or status.message,
        }  # fmt: skip
        return facts_html(f"run {self.name}", facts)

    @property
    def _words(self) -> str:
        return " ".join(Path(word).name if word.startswith("/") else word for word in self.program)

    def __repr__(self) -> str:
        return f"<Run {self.name} {read_status(self._paths).state}: {self._words[:60]}>"
