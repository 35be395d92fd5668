"""The command line as other accounts, in forks of this process, on days of a calendar that the caller turns.

A fork as an account is a real process of that account, and starts in milliseconds, since everything is imported. For
programs that root runs with an interpreter which all accounts can read (`support.accounts`).
"""

from __future__ import annotations

import ctypes
import importlib
import os
import pkgutil
import signal
import sys
import tempfile
import time
import traceback
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path

import stackyard
from stackyard.host.account import supervised, supervisor
from stackyard.host.run import clock, identity
from support.cli import inside
from support.processes import wait_for

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
DAY_S = 86400.0


@dataclass(frozen=True)
class Person:
    """An account."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    umask: int

    def enter(self, variables: dict[str, str]) -> None:
        """Make this process one of the account: its groups, umask, home and a clean environment."""
        os.setgroups(self.groups)
        os.setgid(self.gid)
        os.setuid(self.uid)
        os.umask(self.umask)
        own = {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": "/bin/sh", "LANG": "C.UTF-8"}
        path = f"{Path(sys.executable).parent}:{SYSTEM_PATH}"
        os.environ.clear()
        os.environ.update({**own, "PATH": path, **variables})
        os.chdir(self.home)


@dataclass
class Calendar:
    """Days that pass when the caller says so. A time of this machine is the calendar's time of when it was."""

    first: datetime
    days: list[int] = field(default_factory=list)
    began: list[float] = field(default_factory=list)

    def turn(self, day: int) -> None:
        """From now on it is this day, counted from the first one."""
        self.days.append(day)
        self.began.append(time.time())

    @property
    def today(self) -> datetime:
        """The beginning of the present day."""
        return self.first + timedelta(days=self.days[-1])

    def shown(self, timestamp: float) -> float:
        """What the calendar showed at a time of this machine; a second of it is one of the day that it was."""
        at = max(0, bisect_right(self.began, timestamp) - 1)
        return self.first.timestamp() + self.days[at] * DAY_S + timestamp - self.began[at]


@dataclass(frozen=True)
class Ended:
    """What a command left: its exit code, and both streams."""

    words: tuple[str, ...]
    code: int
    out: str
    err: str


class Running:
    """A command that has been started."""

    def __init__(self, words: tuple[str, ...], pid: int, streams: tuple[int, int]) -> None:
        self.words, self.pid, self._streams = words, pid, streams

    def wait(self, expect: int | None = 0) -> Ended:
        """Its end. Another exit code than `expect` is an error with all that was shown."""
        _, status = os.waitpid(self.pid, 0)
        out, err = (_content(stream) for stream in self._streams)
        code = os.waitstatus_to_exitcode(status)
        if expect is not None and code != expect:
            raise AssertionError(f"stackyard {' '.join(self.words)}: exit {code}\n{out}\n{err}")
        return Ended(self.words, code, out, err)


def _go_on(environ: dict[str, str]) -> None:
    """What root's worker does here in place of starting anew, which would lose the calendar."""
    from stackyard.cli.main import main

    os.environ.clear()
    os.environ.update(environ)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: an account may look at a process that it has become
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    supervised.connect()
    try:
        main()
    except SystemExit as ended:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended.code if isinstance(ended.code, int) else int(ended.code is not None))


def _content(stream: int) -> str:
    with os.fdopen(stream, "rb") as file:
        file.seek(0)
        return file.read().decode("utf-8", "replace")


@dataclass(frozen=True)
class Stage:
    """Where commands run: the calendar, and the variables that all of them have."""

    calendar: Calendar
    variables: dict[str, str]

    def start(self, person: Person, *words: str | Path, **variables: str) -> Running:
        """Start ``stackyard WORDS...`` as an account."""
        texts = tuple(map(str, words))

        def command() -> None:
            from stackyard.cli.main import main

            sys.argv = [str(Path(sys.executable).with_name("stackyard")), *texts]
            supervisor._start_anew = _go_on
            main()

        return self.call(person, command, texts, **variables)

    def call(self, person: Person, act: Callable[[], object], words: tuple[str, ...] = (), **variables: str) -> Running:
        """Run a function as an account, in a process of its own."""
        streams = (_unnamed(), _unnamed())
        pid = os.fork()
        if not pid:
            self._become(person, act, streams, variables)
        return Running(words, pid, streams)

    def _become(
        self, person: Person, act: Callable[[], object], streams: tuple[int, int], variables: dict[str, str]
    ) -> None:
        code = 70
        try:
            os.setsid()
            for number, stream in zip((1, 2), streams, strict=True):
                os.dup2(stream, number)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            person.enter({**self.variables, **variables})
            clock._shown = self.calendar.shown
            act()
            code = 0
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _unnamed() -> int:
    handle, name = tempfile.mkstemp()
    Path(name).unlink()
    return handle


def warm_up(directory: Path, wheels: Path, name: str) -> None:
    """Import the program and make its models, once for all forks: by a deploy of a wheel, which starts no thread."""
    for module in pkgutil.walk_packages(stackyard.__path__, "stackyard."):
        if not module.name.startswith(("stackyard.launch", "stackyard.images.squashfs.launcher")):
            importlib.import_module(module.name)
    directory.mkdir()
    file = directory / "stack.yaml"
    file.write_text(
        "name: warm\nversion: '1'\ninterpreter: {source: host}\n"
        f"environment: {{dependencies: [{{pip: [--no-index, '--find-links={wheels}', {name}]}}]}}\n"
    )
    inside("--yard", directory / "yard", "deploy", file, HOME=str(directory))
    identity.process_token.cache_clear()
    wait_for(lambda: len(os.listdir("/proc/self/task")) == 1, 60, lambda: "a fork would lose a thread")


def midnight() -> datetime:
    """The beginning of this day, UTC: where a calendar may begin."""
    return datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)
