"""A web server that wants logins and has git repositories, redirects and a record of every Authorization header."""

from __future__ import annotations

import base64
import http.server
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote


@dataclass
class Guarded:
    """What the server has and what it was asked.

    Attributes:
        logins: by the beginning of a path: ``user:password`` that it wants.
        moved: by the beginning of a path: where it redirects to.
        seen: path and Authorization header of every request, in order.
    """

    directory: Path
    logins: dict[str, str] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    seen: list[tuple[str, str]] = field(default_factory=list)
    port: int = 0

    def url(self, path: str = "", login: str = "", host: str = "127.0.0.1") -> str:
        return f"http://{login}{'@' if login else ''}{host}:{self.port}/{path}"


@contextmanager
def guarded(
    directory: Path, logins: Mapping[str, str] | None = None, moved: Mapping[str, str] | None = None
) -> Iterator[Guarded]:
    """Serve a directory; what lies below ``git/`` are bare repositories."""
    state = Guarded(directory, dict(logins or {}), dict(moved or {}))

    class Handler(_Handler):
        guarded = state

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()


class _Handler(http.server.SimpleHTTPRequestHandler):
    guarded: Guarded

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, directory=str(self.guarded.directory), **more)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        state, given = self.guarded, self.headers.get("Authorization", "")
        state.seen.append((self.path, given))
        wanted = next((login for begin, login in state.logins.items() if unquote(self.path).startswith(begin)), None)
        if wanted is not None and given != f"Basic {base64.b64encode(wanted.encode()).decode()}":
            self._short(401, ("WWW-Authenticate", 'Basic realm="test"'))
        elif target := next((to for begin, to in state.moved.items() if self.path.startswith(begin)), ""):
            self._short(302, ("Location", target + self.path))
        elif self.path.startswith("/git/"):
            self._git()
        elif self.command == "HEAD":
            super().do_HEAD()
        else:
            super().do_GET()

    do_HEAD = do_POST = do_GET

    def _short(self, status: int, header: tuple[str, str]) -> None:
        self.send_response(status)
        self.send_header(*header)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _git(self) -> None:
        """Git's smart protocol, by git's own CGI program."""
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        env = {
            **os.environ, "GIT_PROJECT_ROOT": str(self.guarded.directory), "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path, "QUERY_STRING": query,
            "REQUEST_METHOD": self.command, "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""), "CONTENT_LENGTH": str(len(body)),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*",
        }  # fmt: skip
        done = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True, check=False)
        head, _, rest = done.stdout.partition(b"\r\n\r\n")
        headers = [line.split(": ", 1) for line in head.decode().split("\r\n")]
        status = next((value.split()[0] for name, value in headers if name == "Status"), "200")
        self.send_response(int(status))
        for name, value in headers:
            if name != "Status":
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest)
