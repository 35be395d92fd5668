"""Processes of a test cluster: which run in a network namespace, and how all of them are ended."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from stackyard.core.errors import StackyardError
from stackyard.host.run.command import run

KILL_S = 30


def wait_for(good: Callable[[], object], timeout_s: float = 60, said: Callable[[], object] = lambda: "") -> None:
    """Wait until something holds; where it does not in time the test fails with what `said` returns."""
    until = time.monotonic() + timeout_s
    while not good():
        assert time.monotonic() < until, f"waited {timeout_s:g} s in vain; {said()}"
        time.sleep(0.02)


def kill_daemon(pid_file: Path, directory: Path) -> None:
    """End a daemon of this machine, if the process of that number is still the one that was started here."""
    with contextlib.suppress(OSError, ValueError):
        pid = int(pid_file.read_text())
        if str(directory) in command_line(pid) + Path(f"/proc/{pid}/environ").read_text(errors="replace"):
            os.kill(pid, signal.SIGKILL)


def kill_all(namespace: str) -> None:
    """SIGKILL to everything in a namespace, until nothing is left."""
    until = time.monotonic() + KILL_S
    while left := pids(namespace):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > until:
            raise StackyardError(f"processes of {namespace} do not end: {left}")
        time.sleep(0.02)


def pids(namespace: str, name: str = "") -> list[int]:
    """What runs in a network namespace; with `name` only command lines that hold it."""
    found = [int(word) for word in run(["ip", "netns", "pids", namespace]).stdout.split()]
    return [pid for pid in found if name in command_line(pid)] if name else found


def command_line(pid: int) -> str:
    """The words of a process, or nothing when it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def image_servers(place: Path) -> list[int]:
    """The file system servers of an image, or of all images below a directory."""
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                words = (directory / "cmdline").read_text(errors="surrogateescape").split("\0")
            except OSError:
                continue
            if words[0].endswith("squashfuse_ll") and any(Path(word).is_relative_to(place) for word in words[1:]):
                found.append(int(directory.name))
    return found


def end_image_servers(place: Path) -> None:
    """Kill them, and wait until they have gone."""
    for pid in image_servers(place):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not image_servers(place), 60)
