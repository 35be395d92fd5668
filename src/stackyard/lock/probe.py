"""Whether channels and indexes can be reached, asked of all at once before a solver waits for them one by one.

A solver tries a dead host for minutes and then names an internal URL; this names the channel and the cause in seconds.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import netrc
import re
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from stackyard.errors import InputError, StackyardError, Where

TIMEOUT_S = 5.0
DEADLINE_S = 8.0


@dataclass(frozen=True)
class Target:
    """Something that must answer.

    Attributes:
        label: how the user calls it, e.g. ``channel conda-forge``.
        url: what it stands for; shown with the label, without any password.
        tries: URLs of which one must answer; any answer counts where `missing_ok`.
        missing_ok: a 404 says that the server is there and knows nothing of this file, which is an answer too.
        where: the line that named it.
    """

    label: str
    url: str
    tries: tuple[str, ...]
    missing_ok: bool = False
    cafile: str = ""
    insecure: bool = False
    where: Where | None = None


def check(targets: Sequence[Target], deadline_s: float = DEADLINE_S) -> None:
    """Ask all targets at once.

    Raises:
        StackyardError: at least one cannot be reached; the message names each with its cause. Never takes longer than
            `deadline_s` seconds, whatever the resolver or a firewall does.
    """
    causes: dict[int, str | None] = {}
    threads = [
        threading.Thread(target=lambda n=n, t=t: causes.__setitem__(n, _cause(t)), daemon=True)
        for n, t in enumerate(targets)
    ]
    for thread in threads:
        thread.start()
    timer = _Deadline(deadline_s)
    for thread in threads:
        thread.join(timer.left())
    late = f"no answer within {deadline_s:g} s"
    failed = [(t, causes.get(n, late)) for n, t in enumerate(targets) if causes.get(n, late) is not None]
    if failed:
        raise _error([(t, str(cause)) for t, cause in failed])


def without_secrets(url: str) -> str:
    """A URL as it may be shown: user name and password replaced by ``***``."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc="***@" + parts.netloc.rsplit("@", 1)[1]))


def without_login(url: str) -> str:
    """A URL as it goes into a lock: without user name and password, which netrc has for those who may use it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rsplit("@", 1)[1]))


def revealed(url: str, environ: Mapping[str, str]) -> str:
    """A locked URL as it is fetched: ``${NAME}`` replaced, which stands where a lock would hold a variable's value.

    Raises:
        InputError: it names a variable that is not set here.
    """

    def value(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in environ:
            raise InputError(f"{url} needs the variable {name}, which is not set", hint=f"export {name}=...")
        return environ[name]

    return re.sub(r"\$\{([A-Za-z_]\w*)\}", value, url)


@contextlib.contextmanager
def opened(
    url: str, *, timeout_s: float, method: str = "GET", cafile: str = "", insecure: bool = False
) -> Iterator[Any]:
    """Open a URL with the proxies of the environment, the user's netrc and a CA file.

    Raises:
        StackyardError: with the cause in plain words; `__cause__` is the original error.
    """
    try:
        with _open(url, method, timeout_s, cafile, insecure) as stream:
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


class _Deadline:
    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        return max(0.0, self._end - time.monotonic())


def _cause(target: Target) -> str | None:
    """Why a target does not answer, or None. A host that is dead is asked once only."""
    first = None
    for url in target.tries:
        cause, missing = _try(target, url)
        if cause is None:
            return None
        first = first or cause
        if not missing:
            return cause
    return first


def _try(target: Target, url: str) -> tuple[str | None, bool]:
    """Why a URL does not answer, and whether it is only the file that is missing there."""
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        path = Path(urllib.request.url2pathname(parts.path))
        return (None if path.exists() else f"there is no {_missing_part(path)}"), True
    try:
        with _open(url, "HEAD", TIMEOUT_S, target.cafile, target.insecure):
            return None, False
    except urllib.error.HTTPError as error:
        answered = error.code in (401, 403, 405, 501) or (error.code == 404 and target.missing_ok)
        return (None if answered else explain(error)), error.code == 404
    except (OSError, ValueError, http.client.HTTPException) as error:
        return explain(error), False


def _missing_part(path: Path) -> Path:
    """The first folder of a path that is not there, which is what the user mistyped."""
    gone = path
    while not gone.parent.exists():
        gone = gone.parent
    return gone


def _open(url: str, method: str, timeout_s: float, cafile: str, insecure: bool) -> Any:
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


def _error(failed: Sequence[tuple[Target, str]]) -> StackyardError:
    first = failed[0][0]
    lines = [
        f"{f'{t.where}: ' if t.where and t.where != first.where else ''}"
        f"{t.label} ({without_secrets(t.url)}) cannot be reached: {cause}"
        for t, cause in failed
    ]
    return StackyardError(
        "; ".join(lines),
        where=first.where,
        hint="check the URL and the network, name a mirror in site.yaml, or use a lock made where it can be reached",
    )
