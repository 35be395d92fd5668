"""Who gets a login: the server that it is for, by every program, and nobody else, also after a redirect."""

from __future__ import annotations

import asyncio
import base64
import http.client
import os
import socketserver
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from stackyard.core import secrets
from stackyard.host.net import gateway, gatewayserver
from stackyard.host.tools import rattler as conda
from stackyard.host.tools import uv
from stackyard.host.tools.pipconf import PipSettings
from support.channel import Package, make_channel
from support.guardedserver import Guarded, guarded
from support.tinywheel import wheel

WORD = "Basic " + base64.b64encode(b"me:pa=ss").decode()


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Guarded, Guarded]]:
    """A server that wants a login and redirects everything to another one, which has a channel, an index and a
    repository."""
    make_channel(tmp_path / "served/c", [Package("six", "1.0")])
    made = wheel(tmp_path / "served/files", "demo", "1.0")
    (tmp_path / "served/simple/demo").mkdir(parents=True)
    (tmp_path / "served/simple/demo/index.html").write_text(f'<a href="/files/{made.name}">{made.name}</a>')
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "served/git/x.git")], check=True)
    monkeypatch.setenv("NO_PROXY", "*")
    with guarded(tmp_path / "served") as other:
        moved = other.url(host="localhost").rstrip("/")
        with guarded(tmp_path / "empty", {"/": "me:pa=ss"}, {"/": moved}) as first:
            yield first, other


def fetch_everything(server: Guarded, login: str, directory: Path) -> None:
    """A channel by rattler, an index by uv, a repository by git, as the program calls them."""
    from rattler import Gateway, MatchSpec, Subdir, solve

    channel = secrets.address(server.url("c", login))
    reader = Gateway(cache_dir=directory / "repodata", client=conda.client([channel]))
    platforms = [Subdir("linux-64"), Subdir("noarch")]
    [found] = asyncio.run(solve([f"{secrets.seen(channel)}/"], [MatchSpec("six")], gateway=reader, platforms=platforms))
    assert found.url == server.url("c/linux-64/six-1.0-0.tar.bz2")
    settings = PipSettings(indexes=(server.url("simple", login),))
    words = [
        "pip",
        "install",
        "demo",
        "--target",
        directory / "t",
        "--cache-dir",
        directory / "uv",
        *uv.index_options(settings),
    ]
    uv.run(words, settings, timeout_s=240, check=True)
    place = gateway.alias(secrets.address(server.url("git/x.git", login)))
    environ = {**os.environ, **gateway.variables(os.environ), "GIT_TERMINAL_PROMPT": "0"}
    subprocess.run(["git", "ls-remote", place], env=environ, check=True)


@pytest.mark.parametrize("source", ["netrc", "url"])
def test_a_login_does_not_follow_a_redirect_to_another_server(
    servers: tuple[Guarded, Guarded], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    first, other = servers
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password pa=ss\n")
    netrc.chmod(0o600)
    if source == "netrc":
        monkeypatch.setenv("NETRC", str(netrc))
        (Path(os.environ["HOME"]) / ".netrc").symlink_to(netrc)
    fetch_everything(first, "me:pa%3Dss" if source == "url" else "", tmp_path)
    assert WORD in {word for _, word in first.seen}
    assert len(other.seen) > 5 and {word for _, word in other.seen} == {""}


def test_the_gateway_answers_nobody_without_its_password(servers: tuple[Guarded, Guarded]) -> None:
    """Any user of the machine can connect to it."""
    first, _ = servers
    place = gateway.mirror(secrets.address(first.url("c", "me:pa%3Dss")))
    password, host = place.split("/")[3:5]
    server = place.split(f"/{password}/")[0]
    for path, proxied in ((f"/wrong/{host}/c", False), (f"http://{host}/c", True), ("/", False)):
        request = urllib.request.Request(f"{server}{path}" if not proxied else path)
        if proxied:
            request.set_proxy(server.removeprefix("http://"), "http")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with pytest.raises(urllib.error.HTTPError) as caught:
            opener.open(request, timeout=5)
        assert caught.value.code == 407
    assert not first.seen and password not in secrets.redacted(place)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"Content-Length: 100\r\n\r\nhalf", 200),
        (b"Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n50\r\nof", 200),
        (b"Content-Type: text/html\r\nContent-Length: 100\r\n\r\nhalf", 502),  # read before the header is sent
        (b"Content-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ntoo large\r\n0\r\n\r\n", 502),
    ],
)
def test_a_body_that_is_not_whole_is_not_whole_for_the_client(
    head: bytes, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gatewayserver, "_LARGEST_PAGE", 8)

    class Breaking(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            self.wfile.write(b"HTTP/1.1 200 OK\r\n" + head)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Breaking) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        place = gateway.mirror(secrets.address(f"http://me:pa%3Dss@127.0.0.1:{server.server_address[1]}/x"))
        found = urlsplit(place)
        client = http.client.HTTPConnection(found.netloc, timeout=20)  # keeps its connection, as uv does
        client.request("GET", found.path)
        answer = client.getresponse()
        assert answer.status == status
        if status == 200:
            with pytest.raises(http.client.IncompleteRead):
                answer.read()
        server.shutdown()


def test_pages_at_the_same_time(tmp_path: Path) -> None:
    """Their threads learn the same token, once, while others look it up."""
    token, count = "abcd0123wxyz", len(secrets._tokens)
    for page in range(8):
        directory = tmp_path / f"t/{token}/{page}"
        directory.mkdir(parents=True)
        links = (f'<a href="/t/{token}/files/{page}-{number}.whl">x</a>\n' for number in range(200))
        (directory / "index.html").write_text("".join(links))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with guarded(tmp_path) as server, ThreadPoolExecutor(8) as pool:
        address = secrets.address(server.url(f"t/{token}/"))

        def page(number: int) -> str:
            text: bytes = opener.open(gateway.mirror(f"{address}{number}/"), timeout=240).read()
            return text.decode()

        pages = list(pool.map(page, range(8)))
    assert all(text.count("/t/***/files/") == 200 and token not in text for text in pages)
    assert len(secrets._tokens) == count + 1
