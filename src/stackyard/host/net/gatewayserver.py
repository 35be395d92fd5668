"""The server of `host.net.gateway`, for aliases of protected addresses."""

from __future__ import annotations

import base64
import html
import http.server
import re
import secrets as random
import sys
import threading
import traceback
import zlib
from collections.abc import Iterator
from io import BufferedIOBase
from typing import Any
from urllib.parse import urljoin, urlsplit

from stackyard.core import secrets
from stackyard.core.errors import StackyardError
from stackyard.host.net import http as web
from stackyard.host.net.trust import PLAIN, Trust

TIMEOUT_S = 60.0
_BLOCK = 1 << 18
_LARGEST_PAGE = 256 << 20
_HOP = frozenset(
    ("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
     "transfer-encoding", "upgrade", "host", "authorization", "content-length")
)  # fmt: skip
_PAGES = ("text/html", "application/vnd.pypi.simple")
_LINK = re.compile(r"""(href\s*=\s*["']?|"url"\s*:\s*")([^"'>\s]+)""", re.IGNORECASE)


class Gateway(http.server.ThreadingHTTPServer):
    """The server of this process, on the loopback interface; `trust` has the settings for the real servers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.password = random.token_urlsafe(24)
        self.trust: dict[str, Trust] = {}
        place = f"127.0.0.1:{self.server_address[1]}"
        secrets.know(self.password)
        self.proxy = f"http://stackyard:{self.password}@{place}"
        self.mirrors = f"http://{place}/{self.password}"
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 3600}, daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the error; a client that disconnected is not an error."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            print(secrets.redacted(traceback.format_exc()), file=sys.stderr)


class _Handler(http.server.BaseHTTPRequestHandler):
    """Forwards a request: ``http://<alias>/path`` as a proxy, ``/<password>/<alias>/path`` as a mirror."""

    protocol_version = "HTTP/1.1"
    server: Gateway

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: requests of a mirror contain the password."""

    def do_GET(self) -> None:
        """Forward a request of any method. Errors after the header was sent can only close the connection."""
        self._begun = False
        try:
            if self._known():
                self._pass_on(*self._target())
            else:
                self.close_connection = True
                self._refuse(407, "not authorized", ("Proxy-Authenticate", 'Basic realm="stackyard"'))
        except (*web.FAILURES, StackyardError) as error:
            self.close_connection = True
            reason = str(error) if isinstance(error, StackyardError) else web.explain(error)
            if not self._begun:
                self._refuse(502, secrets.redacted(reason))

    do_HEAD = do_POST = do_GET

    def _known(self) -> bool:
        """Whether the client has the password."""
        word = self.headers.get("Proxy-Authorization", "")
        return self._by_mirror() or random.compare_digest(word.encode(), self._expected().encode())

    def _by_mirror(self) -> bool:
        first, _, _ = self.path[1:].partition("/")
        return self.path[:1] == "/" and random.compare_digest(first.encode(), self.server.password.encode())

    def _target(self) -> tuple[str, str]:
        """The requested address, and the prefix for links to aliases."""
        url, links = self.path, "http://"
        if self._by_mirror():
            url, links = f"http://{self.path.split('/', 2)[2]}", f"{self.server.mirrors}/"
        origin = secrets.origin_of(urlsplit(url).hostname or "")
        return (f"{origin}/{url.split('/', 3)[3]}" if origin else url), links

    def _expected(self) -> str:
        return f"Basic {base64.b64encode(f'stackyard:{self.server.password}'.encode()).decode()}"

    def _pass_on(self, url: str, links: str) -> None:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
        headers["Accept-Encoding"] = "identity"
        trust = self.server.trust.get(urlsplit(secrets.alias(url)).hostname or "", PLAIN)
        with web.exchange(self.command, url, headers, self._body(), TIMEOUT_S, trust) as answer:
            self._answer(answer, url, links)

    def _body(self) -> bytes | None:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            return b"".join(self._chunks(self.rfile))
        length = self.headers.get("Content-Length")
        return self.rfile.read(int(length)) if length else None

    @staticmethod
    def _chunks(stream: BufferedIOBase) -> Iterator[bytes]:
        while size := int(stream.readline().split(b";")[0], 16):
            yield stream.read(size)
            stream.readline()
        while stream.readline().strip():
            pass

    def _answer(self, answer: Any, url: str, links: str) -> None:
        page = self._page(answer, url, links)
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() == "location":
                self.send_header(name, _Links(url, links).named(value))
            elif name.lower() not in _HOP and not (page is not None and name.lower() == "content-encoding"):
                self.send_header(name, value)
        length = str(len(page)) if page is not None else answer.headers.get("Content-Length")
        chunked = length is None and answer.status not in (204, 304)
        if chunked:  # without its last chunk the client can tell that it is not whole
            self.send_header("Transfer-Encoding", "chunked")
        elif length is not None:
            self.send_header("Content-Length", length)
        self.end_headers()
        self._begun = True
        if self.command == "HEAD":
            return
        if page is not None:
            self.wfile.write(page)
        else:
            self._send(answer, chunked)

    def _send(self, answer: Any, chunked: bool) -> None:
        while block := answer.read(_BLOCK):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(block), block) if chunked else block)
        web.require_whole(answer)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _page(self, answer: Any, url: str, links: str) -> bytes | None:
        """The body of an index page with aliases in its links; None for other content."""
        kind = answer.headers.get("Content-Type", "")
        if self.command == "HEAD" or answer.status != 200 or not kind.startswith(_PAGES):
            return None
        data = answer.read(_LARGEST_PAGE + 1)
        if len(data) > _LARGEST_PAGE:
            raise StackyardError(f"cannot pass on {url}: the page is larger than {_LARGEST_PAGE >> 20} MiB")
        web.require_whole(answer)
        if answer.headers.get("Content-Encoding") == "gzip":
            data = zlib.decompress(data, wbits=31)
        text = data.decode("utf-8", "surrogateescape")
        of_page = _Links(url, links)
        text = _LINK.sub(lambda match: match[1] + of_page.named(match[2]), text)
        return text.encode("utf-8", "surrogateescape")

    def _refuse(self, status: int, message: str, *headers: tuple[str, str]) -> None:
        body = f"{message}\n".encode()
        self.send_response(status)
        for name, value in (("Content-Type", "text/plain; charset=utf-8"), *headers):
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class _Links:
    """Rewrites the links on a page or of a redirect for the client.

    Args:
        url: the address of the page.
        links: the prefix of aliases' URLs.
    """

    def __init__(self, url: str, links: str) -> None:
        self._real, _ = secrets.reached(url)
        self._names = secrets.names_on(url)
        self._aliases = secrets.aliases()
        self._begin = links

    def named(self, link: str) -> str:
        """A link, with the alias of its server if there is one."""
        target = urljoin(self._real, html.unescape(link))
        parts = urlsplit(target)
        origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}".lower()
        if origin not in self._aliases:
            return link
        named = secrets.with_names(secrets.address(target), self._names)
        return html.escape(secrets.alias(named).replace("http://", self._begin, 1), quote=False)
