"""A program that is asked and answers, a line of JSON each, as long as it is needed."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from tempfile import TemporaryFile
from typing import Any

from stackyard.core.errors import StackyardError
from stackyard.host.run.command import cannot_start, ending

MOST_SAID = 4000
"""Bytes of what it printed as errors, in the message of one that has ended."""


class Dialogue:
    """A running program in its own session; it ends when its input is closed, also by the end of this process."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        """Start it.

        Raises:
            MissingError: it does not exist.
            StackyardError: it cannot be started.
        """
        self._name, self._rest = argv[0], b""
        self._errors = TemporaryFile()  # noqa: SIM115 - as long as the program
        try:
            self._process = subprocess.Popen(
                list(argv), env=None if env is None else dict(env), start_new_session=True, bufsize=0,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            )  # fmt: skip
        except OSError as error:
            self._errors.close()
            raise cannot_start(argv, None, error) from error

    def ask(self, question: Mapping[str, Any], timeout_s: float) -> Any:
        """The answer to a question.

        Raises:
            StackyardError: it has ended, answers something else than JSON, or not within `timeout_s`.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            data = memoryview(json.dumps(question).encode() + b"\n")
            while data:
                data = data[self._process.stdin.write(data) :]
            line = self._line(timeout_s)
        except BrokenPipeError:
            line = b""
        try:
            return json.loads(line)
        except ValueError as error:
            raise self._failure() from error

    def _line(self, timeout_s: float) -> bytes:
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise StackyardError(f"{self._name} timed out after {timeout_s:g} s without an answer")
                if not (data := os.read(self._process.stdout.fileno(), 1 << 16)):
                    return b""
                self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _failure(self) -> StackyardError:
        self.close()
        self._errors.seek(0)
        said = self._errors.read()[-MOST_SAID:].decode("utf-8", "replace").strip()
        error = StackyardError(f"{self._name} {ending(self._process.returncode)} instead of an answer")
        error.detail = said or None
        return error

    def close(self) -> None:
        """End it: its input is closed, and after a moment it is killed."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                with suppress(OSError):
                    stream.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
