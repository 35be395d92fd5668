"""The one door to HTTP: proxies of the environment, the user's netrc, certificates, and causes in plain words."""

from __future__ import annotations

import base64
import contextlib
import http.client
import netrc
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from stackyard.errors import StackyardError
from stackyard.host.secrets import without_secrets


@contextlib.contextmanager
def opened(
    url: str, *, timeout_s: float, method: str = "GET", cafile: str = "", insecure: bool = False
) -> Iterator[Any]:
    """Open a URL with the proxies of the environment, the user's netrc and a CA file.

    Raises:
        StackyardError: with the cause in plain words; `__cause__` is the original error.
    """
    try:
        with open_url(url, method, timeout_s, cafile, insecure) as stream:
            yield stream
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise StackyardError(f"cannot read {without_secrets(url)}: {explain(error)}") from error


def explain(error: BaseException) -> str:
    """The cause of a failed connection in plain words."""
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code} {error.reason}"
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, socket.gaierror):
        return f"the host name is not known ({reason.strerror})"
    if isinstance(reason, ConnectionRefusedError):
        return "connection refused"
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({reason.verify_message})"
    if isinstance(reason, ssl.SSLError):
        return f"no secure connection ({reason.reason or reason})"
    if isinstance(reason, TimeoutError):
        return "no answer in time"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror.lower()
    return str(reason) or type(reason).__name__


def open_url(url: str, method: str, timeout_s: float, cafile: str, insecure: bool) -> Any:
    """An open response; raises what urllib raises. `opened` says the cause in words."""
    if urlsplit(url).scheme not in ("http", "https", "file"):
        raise ValueError(f"no way to read {url}")
    context = ssl.create_default_context(cafile=cafile if cafile and Path(cafile).is_file() else None)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    plain, header = _authorization(url)
    request = urllib.request.Request(plain, method=method, headers={"User-Agent": "stackyard", **header})
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
    return opener.open(request, timeout=timeout_s)


def _authorization(url: str) -> tuple[str, dict[str, str]]:
    """The URL without a password in it, and the header that carries it, from the URL or from netrc."""
    parts = urlsplit(url)
    user, password = parts.username, parts.password or ""
    plain = url
    if user is not None:
        plain = urlunsplit(parts._replace(netloc=parts.netloc.rsplit("@", 1)[1]))
        user, password = unquote(user), unquote(password)
    elif parts.hostname and parts.scheme in ("http", "https"):
        with contextlib.suppress(OSError, netrc.NetrcParseError):
            found = netrc.netrc().authenticators(parts.hostname)
            if found:
                user, password = found[0], found[2] or ""
    if user is None:
        return plain, {}
    token = base64.b64encode(f"{user}:{password}".encode()).decode()
    return plain, {"Authorization": f"Basic {token}"}
