"""Boards for tests: started and read, asked by curl, and what they leave."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support import programs
from support.watched import mentions, nothing_left

HTTP = ("--", "python", "-m", "http.server", "{port}", "--bind", "127.0.0.1", "--directory", "{directory}")
"""A tool that can only listen on a port."""
ON_SOCKET = """\
import http.server, os, sys, socketserver
class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    pass
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200), self.end_headers(), self.wfile.write(b"here\\n")
    def log_message(self, *_):
        pass
Server(sys.argv[1], Handler).serve_forever()
"""
"""A tool that listens on a UNIX socket, as a program."""


@dataclass
class Shown:
    """A board that answers.

    Attributes:
        said: its lines so far.
    """

    process: subprocess.Popen[str]
    said: str
    socket: Path

    @property
    def processes(self) -> list[int]:
        """Itself and its tool."""
        return [self.process.pid, *mentions(str(self.socket.parent))]

    def ended(self) -> int:
        """Wait for its end; hold that nothing of it is left. Returns the exit status."""
        code = self.process.wait(60)
        assert not nothing_left(str(self.socket.parent)) and not self.socket.parent.exists()
        return code


def answering(process: subprocess.Popen[str], lines: Callable[[], str] | None = None) -> Shown:
    """A board whose lines are read from its standard output, or where a test says, until it answers."""
    said, end = "", time.monotonic() + 120
    while "Ctrl-C here ends it" not in said and time.monotonic() < end:
        if lines:
            said = lines()
            time.sleep(0.05)
        else:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                pytest.fail(f"exit {process.wait(10)}\n{said}\n{process.stderr and process.stderr.read()}")
            said += line
    match = re.search(r"-L \d+:(\S+/s) ", said)
    assert match, said
    return Shown(process, said, Path(match[1]))


@contextmanager
def board(start: Callable[..., subprocess.Popen[str]], *words: str | Path, **options: object) -> Iterator[Shown]:
    """A board for a ``with`` block; `start` is `subprocess.Popen`, or that of an account with its `stackyard` first."""
    process = start(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    try:
        yield answering(process)
    finally:
        process.terminate()
        process.communicate(timeout=60)


def asked(socket: Path, path: str = "/") -> list[str]:
    """The words that ask a board."""
    programs.need("curl")
    return ["curl", "-sS", "--max-time", "30", "--unix-socket", str(socket), f"http://localhost{path}"]


def listening(pids: Sequence[int]) -> list[str]:
    """The TCP ports of this network namespace on which processes listen."""
    programs.need("ss")
    lines = subprocess.run(["ss", "-Hltnp"], check=True, text=True, stdout=subprocess.PIPE).stdout.splitlines()
    return [line for line in lines if any(f"pid={pid}," in line for pid in pids)]
