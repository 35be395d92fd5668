"""A long-running child through the one door: argv list, own process group, both streams into a file."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from stackyard.errors import MissingError, StackyardError


class Child:
    """A program that runs beside this one. Its group is its own, so a Ctrl-C on the terminal does not reach it."""

    def __init__(self, argv: tuple[str, ...], process: subprocess.Popen[bytes], log: Path) -> None:
        self.argv = argv
        self.log = log
        self._process = process

    @property
    def pid(self) -> int:
        """The process, which is also its group."""
        return self._process.pid

    def poll(self) -> int | None:
        """None while it runs; else its code, 128 + signal after a signal."""
        code = self._process.poll()
        return code if code is None or code >= 0 else 128 - code

    def signal(self, number: int) -> None:
        """Signal the whole group; nothing happens where all of it is gone."""
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            return

    def wait(self, timeout_s: float) -> int | None:
        """Its code as `poll` gives it, or None when it still runs after `timeout_s` seconds."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        return self.poll()

    def end(self, grace_s: float = 5) -> int:
        """TERM to the group, KILL after `grace_s` seconds; its code."""
        if self.poll() is None:
            self.signal(signal.SIGTERM)
            self.wait(grace_s)
        self.signal(signal.SIGKILL)
        self._process.wait()
        code = self.poll()
        return 0 if code is None else code

    def output(self, most: int = 65536) -> str:
        """The end of its log, at most `most` bytes."""
        with self.log.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - most))
            return stream.read().decode("utf-8", "replace")


def start(argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Child:
    """Start a program in a session of its own; it reads nothing, and writes both streams to `log`.

    Raises:
        MissingError: the program does not exist.
        StackyardError: it cannot be executed, or `cwd` does not exist.
    """
    words = tuple(argv)
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with log.open("ab") as stream:
            process = subprocess.Popen(
                words, env=None if env is None else dict(env), cwd=cwd, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
            )  # fmt: skip
    except FileNotFoundError as error:
        if cwd is not None and not cwd.is_dir():
            raise StackyardError(f"cannot run {words[0]} in {cwd}: no such folder") from error
        raise MissingError(f"the program {words[0]} is not on this machine") from error
    except OSError as error:
        raise StackyardError(f"cannot run {shlex.join(words[:4])}: {error.strerror}") from error
    return Child(words, process, log)
