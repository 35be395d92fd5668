"""The door to HTTP against real servers on this machine: retries, time limits, proxies, logins, certificates."""

from __future__ import annotations

import base64
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from stackyard.core.errors import StackyardError
from stackyard.host.files.hashing import digest_url
from stackyard.host.net import http
from stackyard.host.net.http import Trust

Reply = tuple[int, dict[str, str], bytes]
OK: Reply = (200, {}, b"content")


class Server:
    """A server that gives its replies in order, the last one for ever, and keeps what it was asked."""

    def __init__(self, port: int, scheme: str, replies: list[Reply]) -> None:
        self.address = f"127.0.0.1:{port}"
        self.url = f"{scheme}://{self.address}"
        self.replies = replies
        self.asked: list[tuple[str, str]] = []

    @property
    def logins(self) -> list[str]:
        return [login for _, login in self.asked]

    def next(self) -> Reply:
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


def _handler(server: Callable[[], Server]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server().asked.append((self.path, self.headers.get("Authorization", "")))
            status, headers, body = server().next()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    return Handler


@contextmanager
def serving(*replies: Reply, certificate: Path | None = None) -> Iterator[Server]:
    listening = ThreadingHTTPServer(("127.0.0.1", 0), _handler(lambda: server))
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        listening.socket = context.wrap_socket(listening.socket, server_side=True)
    server = Server(listening.server_port, "https" if certificate else "http", list(replies or (OK,)))
    threading.Thread(target=listening.serve_forever, args=[0.01], daemon=True).start()
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No login, proxy or certificates but those of the test; pauses too short to notice."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "NETRC"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(http, "PAUSE_S", 0.01)


def with_login(server: Server) -> str:
    return server.url.replace("://", "://me:my%20word@")


LOGIN = "Basic " + base64.b64encode(b"me:my word").decode()


def test_a_transient_status_is_tried_again() -> None:
    with serving((503, {}, b"busy"), (429, {"Retry-After": "0"}, b""), OK) as server:
        assert http.read(server.url, timeout_s=60) == b"content"
        assert len(server.asked) == 3
    with serving((503, {}, b"")) as server:
        with pytest.raises(StackyardError, match=r"cannot read http://127.*: HTTP status 503 Service Unavailable$"):
            http.read(server.url, timeout_s=60)
        assert len(server.asked) == http.TRIES


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 501])
def test_any_other_status_is_final(status: int) -> None:
    with serving((status, {}, b"")) as server:
        with pytest.raises(StackyardError, match=f"HTTP status {status} "):
            http.read(server.url, timeout_s=60)
        assert len(server.asked) == 1


def test_a_body_that_breaks_off_is_fetched_again_from_its_start() -> None:
    with serving((200, {"Content-Length": "90"}, b"con"), OK) as server:
        assert digest_url(server.url)[1] == len(b"content")
    with (
        serving((200, {"Content-Length": "90"}, b"con")) as server,
        pytest.raises(StackyardError, match="more expected"),
    ):
        http.get(server.url, lambda stream: stream.read(3), timeout_s=60)


def test_a_server_without_an_answer_is_given_up() -> None:
    with ExitStack() as stack:
        silent = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler))
        with pytest.raises(StackyardError, match="timed out"):
            http.read(f"http://127.0.0.1:{silent.server_port}/", timeout_s=0.1)


def test_what_cannot_be_connected_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "PAUSE_S", 1000)
    with pytest.raises(StackyardError, match="connection refused"):
        http.read("http://127.0.0.1:9/", timeout_s=60)
    with pytest.raises(StackyardError, match="unsupported URL"):
        http.read("ftp://127.0.0.1/x", timeout_s=60)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_on_the_server_keeps_the_login(status: int) -> None:
    with serving((status, {"Location": "/there"}, b""), OK) as server:
        assert http.read(f"{with_login(server)}/here", timeout_s=60) == b"content"
        assert server.asked == [("/here", LOGIN), ("/there", LOGIN)]


