"""Jobs of a pretended scheduler: kept in a directory, really run on this machine, each by a runner of its own.

<state>/jobs/<number>/job.json    what was asked, replaced whole as the job goes on; written by the runner alone
<state>/jobs/<number>/script      as submitted
<state>/jobs/<number>/end         somebody wants it to end: the word says how (cancel, requeue, signal:USR1)

A job waits until enough hosts are free and its dependencies allow it. STANDIN_MINUTE is how long a minute of wall
time lasts here, in seconds (60 where it is not set), so that a test can see a time-out; STANDIN_LATE_S, how long after
a request it is carried out.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from .machine import Machine, load

WAITING, RUNNING, ENDED = "waiting", "running", "ended"
BACK = 30.0


@dataclass(frozen=True)
class Job:
    """One job. `result` of an ended one is done, failed, cancelled or timeout; `code` may be negative (a signal)."""

    number: int
    family: str
    name: str
    queue: str
    nodes: int
    script: str
    output: str
    cwd: str
    user: str = "user"
    error: str = ""
    append: bool = False
    index: int | None = None
    array: int | None = None
    minutes: float = 0
    signal: str = ""
    signal_s: float = 0
    requeue: bool = False
    after: tuple[tuple[str, int], ...] = ()
    held: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    state: str = WAITING
    result: str = ""
    code: int | None = None
    hosts: tuple[str, ...] = ()
    starts: int = 0
    submitted: float = 0
    runner: int = 0


def root() -> Path:
    """Where the jobs are."""
    return Path(os.environ["STANDIN_STATE"]) / "jobs"


def directory(number: int) -> Path:
    """The directory of a job."""
    return root() / str(number)


def read(number: int) -> Job | None:
    """A job, or None where there is no such number."""
    try:
        value = json.loads((directory(number) / "job.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    value["hosts"] = tuple(value["hosts"])
    value["after"] = tuple((kind, other) for kind, other in value["after"])
    return Job(**value)


def write(job: Job) -> Job:
    """Replace what is known of a job."""
    path = directory(job.number) / "job.json"
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(asdict(job)), encoding="utf-8")
    os.replace(part, path)
    return job


def all_jobs() -> list[Job]:
    """Every job, oldest first."""
    numbers = sorted(int(path.name) for path in root().iterdir() if path.name.isdigit()) if root().is_dir() else []
    return [job for job in map(read, numbers) if job is not None]


@contextmanager
def locked() -> Iterator[None]:
    """Nobody else changes which hosts are whose."""
    root().mkdir(parents=True, exist_ok=True)
    with (root() / "lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def submit(job: Job, text: str, facts: Callable[[int], dict[str, Any]] = lambda number: {}) -> Job:
    """Keep a job and start its runner, which outlives this process. `number` is chosen here; `facts` may need it."""
    with locked():
        number = max((int(p.name) for p in root().iterdir() if p.name.isdigit()), default=100) + 1
        directory(number).mkdir()
        script = directory(number) / "script"
        script.write_text(text, encoding="utf-8")
        script.chmod(0o700)
        known = {**job.facts, **facts(number)}
        made = write(replace(job, number=number, script=str(script), submitted=time.time(), facts=known))
    argv = [sys.executable, "-c", _RUNNER, str(Path(__file__).resolve().parent.parent), str(number)]
    with (directory(number) / "runner.log").open("w") as log:
        subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    return made


_RUNNER = "import sys; sys.path.insert(0, sys.argv[1]); from parts import jobs; jobs.runner(int(sys.argv[2]))"


def want(number: int, word: str) -> None:
    """Ask the runner of a job for something: cancel, requeue, ``signal:USR1``."""
    part = directory(number) / f"end.{os.getpid()}"
    part.write_text(word, encoding="utf-8")
    os.replace(part, directory(number) / "end")


def wait_for(number: int, done: Callable[[Job], bool], patience_s: float = 10) -> Job | None:
    """Wait until a job is as wanted, or patience is over."""
    until = time.monotonic() + patience_s
    job = read(number)
    while job is not None and not done(job) and time.monotonic() < until:
        time.sleep(0.02)
        job = read(number)
    return job


def _asked(number: int) -> str:
    path = directory(number) / "end"
    try:
        if time.time() - path.stat().st_mtime < float(os.environ.get("STANDIN_LATE_S", "0")):
            return ""
        word = path.read_text(encoding="utf-8")
        path.unlink()
    except FileNotFoundError:
        return ""
    return word


def runner(number: int) -> None:
    """The life of one job."""
    machine = load()
    job = read(number)
    assert job is not None
    job = write(replace(job, runner=os.getpid()))
    while True:
        started = _wait(job, machine)
        if started is None:
            return
        ended, again = _run(started, machine)
        if not again:
            return
        job = write(replace(ended, state=WAITING, hosts=(), code=None, result=""))


def _wait(job: Job, machine: Machine) -> Job | None:
    """Until it can start; None where it ended before."""
    while True:
        if _asked(job.number) == "cancel":
            write(replace(job, state=ENDED, result="cancelled", code=None))
            return None
        verdict = _dependencies(job)
        if verdict == "never":
            write(replace(job, state=ENDED, result="cancelled", code=None, facts={**job.facts, "why": "dependency"}))
            return None
        if verdict == "now" and not job.held:
            with locked():
                busy = {host for other in all_jobs() if other.state == RUNNING for host in other.hosts}
                free = [host for host in machine.hosts if host not in busy]
                if len(free) >= job.nodes:
                    return write(replace(job, state=RUNNING, hosts=tuple(free[: job.nodes]), starts=job.starts + 1))
        time.sleep(0.03)


def _dependencies(job: Job) -> str:
    for kind, number in job.after:
        other = read(number)
        if other is None:
            return "never"
        if kind == "started":
            if other.state == WAITING:
                return "wait"
        elif other.state != ENDED:
            return "wait"
        elif (kind == "done" and other.result != "done") or (kind == "failed" and other.result == "done"):
            return "never"
    return "now"


def _run(job: Job, machine: Machine) -> tuple[Job, bool]:
    from . import variables

    environ = variables.of(job, machine, directory(job.number))
    output = _path(job, job.output)
    error = _path(job, job.error) if job.error else output
    mode = "ab" if job.append or job.starts > 1 else "wb"
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open(mode) as out, error.open(mode) if error != output else output.open("ab") as err:
        process = subprocess.Popen(
            _command(job), cwd=job.facts.get("start_in", job.cwd), env=environ, stdin=subprocess.DEVNULL,
            stdout=out, stderr=out if error == output else err, start_new_session=True,
        )  # fmt: skip
        result, again = _follow(job, process)
    code = process.returncode
    if not result:
        result = "done" if code == 0 else "failed"
    ended = replace(job, state=WAITING if again else ENDED, result="" if again else result, code=code)
    return write(ended), again


def _command(job: Job) -> list[str]:
    first = Path(job.script).read_text(encoding="utf-8").split("\n", 1)[0]
    return [job.script] if first.startswith("#!") else ["/bin/sh", job.script]


def _path(job: Job, text: str) -> Path:
    values = {
        "%J": str(job.array if job.array is not None else job.number), "%I": str(job.index or 0),
        "{{id}}": str(job.facts.get("id", job.number)), "{{jobid}}": str(job.facts.get("id", job.number)),
        "^array_index^": str(job.index or 0), "$TASK_ID": str(job.index or 0), "$JOB_ID": str(job.array or job.number),
    }  # fmt: skip
    for name, value in values.items():
        text = text.replace(name, value)
    return Path(job.cwd) / text


def _follow(job: Job, process: subprocess.Popen[bytes]) -> tuple[str, bool]:
    """Until the script has ended, been ended, or run out of time: how it ended, and whether it starts again."""
    minute = float(os.environ.get("STANDIN_MINUTE", "60"))
    limit = job.minutes * minute if job.minutes else None
    warned = not job.signal
    begun = time.monotonic()
    while process.poll() is None:
        passed = time.monotonic() - begun
        if limit is not None and not warned and passed > limit - job.signal_s * minute / 60:
            warned = True
            _kill(process, getattr(signal, "SIG" + job.signal.removeprefix("SIG")))
        word = _asked(job.number)
        if word.startswith("signal:"):
            _kill(process, getattr(signal, "SIG" + word.removeprefix("signal:")))
        elif word or (limit is not None and passed > limit):
            _end(process, job.facts.get("signals", ["SIGTERM"]))
            if word == "requeue":
                return "", True
            return ("cancelled" if word else "timeout"), False
        time.sleep(0.03)
    return "", False


def _end(process: subprocess.Popen[bytes], signals: list[str]) -> None:
    for name in [*signals, "SIGKILL"]:
        _kill(process, getattr(signal, name))
        until = time.monotonic() + BACK
        while process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        if process.poll() is not None:
            break
    _kill(process, signal.SIGKILL)


def _kill(process: subprocess.Popen[bytes], number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return


def indices(text: str) -> list[int]:
    """``1-10:2,12`` of a job array. ValueError where it is none."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
        if match is None or int(match[2] or match[1]) < int(match[1]) or match[3] == "0":
            raise ValueError(text)
        found += range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1))
    return found
