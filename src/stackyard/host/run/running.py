"""One running program of `host.run.command`: its streams, its end, and the end of its descendants."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from stackyard.host.run import script
from stackyard.host.run.view import PLAIN, View

_GUARD = Path(__file__).with_name("guard.py")
LINGER_S = 3.0
"""How long its output is still read after its end, while another process that it started keeps the streams open."""

_KILL_S = 10.0
"""How long its end is waited for after it was killed; a process in a system call that hangs does not end."""


class RunningProgram:
    """A program from its start to its end.

    Args:
        guarded: start it by `host.run.guard`, which terminates all descendants; else only its process group can be
            terminated.
        view: its view of the files.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(
        self, words: Sequence[str], env: Mapping[str, str] | None, cwd: Path | None, stdin: str | None, *,
        guarded: bool, view: View = PLAIN,
    ) -> None:  # fmt: skip
        self._alive = self._status = -1
        self._argv0 = words[0]
        descriptor = subprocess.DEVNULL if stdin is None else _memory("stdin", stdin.encode())
        try:
            if guarded:
                self._start_guarded(_order(view.words, words, os.environ if env is None else env), cwd, descriptor)
            else:
                self._start(view.argv(words), env, cwd, descriptor)
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _start(self, words: Sequence[str], env: Mapping[str, str] | None, cwd: Path | None, stdin: int) -> None:
        self._process = subprocess.Popen(
            words, env=None if env is None else dict(env), cwd=cwd, start_new_session=True,
            stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def _start_guarded(self, content: bytes, cwd: Path | None, stdin: int) -> None:
        order = _memory("order", content)
        alive, self._alive = os.pipe()
        self._status, status = os.pipe()
        argv = [*script.words(_GUARD), str(alive), str(status), str(order)]
        try:
            self._process = subprocess.Popen(
                argv, cwd=cwd, start_new_session=True, pass_fds=(alive, status, order),
                stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
        except BaseException:
            self._close()
            raise
        finally:
            for handle in (alive, status, order):
                os.close(handle)

    def finish(self, deadline: float, watch: Callable[[], object] = lambda: None) -> tuple[str, str, bool]:
        """Wait for its end; kill it at `deadline` (by `time.monotonic`), or if this process is interrupted.

        Args:
            watch: is called several times a second; an exception from it ends the program.

        Returns:
            Its standard output and error, and whether it was killed at the deadline.

        Raises:
            OSError: the guard could not start it.
        """
        streams = _Streams(self._process)
        try:
            in_time = streams.read(deadline, watch)
            if not in_time:
                self._kill()
                streams.read(time.monotonic())
        except BaseException:
            self._kill()
            raise
        finally:
            streams.close()
            self.returncode = self._ended()
        return streams.text(self._process.stdout), streams.text(self._process.stderr), not in_time

    def _kill(self) -> None:
        if self._alive >= 0:
            os.close(self._alive)
            self._alive = -1
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_KILL_S)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILL_S)

    def _ended(self) -> int:
        """Its exit status, or minus the signal that ended it."""
        code = self._process.poll()
        code = -signal.SIGKILL if code is None else code
        if self._status < 0:
            return code
        os.set_blocking(self._status, False)
        with suppress(BlockingIOError):
            word, _, number = os.read(self._status, 64).decode().partition("\n")[0].partition(" ")
            if word == "failed":
                self._close()
                raise OSError(int(number), os.strerror(int(number)), self._argv0)
            code = os.waitstatus_to_exitcode(int(number)) if word == "ended" else code
        self._close()
        return code

    def _close(self) -> None:
        for handle in (self._alive, self._status):
            if handle >= 0:
                os.close(handle)
        self._alive = self._status = -1


class _Streams:
    """The output of a program, read as it arrives."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._parts: dict[IO[bytes], list[bytes]] = {}
        self._selector = selectors.DefaultSelector()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._parts[stream] = []
            self._selector.register(stream, selectors.EVENT_READ)

    def read(self, deadline: float, watch: Callable[[], object] = lambda: None) -> bool:
        """Read until the program has ended; False if it still runs at the deadline.

        Then its streams are at their end. A remaining descendant may keep them open; it is not waited for.
        """
        until = deadline
        while self._selector.get_map():
            watch()
            if self._process.poll() is not None:
                until = min(until, time.monotonic() + LINGER_S)
            ready = self._selector.select(max(min(until - time.monotonic(), 0.1), 0))
            for key, _ in ready:
                self._take(key.fileobj)  # type: ignore[arg-type]
            if not ready and time.monotonic() >= until:
                break
        try:
            self._process.wait(max(deadline - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            return False
        return True

    def _take(self, stream: IO[bytes]) -> None:
        try:
            part = os.read(stream.fileno(), 1 << 16)
        except BlockingIOError:
            return
        if part:
            self._parts[stream].append(part)
        else:
            self._selector.unregister(stream)

    def text(self, stream: IO[bytes] | None) -> str:
        """All output, as UTF-8 with replacement and with line feeds at the ends of lines."""
        assert stream is not None
        whole = b"".join(self._parts[stream]).decode("utf-8", "replace")
        return whole.replace("\r\n", "\n").replace("\r", "\n")

    def close(self) -> None:
        """Stop reading."""
        self._selector.close()
        for stream in self._parts:
            stream.close()


def _order(view: Sequence[str], words: Sequence[str], env: Mapping[str, str]) -> bytes:
    """The input for the guard."""
    texts = [str(len(view)), *view, str(len(words)), *words, *(f"{name}={value}" for name, value in env.items())]
    if any("\0" in text for text in texts):
        raise ValueError("embedded null byte")
    return b"".join(os.fsencode(text) + b"\0" for text in texts)


def _memory(name: str, content: bytes) -> int:
    """An anonymous file for another process to read."""
    handle = os.memfd_create(f"stackyard-{name}")
    with os.fdopen(os.dup(handle), "wb") as stream:
        stream.write(content)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle
