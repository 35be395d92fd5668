"""The record of a run: enough to know what ran, where, and how it ended, and to run it again.

``record.json`` is written once, before anything starts. ``status.json`` is replaced at each change; ``events.jsonl``
grows by one line per event. Imports the standard library only, so that listing runs is fast.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from stackyard.core.errors import InputError
from stackyard.core.late import dataclass
from stackyard.host.run.identity import Identity, this_process
from stackyard.launch.records.naming import state_directory
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.private import forget_private
from stackyard.yard import formats, members
from stackyard.yard.write import atomic

FORMAT, STATUS_FORMAT = 3, 2
"""What is written. Format 2 of a record names the `reason` of a word of the plan, which format 1 called ``buys``.
Format 3 has of variables that may be secret the names only (`Intent.passed`). Format 2 of a status names the process
that carries a run out so exactly that no other one is taken for it (``process``)."""


@dataclass(frozen=True)
class RunRecord:
    """The request, the plan and the state of the system before the start.

    Attributes:
        how: ``launch`` in the foreground, ``submit`` as a batch job, ``deploy`` for a build on a node.
        command: the command line that you typed.
        intent: `Intent` as JSON.
        plan: the exact command, program, script head and reasons, as far as known before nodes were allocated.
        stack: module, directory and lock hash of the revision, or empty.
        site: file and sha256 of the site's description, or empty.
        code: directory, commit, whether there are local changes, and the program's sha256.
        environment: the variables that Stackyard sets for every rank, in order, and the shell variables that a job
            needs.
        versions: of Stackyard, Python, kernel.
        again_of: the directory of the repeated run.
    """

    run: str
    created: str
    how: str
    command: tuple[str, ...]
    intent: dict[str, Any]
    scheduler: str = "none"
    plan: dict[str, Any] = field(default_factory=dict)
    stack: dict[str, str] = field(default_factory=dict)
    site: dict[str, str] = field(default_factory=dict)
    code: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    yard: str = ""
    user: str = ""
    host: str = ""
    again_of: str = ""
    format: int = FORMAT

    @property
    def programs(self) -> tuple[tuple[str, ...], ...]:
        """The words of its program; for a job with roles those of each."""
        parts = (self.intent.get("roles") or {"": self.intent}).values()
        return tuple(tuple(part.get("program", ())) for part in parts)

    @property
    def program(self) -> tuple[str, ...]:
        """The words of its program; for a job with roles that of the first."""
        return self.programs[0]


@dataclass(frozen=True)
class RunStatus:
    """The status of a run. `state` is ``planned``, ``queued``, ``running`` or an end: ``done failed cancelled ...``.

    Attributes:
        process: the `Identity` of `pid`; empty before the run starts, and in a status of format 1.
        tasks: the number of an array's tasks in each state.
    """

    state: str = "planned"
    phase: str = ""
    job: str = ""
    code: int | None = None
    started: float = 0
    ended: float = 0
    hosts: tuple[str, ...] = ()
    pid: int = 0
    host: str = ""
    process: dict[str, Any] = field(default_factory=dict)
    first: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    message: str = ""
    attempts: int = 0
    tasks: dict[str, int] = field(default_factory=dict)

    @property
    def ended_well(self) -> bool:
        """Whether the run succeeded."""
        return self.state == "done"

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self.state not in ("planned", "queued", "running")


def _reasons_named(values: dict[str, Any]) -> dict[str, Any]:
    """Convert format 1 to 2: a reason of the plan is called `reason` instead of `buys`."""
    plan = values.get("plan") or {}
    reasons = [{"words": row["words"], "reason": row["buys"]} for row in plan.get("reasons", ())]
    return {**values, "plan": {**plan, "reasons": reasons}} if reasons else values


RECORD = formats.Kind(
    FORMAT, lambda values: members.make(RunRecord, values), {1: _reasons_named},
    hint=lambda path: f"remove {path.parent}, or restore its record.json", error=InputError,
)  # fmt: skip
STATUS = formats.Kind(
    STATUS_FORMAT, lambda values: members.make(RunStatus, values),
    hint=lambda path: f"remove {path}", error=InputError,
)  # fmt: skip


def write_record(paths: RunPaths, record: RunRecord) -> None:
    """Write the record, and add the run to your index of runs."""
    atomic.write_json(paths.record, asdict(record), mode=0o600)
    with suppress(OSError):  # a home that is not writable must not stop a run
        index = index_file()
        index.parent.mkdir(parents=True, exist_ok=True)
        with index.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"run": str(paths.root), "created": record.created}) + "\n")


def index_file() -> Path:
    """The index of all your runs: one JSON object per line."""
    return state_directory() / "runs.jsonl"


def read_run(paths: RunPaths) -> RunRecord:
    """The record of a run, of any format so far. Raises InputError: no record, damaged, or of a newer format."""
    if not paths.record.is_file():
        raise InputError(f"{paths.root} is not a run: no record.json", hint="`stackyard runs` lists runs")
    return formats.load(paths.record, RECORD)


def read_status(paths: RunPaths) -> RunStatus:
    """The present status of a run; ``planned`` before it starts. Raises InputError for a newer format."""
    try:
        value = json.loads(paths.status.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return RunStatus()
    first = {"format": 1, **value} if isinstance(value, dict) else value  # format 1 did not carry its number at first
    return formats.read(first, str(paths.status), STATUS)


def write_status(paths: RunPaths, status: RunStatus) -> None:
    """Replace status.json; for an ended run, remove possibly secret values."""
    atomic.write_json(paths.status, {"format": STATUS_FORMAT, **asdict(_with_process(status))})
    if status.over:
        forget_private(paths)


def _with_process(status: RunStatus) -> RunStatus:
    """The status, with the identity of the process that carries the run out if it is running."""
    if status.state != "running" or status.pid != os.getpid():
        return status
    known = Identity.from_json(status.process)
    return status if known and known.is_this_process else replace(status, process=_identity(os.getpid()))


@cache
def _identity(_pid: int) -> dict[str, Any]:
    """This process's identity; the argument `_pid` invalidates the cache in a forked process."""
    return this_process().to_json()


