"""A web server for a directory, on this machine."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def served(directory: Path, asked: Callable[[str], object] = lambda path: None) -> Iterator[str]:
    """The directory over http on this machine; gives the URL without a slash at its end.

    Args:
        asked: called with the path of each file that is asked for.
    """

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            asked(self.path)
            super().do_GET()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(directory)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
