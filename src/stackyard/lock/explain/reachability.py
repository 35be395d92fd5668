"""Checks the reachability of channels and indexes: all at once, before a solver waits for them one by one.

A solver retries a dead host for minutes and then names an internal URL; this names the channel and the cause within
seconds. If the solver is a separate program, like uv, they are checked only if it takes long (`Watch`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from stackyard.core.errors import StackyardError, Where
from stackyard.core.late import dataclass
from stackyard.host.net.trust import PLAIN, Trust

PATIENCE_S = 0.7
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
    trust: Trust = PLAIN
    where: Where | None = None

    @property
    def is_local(self) -> bool:
        """Whether it is a file or a directory of this machine."""
        return urlsplit(self.url).scheme in ("", "file")


class Watch:
    """Called while a program reads from the targets: raises if one is unreachable while the program still waits.

    A program with cached or quick answers needs no check, so no request is sent within the first `PATIENCE_S`. Files
    and directories are checked before.

    Raises:
        StackyardError: as for `check`.
    """

    def __init__(self, targets: Sequence[Target]) -> None:
        check([target for target in targets if target.is_local])
        self._targets = [target for target in targets if not target.is_local]
        self._from = time.monotonic() + PATIENCE_S
        self._thread: threading.Thread | None = None
        self._error: StackyardError | None = None

    def __call__(self) -> None:
        """Raise the error that was found; start the check once `PATIENCE_S` is over."""
        if time.monotonic() >= self._from:
            self._begin()
        if self._error:
            raise self._error

    def require(self) -> None:
        """Raise now if a target is unreachable: the program failed, and this may be the cause."""
        self._begin().join()
        self()

    def _begin(self) -> threading.Thread:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        return self._thread

    def _run(self) -> None:
        try:
            check(self._targets)
        except StackyardError as error:
            self._error = error


def check(targets: Sequence[Target], deadline_s: float = DEADLINE_S) -> None:
    """Check all targets at once.

    Raises:
        StackyardError: at least one cannot be reached; the message names each with its cause. Takes at most
            `deadline_s` seconds, even if the resolver or a firewall hangs.
    """
    causes: dict[int, str | None] = {}
    threads = [
        threading.Thread(target=lambda n=n, t=t: causes.__setitem__(n, _cause(t)), daemon=True)
        for n, t in enumerate(targets)
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + deadline_s
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    late = f"timed out after {deadline_s:g} s"
    failed = [(t, causes.get(n, late)) for n, t in enumerate(targets) if causes.get(n, late) is not None]
    if failed:
        raise _error([(t, str(cause)) for t, cause in failed])


def _cause(target: Target) -> str | None:
    """Why a target does not answer, or None. A dead host is tried only once."""
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
        path = Path(unquote(parts.path))
        return (None if path.exists() else f"no such file or directory: {_missing_part(path)}"), True
    from urllib.error import HTTPError

    from stackyard.host.net import http  # late: uv asks most indexes by itself

    try:
        http.retried(lambda: http.open_url(url, "HEAD", TIMEOUT_S, target.trust).close())
    except HTTPError as error:
        answered = error.code in (401, 403, 405, 501) or (error.code == 404 and target.missing_ok)
        return (None if answered else http.explain(error)), error.code == 404
    except http.FAILURES as error:
        return http.explain(error), False
    return None, False


def _missing_part(path: Path) -> Path:
    """The first directory of a path that does not exist, which is probably mistyped."""
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
