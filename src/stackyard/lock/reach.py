"""Whether channels and indexes can be reached: all are checked at once, before a solver waits for them one by one.

A solver retries a dead host for minutes and then names an internal URL; this names the channel and the cause within
seconds.
"""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from stackyard.errors import StackyardError, Where
from stackyard.host import http

TIMEOUT_S = 5.0
DEADLINE_S = 8.0


@dataclass(frozen=True)
class Target:
    """A channel or an index that must answer.

    Attributes:
        label: the user's name for it, e.g. ``channel conda-forge``.
        url: its address, shown with the label.
        tries: URLs of which one must answer; any answer counts where `missing_ok`.
        missing_ok: status 404 counts as an answer too: the server is up and lacks this one file.
        where: the line that named it.
    """

    label: str
    url: str
    tries: tuple[str, ...]
    missing_ok: bool = False
    trust: http.Trust = http.PLAIN
    where: Where | None = None


def check(targets: Sequence[Target], deadline_s: float = DEADLINE_S) -> None:
    """Check all targets at once.

    Raises:
        StackyardError: at least one cannot be reached; the message names each with its cause. Takes at most
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
    late = f"timed out after {deadline_s:g} s"
    failed = [(t, causes.get(n, late)) for n, t in enumerate(targets) if causes.get(n, late) is not None]
    if failed:
        raise _error([(t, str(cause)) for t, cause in failed])


class _Deadline:
    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        return max(0.0, self._end - time.monotonic())


def _cause(target: Target) -> str | None:
    """Why a target does not answer, or None. A dead host is tried once only."""
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
    """Why a URL does not answer, and whether only this file is missing there."""
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        path = Path(urllib.request.url2pathname(parts.path))
        return (None if path.exists() else f"no such file or directory: {_missing_part(path)}"), True
    try:
        http.retried(lambda: http.open_url(url, "HEAD", TIMEOUT_S, target.trust).close())
    except urllib.error.HTTPError as error:
        answered = error.code in (401, 403, 405, 501) or (error.code == 404 and target.missing_ok)
        return (None if answered else http.explain(error)), error.code == 404
    except http.FAILURES as error:
        return http.explain(error), False
    return None, False


def _missing_part(path: Path) -> Path:
    """The first directory of a path that does not exist, which is what was mistyped."""
    gone = path
    while not gone.parent.exists():
        gone = gone.parent
    return gone


def _error(failed: Sequence[tuple[Target, str]]) -> StackyardError:
    first = failed[0][0]
    lines = [
        f"{f'{t.where}: ' if t.where and t.where != first.where else ''}{t.label} ({t.url}) cannot be reached: {cause}"
        for t, cause in failed
    ]
    return StackyardError(
        "; ".join(lines),
        where=first.where,
        hint="check the URL and the network, name a mirror in site.yaml, or use a lock made where it can be reached",
    )