def test_a_redirect_to_another_server_drops_the_login(tmp_path: Path) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password word\n")
    with serving() as other, serving((302, {"Location": f"{other.url}/x"}, b"")) as server:
        assert http.read(with_login(server), timeout_s=60) == b"content"
        assert (server.logins, other.logins) == ([LOGIN], [""])
    with serving() as other, serving((302, {"Location": with_login(other)}, b"")) as server:
        assert http.read(server.url, timeout_s=60) == b"content"
        assert other.logins == [""], "a server does not choose whose login is sent"


def test_netrc_of_another_port_is_not_sent_after_a_redirect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "logins").write_text('machine 127.0.0.1 login me password "my word"\n')
    monkeypatch.setenv("NETRC", str(tmp_path / "logins"))
    with serving() as other, serving((307, {"Location": other.url}, b"")) as server:
        http.read(server.url, timeout_s=60)
        assert (server.logins, other.logins) == ([LOGIN], [""])


def test_a_redirect_from_https_to_http_drops_the_login(certificate: Path) -> None:
    with serving() as plain, serving((302, {"Location": plain.url}, b""), certificate=certificate) as server:
        assert http.read(with_login(server), timeout_s=60, trust=Trust(str(certificate))) == b"content"
        assert (server.logins, plain.logins) == ([LOGIN], [""])


def test_only_the_host_that_is_named_is_left_unchecked(certificate: Path) -> None:
    with serving(certificate=certificate) as other:
        elsewhere = other.url.replace("127.0.0.1", "localhost")
        with serving((302, {"Location": other.url}, b""), certificate=certificate) as server:
            assert http.read(server.url, timeout_s=60, trust=Trust(insecure=True)) == b"content"
        with (
            serving((302, {"Location": elsewhere}, b""), certificate=certificate) as server,
            pytest.raises(StackyardError, match="certificate verification failed"),
        ):
            http.read(server.url, timeout_s=60, trust=Trust(insecure=True))
        assert len(other.asked) == 1


@pytest.mark.parametrize("target", ["file:///etc/hostname", "ftp://127.0.0.1/x"])
def test_a_redirect_leads_to_http_only(target: str) -> None:
    with (
        serving((302, {"Location": target}, b"")) as server,
        pytest.raises(StackyardError, match=r"HTTP status 302 .*to"),
    ):
        http.read(server.url, timeout_s=60)


def test_the_login_is_of_netrc_or_of_the_url(tmp_path: Path) -> None:
    netrc = tmp_path / ".netrc"
    netrc.write_text('machine 127.0.0.1 login me password "my word"\n')
    netrc.chmod(0o600)
    with serving() as server:
        http.read(server.url, timeout_s=60)
        netrc.unlink()
        http.read(server.url, timeout_s=60)
        http.read(server.url.replace("://", "://you:x@"), timeout_s=60)
        assert server.logins == [LOGIN, "", "Basic " + base64.b64encode(b"you:x").decode()]


def test_no_message_holds_a_password() -> None:
    with serving((404, {}, b"")) as server, pytest.raises(StackyardError) as caught:
        http.read(with_login(server), timeout_s=60)
    assert "word" not in str(caught.value)


def test_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as proxy, serving((200, {}, b"direct")) as server:
        monkeypatch.setenv("http_proxy", proxy.url)
        assert http.read("http://far.invalid/file", timeout_s=60) == b"content"
        assert proxy.asked == [("http://far.invalid/file", "")]
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert http.read(server.url, timeout_s=60) == b"direct"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1 with its key, in one file."""
    directory = tmp_path_factory.mktemp("certificate")
    key, cert, both = directory / "key.pem", directory / "cert.pem", directory / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    both.write_bytes(key.read_bytes() + cert.read_bytes())
    return both


def test_certificates_are_checked(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(certificate=certificate) as server:
        with pytest.raises(StackyardError, match="certificate verification failed: self"):
            http.read(server.url, timeout_s=60)
        assert server.asked == []
        assert http.read(server.url, timeout_s=60, trust=Trust(str(certificate))) == b"content"
        assert http.open_url(server.url, "HEAD", 5, Trust(insecure=True)).status == 200
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert http.read(server.url, timeout_s=60) == b"content"
        with pytest.raises(StackyardError, match=r"CA bundle not found: /no/such\.pem"):
            http.read(server.url, timeout_s=60, trust=Trust("/no/such.pem"))
        assert len(server.asked) == 3, "a bundle that is named and missing is not replaced by the system's"
