"""The record of a run: enough to know what ran, where and how it ended, and to run it again.

``record.json`` is written once, before anything starts. ``status.json`` is replaced as things change; ``events.jsonl``
grows by one line for each thing that happened. Standard library only, so that listing runs is quick.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import platform
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from stackyard import __version__
from stackyard.errors import InputError, StackyardError
from stackyard.host.command import run, which
from stackyard.launch.records.paths import RunPaths
from stackyard.yard import atomic

FORMAT = 1


@dataclass(frozen=True)
class RunRecord:
    """What was asked and found before the start.

    Attributes:
        how: ``launch`` in the foreground, ``submit`` as a batch job, ``deploy`` for a build on a node.
        command: what the person typed.
        intent: `Intent` as JSON.
        plan: the exact command, program, script head and reasons, as far as known before the nodes were.
        stack: module, folder and lock hash of the revision, or empty.
        site: file and sha256 of the site's description, or empty.
        code: folder, commit, whether it was changed since, and the program's sha256.
        environment: what Stackyard sets for every rank, in order, and the variables of the shell that matter.
        versions: of Stackyard, Python, kernel, scheduler.
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


@dataclass(frozen=True)
class RunStatus:
    """How a run stands. `state` is ``planned``, ``queued``, ``running`` or an end: ``done failed cancelled ...``.

    `tasks` counts those of an array by their state.
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
    first: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    message: str = ""
    attempts: int = 0
    tasks: dict[str, int] = field(default_factory=dict)

    @property
    def ended_well(self) -> bool:
        """Whether everything was done."""
        return self.state == "done"

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self.state not in ("planned", "queued", "running")


def new_run(parent: Path) -> RunPaths:
    """A new, empty folder ``<date>-<number>`` below `parent`; two at once get two.

    Raises:
        StackyardError: the folder cannot be made.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        while True:
            paths = next_run(parent)
            with suppress(FileExistsError):
                paths.root.mkdir()
                return paths
    except OSError as error:
        hint = "runs are recorded below the folder that you work in: go to one that you may write to"
        raise StackyardError(f"cannot make a folder for this run in {parent}: {error.strerror}", hint=hint) from error


def next_run(parent: Path) -> RunPaths:
    """The folder that `new_run` would make now; makes nothing."""
    day = time.strftime("%Y-%m-%d")
    taken = [int(p.name[-3:]) for p in parent.glob(f"{day}-[0-9][0-9][0-9]")]
    return RunPaths((parent / f"{day}-{max(taken, default=0) + 1:03d}").absolute())


def write_record(paths: RunPaths, record: RunRecord) -> None:
    """Keep the record, and put the run into the index of all of this person's runs."""
    atomic.write_json(paths.record, asdict(record))
    with suppress(OSError):  # the index is a convenience: a home that cannot be written to must not stop a run
        index = index_file()
        index.parent.mkdir(parents=True, exist_ok=True)
        with index.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"run": str(paths.root), "created": record.created}) + "\n")


def index_file() -> Path:
    """Where the index of this person's runs is: one JSON object a line."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "stackyard" / "runs.jsonl"


def read_run(paths: RunPaths) -> RunRecord:
    """The record of a run. Raises InputError where it is none, or is damaged or of a newer format."""
    try:
        value = json.loads(paths.record.read_text(encoding="utf-8"))
        if value["format"] != FORMAT:
            raise InputError(f"{paths.record} is of format {value['format']}", hint="use a newer Stackyard to read it")
        known = {f.name for f in fields(RunRecord)}
        made: dict[str, Any] = {k: tuple(v) if k == "command" else v for k, v in value.items() if k in known}
        return RunRecord(**made)
    except FileNotFoundError as error:
        raise InputError(
            f"{paths.root} is no run: it holds no record.json", hint="`stackyard runs` lists runs"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"cannot read {paths.record}: {error}") from error


def read_status(paths: RunPaths) -> RunStatus:
    """How a run stands now; a run that has not started yet is ``planned``."""
    try:
        value = json.loads(paths.status.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return RunStatus()
    known = {f.name for f in fields(RunStatus)}
    made: dict[str, Any] = {k: tuple(v) if k == "hosts" else v for k, v in value.items() if k in known}
    return RunStatus(**made)


def write_status(paths: RunPaths, status: RunStatus) -> None:
    """Replace the status whole."""
    atomic.write_json(paths.status, asdict(status))


def add_event(paths: RunPaths, kind: str, data: Mapping[str, Any]) -> None:
    """One line more in events.jsonl; never raises, a full disk must not end a job."""
    line = json.dumps({"time": round(time.time(), 3), "event": kind, **data}, ensure_ascii=False, default=str)
    with suppress(OSError), paths.events.open("a", encoding="utf-8") as stream:
        stream.write(line + "\n")


def read_events(paths: RunPaths) -> Iterator[dict[str, Any]]:
    """What happened so far, in order; a half last line is left out."""
    with suppress(OSError), paths.events.open(encoding="utf-8") as stream:
        for line in stream:
            with suppress(ValueError):
                yield json.loads(line)


def code_state(cwd: Path, program: tuple[str, ...]) -> dict[str, Any]:
    """The state of the code that runs: commit, local changes, and the sha256 of the program's own file."""
    state: dict[str, Any] = {"folder": str(cwd)}
    for word in program[:2]:
        path = cwd / word
        if path.is_file() and path.stat().st_size < 1 << 26:
            state["program"] = str(path)
            state["program_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
            break
    if which("git") is None:
        return state
    head = run(["git", "-C", cwd, "rev-parse", "HEAD"], check=False, timeout_s=10)
    if head.returncode == 0:
        state["commit"] = head.stdout.strip()
        changes = run(["git", "-C", cwd, "diff", "HEAD", "--binary"], check=False, timeout_s=30).stdout
        state["changed"] = bool(changes)
        if changes:
            state["changes_sha256"] = hashlib.sha256(changes.encode()).hexdigest()
    return state


def versions() -> dict[str, str]:
    """What a difference between two runs may be owed to, as far as it is known without starting a program."""
    return {"stackyard": __version__, "python": platform.python_version(), "kernel": platform.release()}


def this_program() -> tuple[str, ...]:
    """The command that starts this very program on a node that shares our file systems."""
    return (sys.executable, "-m", "stackyard.cli.main")


def whoami() -> str:
    """The person's login name, or the number where there is none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def hostname() -> str:
    """This host's name."""
    return socket.gethostname()


def set_aside(paths: RunPaths, attempt: int) -> None:
    """Move what an earlier attempt of a requeued run left into ``attempts/<n>/``, so that nothing is overwritten."""
    step = paths.main
    old = paths.root / "attempts" / str(attempt)
    for path in (step.logs, step.plan, step.shim, paths.placement, paths.preflight, step.stacks, paths.preflight_steps):
        if path.exists():
            old.mkdir(parents=True, exist_ok=True)
            shutil.move(str(path), str(old / path.name))
