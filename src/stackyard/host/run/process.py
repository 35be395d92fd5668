"""A long-running child process: argv list, own process group, both streams into a file."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from stackyard.host.run.command import cannot_start
from stackyard.host.run.identity import stat_words

HELPERS_S = 5.0
"""How long other processes of a program's group may go on after it."""


class Child:
    """A program that runs concurrently, in its own process group, so that Ctrl-C does not reach it."""

    def __init__(self, argv: tuple[str, ...], process: subprocess.Popen[bytes], log: Path) -> None:
        self.argv = argv
        self.log = log
        self._process = process

    @property
    def pid(self) -> int:
        """The process id, which is also its group's."""
        return self._process.pid

    def poll(self) -> int | None:
        """None while it runs; else its code, 128 + signal after a signal."""
        code = self._process.poll()
        return code if code is None or code >= 0 else 128 - code

    def signal(self, number: int, *, whole: bool = True) -> None:
        """Signal its group, or without `whole` only the program; a process that has ended is ignored."""
        try:
            if whole:
                os.killpg(self._process.pid, number)
            else:
                self._process.send_signal(number)
        except (ProcessLookupError, PermissionError):
            return

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Its code as from `poll`, or None if it still runs after `timeout_s` seconds; None: no limit."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        return self.poll()

    def end(self, grace_s: float = 5) -> int:
        """Send TERM to the group, KILL to the program after `grace_s` seconds, and then to the rest of the group.

        Its descendants get `HELPERS_S` seconds to clean up: when srun is killed, a second process of it cancels the job
        step and gives the allocation back (Slurm, src/srun/libsrun/srun_job.c). Killed together, they leave a job that
        runs on.

        Returns:
            Its code, as from `poll`.
        """
        if self.poll() is None:
            self.signal(signal.SIGTERM)
            if self.wait(grace_s) is None:
                self.signal(signal.SIGKILL, whole=False)
        self._process.wait()
        until = time.monotonic() + HELPERS_S
        while self._leaves_some() and time.monotonic() < until:
            time.sleep(0.02)
        self.signal(signal.SIGKILL)
        code = self.poll()
        return 0 if code is None else code

    def _leaves_some(self) -> bool:
        """Whether a process of its group still runs; zombies do not count."""
        try:
            os.killpg(self._process.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        stats = (stat_words(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208
        return any(int(words[2]) == self._process.pid and words[0] not in "ZX" for words in stats if words)

    def output(self, most: int = 65536) -> str:
        """The end of its log, at most `most` bytes."""
        with self.log.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - most))
            return stream.read().decode("utf-8", "replace")


def start(
    argv: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    with_caller: bool = False,
) -> Child:
    """Start a program in a new session, without input, with both streams going to `log`.

    Args:
        with_caller: keep its standard input open until this process ends, so that it can end then as well.

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
                stdin=subprocess.PIPE if with_caller else subprocess.DEVNULL, stdout=stream, stderr=stream,
            )  # fmt: skip
    except OSError as error:
        raise cannot_start(words, cwd, error) from error
    return Child(words, process, log)
