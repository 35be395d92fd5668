"""Processes of this node from /proc: their descendants, whether they still run, whether they handle a signal.

Part of the agent: any Python from 3.6 on, standard library alone, few imports (see `stackyard.launch.node.agent`).
"""
# ruff: noqa: PTH110, PTH123

import contextlib
import os
import signal
import time

from stackyard.launch.node.machine import listed, slurp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any


def stat(pid: "int") -> "tuple[str, int, int] | None":
    """State letter, parent and start time of a process (proc(5)), or None. A pid and a start time are unique."""
    text = slurp(f"/proc/{pid}/stat")
    words = text[text.rfind(")") + 2 :].split()
    return (words[0], int(words[1]), int(words[19])) if len(words) > 19 else None


def alive(pid: "int", born: "int") -> "bool":
    """Whether this process still runs: same pid and start time, and not a zombie."""
    now = stat(pid)
    return now is not None and now[2] == born and now[0] not in "ZX"


def children(pid: "int") -> "list[int]":
    """Direct children of all threads of a process, without this agent, a child of local task 0's shim.

    Where the kernel keeps no list of children (CONFIG_PROC_CHILDREN), the parents of all processes are read.
    """
    tasks, own = listed(f"/proc/{pid}/task"), os.getpid()
    if tasks and not os.path.exists(f"/proc/self/task/{own}/children"):
        every = ((int(name), stat(int(name))) for name in listed("/proc") if name.isdigit())
        return [child for child, status in every if status is not None and status[1] == pid and child != own]
    words = (word for task in tasks for word in slurp(f"/proc/{pid}/task/{task}/children").split())
    return [child for child in map(int, words) if child != own]


def descendants(pid: "int") -> "Iterator[tuple[int, int]]":
    """(pid, start time) of everything below a process that still runs, parents first."""
    queue = children(pid)
    while queue:
        child = queue.pop(0)
        status = stat(child)
        if status is not None and status[0] not in "ZX":
            yield child, status[2]
            queue.extend(children(child))


def catches(pid: "int", number: "int") -> "bool":
    """Whether a process has a handler for a signal (SigCgt of /proc/<pid>/status)."""
    for line in slurp(f"/proc/{pid}/status").splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def marked(*marks: "bytes") -> "Iterator[tuple[int, int]]":
    """Processes of this user with all these variables (``NAME=value``) in their environment: the ranks' orphans."""
    for name in listed("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as stream:
                environ = stream.read().split(b"\0")
        except OSError:
            continue
        status = stat(int(name)) if all(mark in environ for mark in marks) else None
        if status is not None and status[0] not in "ZX":
            yield int(name), status[2]


def send_signal(pid: "int", number: "int") -> "None":
    """Signal a process that may have ended already."""
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def beside(words: "list[str]", environ: "dict[str, str]", log: "str") -> "Any":
    """Start the helper program of a backend in a new session; both streams go to `log` if it is writable."""
    import subprocess

    with _appended(log) as out:
        return subprocess.Popen(
            words, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )


def _appended(log: "str") -> "Any":
    try:
        return open(log, "ab")
    except OSError:
        return open(os.devnull, "ab")


def end_rest(directory: "str", but: "set[int]", sidecar: "Any", log: "Callable[[str], None]") -> "None":
    """Send SIGTERM, a second later SIGKILL, to the ranks' remaining processes (`marked`) and to the helper program."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + 1
        left = {pid: born for pid, born in marked(f"STACKYARD_DIR={directory}".encode()) if pid not in but}
        if sidecar is not None and sidecar.poll() is None:
            left[sidecar.pid] = (stat(sidecar.pid) or ("", 0, 0))[2]
        if left:
            log(f"signal {number} to remaining processes {sorted(left)}")
        for pid in left:
            send_signal(pid, number)
        while time.monotonic() < until and any(alive(pid, born) for pid, born in left.items()):
            time.sleep(0.02)
            if sidecar is not None:
                sidecar.poll()
