"""The one door to HTTP: retries, time limits, proxies, netrc, certificates, and failures in plain words.

Proxies are those of the environment (``HTTPS_PROXY``, ``NO_PROXY`` ...), logins come from the URL or from netrc
(``$NETRC``, else ``~/.netrc``), certificates are checked against ``SSL_CERT_FILE`` and ``SSL_CERT_DIR``, else the
system's, unless `Trust` says otherwise. A redirect that leaves the server is followed without the login. URLs may be
addresses (`core.secrets`): their secrets are inserted here.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import netrc
import os
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import replace
from email.message import Message
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from stackyard.core import secrets
from stackyard.core.errors import StackyardError
from stackyard.host.net.trust import LOGIN_HINT, PLAIN, Trust

T = TypeVar("T")

TRIES = 3
"""How often a transfer is tried, where its failure is transient."""
PAUSE_S = 0.5
"""Seconds before the second attempt; doubled before each further one."""
LONGEST_PAUSE_S = 10.0
"""The longest ``Retry-After`` of a server that is observed."""

FAILURES = (OSError, ValueError, http.client.HTTPException)
"""What `open_url`, and reading from what it opened, may raise."""

_TRANSIENT_STATUS = frozenset({408, 429, 500, 502, 503, 504})
_TRANSIENT = (
    TimeoutError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError,
    http.client.IncompleteRead, http.client.BadStatusLine,
)  # fmt: skip
_DEFAULT_PORTS = {"http": 80, "https": 443}


def get(url: str, use: Callable[[Any], T], *, timeout_s: float, trust: Trust = PLAIN) -> T:
    """The result of `use` for the body at a URL (``http``, ``https`` or ``file``); retried as by `retried`.

    Args:
        use: reads the open stream to its end. It may be called again, so it must discard earlier data.
        timeout_s: seconds without any data until an attempt fails.

    Raises:
        StackyardError: what failed and why; `__cause__` is the original error.
    """

    def attempt() -> T:
        with open_url(url, "GET", timeout_s, trust) as stream:
            value = use(stream)
            require_whole(stream)
            return value

    try:
        return retried(attempt)
    except FAILURES as error:
        refused = isinstance(error, urllib.error.HTTPError) and error.code in (401, 403)
        message = f"cannot read {secrets.redacted(url)}: {explain(error)}"
        raise StackyardError(message, hint=LOGIN_HINT if refused else None) from error


def read(url: str, *, timeout_s: float, trust: Trust = PLAIN) -> bytes:
    """The whole body at a URL. Arguments and errors as for `get`."""
    body: bytes = get(url, lambda stream: stream.read(), timeout_s=timeout_s, trust=trust)
    return body


def retried(attempt: Callable[[], T]) -> T:
    """The result of `attempt`, after at most `TRIES` attempts.

    Only a transient failure is tried again (no answer in time, a connection that breaks, status 408, 429, 500, 502, 503
    or 504), after a pause that doubles or that the server asks for. Raises what the last attempt raised.
    """
    for number in range(1, TRIES):
        try:
            return attempt()
        except FAILURES as error:
            if not is_transient(error):
                raise
            time.sleep(_pause_s(error, number))
    return attempt()


def open_url(url: str, method: str, timeout_s: float, trust: Trust = PLAIN) -> Any:
    """An open response, after one attempt; raises one of `FAILURES`, for `explain`."""
    request = _request(method, url, {"User-Agent": "stackyard"})
    remote = () if request.type == "file" else _handlers(request.full_url, trust)
    return urllib.request.build_opener(_Redirects(), *remote).open(request, timeout=timeout_s)


class _RawResponses(urllib.request.HTTPRedirectHandler, urllib.request.HTTPErrorProcessor):
    """Neither follows redirects nor raises errors for a status."""

    def http_response(self, request: Any, response: Any) -> Any:
        return response

    https_response = http_response


def exchange(
    method: str, url: str, headers: Mapping[str, str], body: bytes | None, timeout_s: float, trust: Trust
) -> Any:
    """Forward one request unchanged; returns the open response, whatever its status. Raises one of `FAILURES`."""
    request = _request(method, url, headers, body)
    opener = urllib.request.build_opener(_RawResponses(), *_handlers(request.full_url, trust))
    return opener.open(request, timeout=timeout_s)


def _request(method: str, url: str, headers: Mapping[str, str], body: bytes | None = None) -> urllib.request.Request:
    """A request with the login that belongs to the address."""
    plain, authorization = _login(url)
    if urlsplit(plain).scheme not in ("http", "https", "file"):
        raise ValueError(f"unsupported URL: {secrets.redacted(url)}")
    request = urllib.request.Request(plain, data=body, method=method, headers=dict(headers))
    if authorization:
        request.add_unredirected_header("Authorization", authorization)
    return request


def _handlers(url: str, trust: Trust) -> tuple[urllib.request.BaseHandler, ...]:
    """The handlers that reach the server of a URL."""
    proxies = {"http": trust.proxy, "https": trust.proxy} if trust.proxy else None
    return urllib.request.ProxyHandler(proxies), _Https(urlsplit(url).hostname, trust)


class _Https(urllib.request.HTTPSHandler):
    """Skips the certificate check of at most one host, not of hosts to which it redirects."""

    def __init__(self, host: str | None, trust: Trust) -> None:
        super().__init__(context=_context(trust, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")))
        self._host, self._trust = host, trust

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Open a connection; by a proxy, which is the request's host then, to the host behind the tunnel."""
        host = urlsplit(f"//{getattr(req, '_tunnel_host', None) or req.host}").hostname
        if self._trust.insecure and host != self._host:
            return _Https(host, replace(self._trust, insecure=False)).https_open(req)
        return super().https_open(req)


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed a moment later."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code in _TRANSIENT_STATUS
    reason = _reason(error)
    if isinstance(reason, socket.gaierror):
        return reason.errno == socket.EAI_AGAIN
    return isinstance(reason, _TRANSIENT)


