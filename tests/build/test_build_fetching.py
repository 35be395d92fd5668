"""What is in the cache is not fetched again, also from an index that does not say how long its files may be kept."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from buildbed import build, locked, wheel

from stackyard.lock.model import PipPackage
from stackyard.yard.layout import Yard


class _Index(BaseHTTPRequestHandler):
    """Serves the files of a directory, forbids caching, and records every request."""

    folder: Path
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        data = (self.folder / self.path.lstrip("/")).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-cache")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def index(tmp_path: Path) -> Iterator[type[_Index]]:
    handler = type("Index", (_Index,), {"folder": tmp_path / "files", "asked": []})
    handler.folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    handler.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield handler
    server.shutdown()
    server.server_close()


def _served(index: type[_Index], name: str) -> PipPackage:
    made = wheel(index.folder, name, {f"{name}.py": f"NAME = {name!r}\n".encode()})
    return replace(made, url=f"{index.address}/{made.url.rpartition('/')[2]}")


def test_only_missing_wheels_are_fetched(yard: Yard, index: type[_Index]) -> None:
    one, two, three = (_served(index, name) for name in ("one", "two", "three"))
    build(yard, locked(pip=[one, two]), folder="first")
    assert sorted(set(index.asked)) == sorted(f"/{p.url.rpartition('/')[2]}" for p in (one, two))
    index.asked.clear()
    record = build(yard, locked(pip=[one, two, three]), folder="second")
    assert set(index.asked) == {f"/{three.url.rpartition('/')[2]}"}
    for name in ("one", "two", "three"):
        (file,) = Path(record.prefix).glob(f"lib/python*/site-packages/{name}.py")
        assert file.stat().st_nlink > 1
