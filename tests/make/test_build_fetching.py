"""What is in the cache is not fetched again, also from an index that does not say how long its files may be kept."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from buildbed import build, locked, sdist, wheel

from stackyard.core.errors import InputError
from stackyard.core.progress import SilentProgress
from stackyard.host.files.hashing import sha256_file
from stackyard.host.net import http
from stackyard.inputs.models import Site, Variant
from stackyard.lock.lockfile.model import PipPackage
from stackyard.make import fetch
from stackyard.make.job import Job
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.write.permissions import Policy, applied


class _Index(BaseHTTPRequestHandler):
    """Serves the files of a directory, forbids caching, and records every request."""

    directory: Path
    asked: list[str]

    held: str = ""
    released = threading.Event()

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.held and self.held in self.path:
            self.released.wait(60)
        data = (self.directory / self.path.lstrip("/")).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-cache")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def index(tmp_path: Path) -> Iterator[type[_Index]]:
    handler = type("Index", (_Index,), {"directory": tmp_path / "files", "asked": [], "released": threading.Event()})
    handler.directory.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    handler.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield handler
    server.shutdown()
    server.server_close()


def _served(index: type[_Index], name: str) -> PipPackage:
    made = wheel(index.directory, name, {f"{name}.py": f"NAME = {name!r}\n".encode()})
    return replace(made, url=f"{index.address}/{made.url.rpartition('/')[2]}")


def test_only_missing_wheels_are_fetched(yard: Yard, index: type[_Index]) -> None:
    one, two, three = (_served(index, name) for name in ("one", "two", "three"))
    build(yard, locked(pip=[one, two]), directory="first")
    assert sorted(set(index.asked)) == sorted(f"/{p.url.rpartition('/')[2]}" for p in (one, two))
    index.asked.clear()
    record = build(yard, locked(pip=[one, two, three]), directory="second")
    assert set(index.asked) == {f"/{three.url.rpartition('/')[2]}"}
    for name in ("one", "two", "three"):
        (file,) = Path(record.prefix).glob(f"lib/python*/site-packages/{name}.py")
        assert file.stat().st_nlink > 1


class _Heard(SilentProgress):
    """Lets the server go on once the build has reported what is fetched so far."""

    def __init__(self, index: type[_Index]) -> None:
        super().__init__()
        self.amounts: list[tuple[str, int, int, str, int]] = []
        self._index = index

    def advance(self, subject: str, done: int, total: int, items: str = "", size: int = 0) -> None:
        self.amounts.append((subject, done, total, items, size))
        if done == 1 and items == "packages fetched":
            self._index.released.set()


def test_a_download_reports_its_packages_and_bytes_while_it_runs(yard: Yard, index: type[_Index]) -> None:
    index.held = "slow-1.0"
    heard = _Heard(index)
    build(yard, locked(pip=[_served(index, "quick"), _served(index, "slow")]), progress=heard)
    assert index.released.is_set(), "the first package was reported before the second one came"
    fetched = [amount for amount in heard.amounts if amount[3] == "packages fetched"]
    assert all(subject == "demo/1.0-py311-1" and total == 2 for subject, _, total, _, _ in fetched)
    assert any(size > 100 for *_, size in fetched)
    assert heard.amounts[-1][1:4] == (2, 2, "files compiled")


def test_a_wheel_that_the_cache_has_from_elsewhere_only_is_fetched(yard: Yard, index: type[_Index]) -> None:
    one, two = (_served(index, name) for name in ("one", "two"))
    build(yard, locked(pip=[one]), directory="first")
    elsewhere = replace(one, url=one.url.replace("127.0.0.1", "localhost"))  # another key in uv's cache
    record = build(yard, locked(pip=[elsewhere, two]), directory="second")
    assert {path.name for path in Path(record.prefix).glob("lib/python*/site-packages/*.py")} >= {"one.py", "two.py"}


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://h/a/demo-1.0.tar.gz", "demo-1.0.tar.gz"),
        ("https://h/a/demo-1.0%2Blocal.tar.gz?x=/..", "demo-1.0+local.tar.gz"),
        ("https://h/packages/a%2Fdemo-1.0.tar.gz", "demo-1.0.tar.gz"),
        ("https://h/..%2f..%2fetc%2fpasswd", "passwd"),
    ],
)
def test_the_name_of_a_file_in_the_cache_is_one_name(url: str, name: str) -> None:
    assert fetch.file_name(url) == name


@pytest.mark.parametrize(
    "url", ["https://h/%2f..", "https://h/a/%2e%2e", "https://h/.", "https://h/a/", "https://h/%00"]
)
def test_a_url_without_a_name_never_leads_out_of_the_cache(yard: Yard, url: str, tmp_path: Path) -> None:
    package = replace(sdist(tmp_path / "s", {"setup.py": ""}), url=url)
    with pytest.raises(InputError, match="URL without a file name"):
        build(yard, locked(pip=[package]))
    assert not list(yard.sources.rglob("*"))


def test_a_source_is_fetched_as_pip_is_told_to(
    yard: Yard, index: type[_Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_PROXY", index.address)
    made = sdist(index.directory / "http:" / "archive.invalid", {"setup.py": ""})
    package = replace(made, url=f"http://archive.invalid/{Path(made.url).name}")
    variant, paths = Variant(stack="demo", version="1.0", name="py311"), RevisionPaths(yard.root / "stacks/demo/1")
    job = Job(Site(), yard, variant, locked(pip=[package]), paths, "demo/1", SilentProgress())
    assert sha256_file(fetch.source_archive(job, package)) == package.sha256
    assert index.asked == [package.url]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_a_fetched_source_has_the_modes_of_the_yard(yard: Yard, tmp_path: Path, umask: int, mode: int) -> None:
    package = sdist(tmp_path / "s", {"setup.py": ""})
    with applied(Policy(umask)):
        made = fetch._download(package, yard.source(package.sha256, fetch.file_name(package.url)), http.PLAIN)
    assert made.stat().st_mode & 0o777 == mode
