"""One writer per yard at a time, by a lease file: on shared file systems fcntl locks can hang or lie, O_EXCL does not.

The file names its owner and is touched while the work goes on. A lease is stale when its owner ran on this host and no
longer exists, or when it was not touched for `STALE_AFTER_S`; it is then taken over.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from stackyard.errors import StackyardError
from stackyard.yard.layout import Yard

STALE_AFTER_S = 300.0
RENEW_EVERY_S = 30.0


@contextmanager
def lease(yard: Yard, *, wait_s: float = 3600, on_wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold write access to a yard.

    Args:
        wait_s: seconds to wait for another writer.
        on_wait: called once, with a description of the owner, where there is one.

    Raises:
        StackyardError: the yard cannot be created or written to, or another writer held it for `wait_s`.
    """
    path = yard.lease
    _writable(yard)
    mine = _identity()
    _acquire(path, mine, time.monotonic() + wait_s, on_wait)
    stop = threading.Event()
    keeper = threading.Thread(target=_renew, args=(path, stop), daemon=True)
    keeper.start()
    try:
        yield
    finally:
        stop.set()
        if _read(path) == mine:
            path.unlink(missing_ok=True)


def _writable(yard: Yard) -> None:
    try:
        yard.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StackyardError(
            f"cannot create the yard {yard.root}: {error.strerror}",
            hint="choose a directory of your own with --yard or $STACKYARD_HOME",
        ) from error
    if not os.access(yard.root, os.W_OK | os.X_OK):
        raise StackyardError(
            f"cannot write to the yard {yard.root}: permission denied",
            hint="choose a directory of your own with --yard or $STACKYARD_HOME",
        )


def _acquire(path: Path, mine: dict[str, Any], deadline: float, on_wait: Callable[[str], None] | None) -> None:
    reported = False
    while not _create(path, mine):
        owner = _read(path)
        if owner is not None and _stale(path, owner):
            _remove_stale(path, owner)
            continue
        if owner is not None and not reported and on_wait is not None:
            on_wait(_describe(owner))
            reported = True
        if time.monotonic() > deadline:
            raise StackyardError(
                f"another deploy holds the yard: {_describe(owner or {})}",
                hint=f"wait for it; if that process no longer exists, remove {path}",
            )
        time.sleep(0.1)


def _create(path: Path, mine: dict[str, Any]) -> bool:
    """Create the lease file with its content in one step: a hard link to a complete file fails if the name exists."""
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.{threading.get_ident()}")
    temporary.write_text(json.dumps(mine))
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _identity() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": _start_time(os.getpid()),
        "since": time.time(),
        "user": os.environ.get("USER", str(os.getuid())),
    }


def _start_time(pid: int) -> str:
    """The start time of a process in the kernel: its number alone may belong to another process by now."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return ""


def _stale(path: Path, owner: dict[str, Any]) -> bool:
    if owner.get("host") == socket.gethostname():
        return not owner.get("started") or _start_time(int(owner["pid"])) != owner["started"]
    try:
        return time.time() - path.stat().st_mtime > STALE_AFTER_S
    except FileNotFoundError:
        return False


def _remove_stale(path: Path, owner: dict[str, Any]) -> None:
    """Move the stale file away; if that caught a fresh one of another writer, put it back."""
    aside = path.with_name(f".{path.name}.stale.{os.getpid()}.{threading.get_ident()}")
    with suppress(FileNotFoundError):
        os.rename(path, aside)
        if _read(aside) != owner:
            with suppress(FileExistsError):
                os.link(aside, path)
        aside.unlink(missing_ok=True)


def _renew(path: Path, stop: threading.Event) -> None:
    while not stop.wait(RENEW_EVERY_S):
        with suppress(OSError):
            os.utime(path)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        value: dict[str, Any] = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError):
        return None
    return value


def _describe(owner: dict[str, Any]) -> str:
    since = time.strftime("%H:%M:%S", time.localtime(owner.get("since", 0)))
    return f"{owner.get('user', '?')} on {owner.get('host', '?')}, process {owner.get('pid', '?')}, since {since}"