class EventsFile:
    """Appends to events.jsonl, opened once. It never raises, since a full disk must not end a job.

    Events that could not be written are tried again with the next flush.
    """

    def __init__(self, paths: RunPaths) -> None:
        self._path = paths.events
        self._file = -1
        self._text = bytearray()

    def add(self, kind: str, data: Mapping[str, Any]) -> None:
        """Queue one line for the next `flush`."""
        line = json.dumps({"time": round(time.time(), 3), "event": kind, **data}, ensure_ascii=False, default=str)
        self._text += line.encode("utf-8", "replace") + b"\n"

    def flush(self) -> None:
        """Write the queued lines."""
        with suppress(OSError):
            if self._text and self._file < 0:
                self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            while self._text:
                del self._text[: os.write(self._file, self._text)]

    def close(self) -> None:
        """Write the queued lines, and close the file."""
        self.flush()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def add_event(paths: RunPaths, kind: str, data: Mapping[str, Any]) -> None:
    """Append one line to events.jsonl."""
    file = EventsFile(paths)
    file.add(kind, data)
    file.close()


def set_aside(paths: RunPaths, attempt: int) -> None:
    """Move the files of an earlier attempt to ``attempts/<n>/``, so that none is overwritten."""
    step = paths.main
    old = paths.attempt(attempt)
    of_step = (step.logs, step.plan, step.agent, step.shim, step.inside, step.node, step.stacks, step.profile)
    for path in (*of_step, paths.placement, paths.usage, paths.staged, paths.preflight, paths.preflight_steps):
        if path.exists():
            old.mkdir(parents=True, exist_ok=True)
            shutil.move(str(path), str(old / path.name))
