"""A web server for a directory that gives out parts of files, and counts what it sent (RFC 9110, section 14)."""

from __future__ import annotations

import functools
import http.server
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Sent:
    """What was asked for and sent, by the path of the file; `refused`: paths that are answered with a status."""

    url: str = ""
    requests: list[tuple[str, str]] = field(default_factory=list)
    bytes: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)


@contextmanager
def served_in_parts(directory: Path, *, parts: bool = True, pause_s: float = 0) -> Iterator[Sent]:
    """The directory over http on this machine.

    Args:
        parts: answer range requests; else whole files only.
        pause_s: before each 16 KiB, so that what nobody reads does not wait in buffers as sent.
    """
    sent = Sent()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            """The file, or a part of it."""
            path = self.path.lstrip("/")
            sent.requests.append((path, self.headers.get("Range", "")))
            file = directory / path
            if path in sent.refused or not file.is_file():
                self.send_error(sent.refused.get(path, 404))
                return
            data = file.read_bytes()
            first, last, status = 0, len(data), 200
            if parts and (asked := re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))):
                first = int(asked[1]) if asked[1] else max(0, len(data) - int(asked[2]))
                last = min(len(data), int(asked[2]) + 1) if asked[1] and asked[2] else len(data)
                status = 206
            self.send_response(status)
            if status == 206:
                self.send_header("Content-Range", f"bytes {first}-{last - 1}/{len(data)}")
            self.send_header("Content-Length", str(last - first))
            self.end_headers()
            with suppress(OSError):  # the client has what it needs
                for start in range(first, last, 1 << 14):
                    block = data[start : min(start + (1 << 14), last)]
                    time.sleep(pause_s)
                    self.wfile.write(block)
                    sent.bytes[path] = sent.bytes.get(path, 0) + len(block)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(directory)))
    sent.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield sent
    finally:
        server.shutdown()
        server.server_close()