def explain(error: BaseException) -> str:
    """The cause of a failed transfer in plain words."""
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP status {error.code} {error.reason}".rstrip()
    reason = _reason(error)
    if isinstance(reason, socket.gaierror):
        return f"cannot resolve the hostname ({reason.strerror})"
    if isinstance(reason, ConnectionRefusedError):
        return "connection refused"
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"certificate verification failed: {reason.verify_message}"
    if isinstance(reason, ssl.SSLError):
        return f"TLS error: {reason.reason or reason}"
    if isinstance(reason, TimeoutError):
        return "timed out"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror.lower()
    return str(reason) or type(reason).__name__


def _reason(error: BaseException) -> object:
    """The connection's error, which urllib wraps."""
    return error.reason if isinstance(error, urllib.error.URLError) else error


def _pause_s(error: BaseException, attempt: int) -> float:
    """Seconds before the next attempt: by the server's header, else doubling each time."""
    delay = error.headers.get("Retry-After", "") if isinstance(error, urllib.error.HTTPError) else ""
    pause_s: float = PAUSE_S * 2 ** (attempt - 1)
    return min(float(delay), LONGEST_PAUSE_S) if delay.isdigit() else pause_s


def require_whole(stream: Any) -> None:
    """Raise IncompleteRead if the connection ended before the announced length, which urllib ignores."""
    left = getattr(stream, "length", None)
    if left:
        raise http.client.IncompleteRead(b"", left)


@lru_cache(maxsize=16)
def _context(trust: Trust, *_: str | None) -> ssl.SSLContext:
    """An SSL context for these files and variables, cached, since loading a bundle takes longer than a request."""
    cafile = trust.cafile
    if cafile and not Path(cafile).exists():
        raise ValueError(f"CA bundle not found: {cafile}")
    inside = Path(cafile).is_dir()
    context = ssl.create_default_context(
        cafile=cafile if cafile and not inside else None, capath=cafile if cafile and inside else None
    )
    if trust.client_cert:
        context.load_cert_chain(trust.client_cert)
    if trust.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


# --------------------------------------------------------------------------- logins


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects; the login is kept only within the same server."""

    def http_error_308(self, req: Any, fp: Any, code: int, msg: str, headers: Any) -> Any:
        """Follow it like 307, which Python 3.10 does not do by itself."""
        return self.http_error_302(req, fp, code, msg, headers)

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request:
        """The request for the redirect's target, with the same method."""
        target = re.sub(r"^(\w+://)[^/?#]*@", r"\1", newurl)
        if urlsplit(target).scheme not in _DEFAULT_PORTS:
            raise urllib.error.HTTPError(req.full_url, code, f"redirect to {secrets.redacted(target)}", headers, fp)
        request = urllib.request.Request(target, method=req.get_method(), headers={"User-Agent": "stackyard"})
        authorization = req.get_header("Authorization")
        if authorization and _keeps_login(urlsplit(req.full_url), urlsplit(target)):
            request.add_unredirected_header("Authorization", authorization)
        return request


def _keeps_login(old: SplitResult, new: SplitResult) -> bool:
    """Whether a redirect stays on the server: same scheme, host and port, or from http to https on the usual ports."""
    upgrade = (old.scheme, _port(old), new.scheme, _port(new)) == ("http", 80, "https", 443)
    return old.hostname == new.hostname and (upgrade or (old.scheme, _port(old)) == (new.scheme, _port(new)))


def _port(parts: SplitResult) -> int:
    return parts.port or _DEFAULT_PORTS[parts.scheme]


def _login(url: str) -> tuple[str, str]:
    """The URL of an address, and the Authorization header for it: of the login that belongs to it, else of netrc's."""
    plain, login = secrets.reached(url)
    if login is None or not login[1]:
        known = _netrc_login(urlsplit(plain))
        login = known if known and (login is None or login[0] == known[0]) else login
    login = login or secrets.login_of_server(plain)
    if login is None:
        return plain, ""
    return plain, f"Basic {base64.b64encode(':'.join(login).encode()).decode()}"


def _netrc_login(parts: SplitResult) -> secrets.Login | None:
    if not parts.hostname or parts.scheme not in _DEFAULT_PORTS:
        return None
    with contextlib.suppress(OSError, netrc.NetrcParseError):
        login = netrc.netrc(os.environ.get("NETRC") or None).authenticators(parts.hostname)
        if login:
            return login[0], login[2] or ""
    return None
