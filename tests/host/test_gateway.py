"""Who gets a login: the server that it is for, by every program, and nobody else, also after a redirect."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from stackyard.host import conda, gateway, secrets, uv
from stackyard.host.pipconf import PipSettings
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


def fetch_everything(server: Guarded, login: str, folder: Path) -> None:
    """A channel by rattler, an index by uv, a repository by git, as the program calls them."""
    from rattler import Gateway, MatchSpec, Subdir, solve

    channel = secrets.address(server.url("c", login))
    reader = Gateway(cache_dir=folder / "repodata", client=conda.client([channel]))
    platforms = [Subdir("linux-64"), Subdir("noarch")]
    [found] = asyncio.run(solve([f"{secrets.seen(channel)}/"], [MatchSpec("six")], gateway=reader, platforms=platforms))
    assert found.url == server.url("c/linux-64/six-1.0-0.tar.bz2")
    settings = PipSettings(indexes=(server.url("simple", login),))
    words = [
        "pip",
        "install",
        "demo",
        "--target",
        folder / "t",
        "--cache-dir",
        folder / "uv",
        *uv.index_options(settings),
    ]
    uv.run(words, settings, timeout_s=60, check=True)
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
