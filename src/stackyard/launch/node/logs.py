"""The logs of a node's ranks, and the agent's own: one thread accesses all files on the shared file system.

The file system may stall for minutes or be full. So the agent's loop only queues requests and receives results: nothing
here blocks it, and no error here ends it. Part of the agent: any Python from 3.6 on, standard library alone, few
imports (see `stackyard.launch.node.agent`).
"""
# ruff: noqa: PTH116, PTH118, PTH123

import _thread
import collections
import contextlib
import os
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TAIL_LINES, STACK_LINES = 40, 30
"""Lines of a failed rank's log that go to the hub, and of the stack of a crash."""
TAIL_BYTES = 1 << 16
FATAL, CRASHED = "Fatal Python error: ", "Current thread 0x"
"""What Python's faulthandler writes first, and before the stack of the thread that crashed, among all others."""
READ_MOST = 1 << 18
"""Bytes read from a log at a time, and kept for the hub at most before reading goes on."""
FIRST_LOOK_S, LOOK_S, QUIET_LOOK_S = 0.03, 0.1, 0.5
"""Seconds between two looks at the logs: until the first output, while they are streamed, while they are not."""
BUSY_S = 10.0
"""When no log has grown for so long, all are looked at like those that are not streamed."""


class Log:
    """The log of one rank, read incrementally."""

    def __init__(self, path: "str", streamed: "bool") -> "None":
        self.path, self.streamed = path, streamed
        self.size = self.read_to = 0
        self._rest, self._rest_since = b"", 0.0

    def look(self) -> "bool":
        """Read the length of the file; whether it has grown."""
        before = self.size
        with contextlib.suppress(OSError):
            self.size = os.stat(self.path).st_size
        return self.size > before

    @property
    def unread(self) -> "int":
        """Bytes that `text` has not returned yet."""
        return max(0, self.size - self.read_to) + len(self._rest)

    def text(self, everything: "bool" = False) -> "str":
        """New output in whole lines; an incomplete line (a progress bar) after half a second, or at the end."""
        if self.size <= self.read_to and not self._rest:
            return ""
        if self.size > self.read_to:
            new = _read(self.path, self.read_to, READ_MOST)
            self.read_to += len(new)
            self._rest, self._rest_since = self._rest + new, time.monotonic()
        cut = self._rest.rfind(b"\n") + 1
        if everything or time.monotonic() - self._rest_since > 0.5 or len(self._rest) >= READ_MOST:
            cut = len(self._rest)
        text, self._rest = self._rest[:cut], self._rest[cut:]
        return text.decode("utf-8", "replace")

    def tail(self) -> "list[str]":
        """The last lines; for a crash of Python the stack of the crashed thread, even if other lines follow."""
        self.look()
        return _last(
            _read(self.path, max(0, self.size - TAIL_BYTES), TAIL_BYTES).decode("utf-8", "replace").splitlines()
        )


class Logs:
    """The agent's interface to the thread; every method returns at once.

    `own` is the agent's own log.

    Results are in `found`, as (kind, task, value), and `ready` becomes readable then: ``output`` (a text), ``grew`` (a
    log has new output that is not streamed), ``end`` (the last lines of a rank that has ended).
    """

    def __init__(self, own: "str", sizes_s: "float") -> "None":
        self.found = collections.deque()  # type: collections.deque[tuple[str, int, Any]]
        self.ready, self._wake = os.pipe()
        self._asked, self._ask = os.pipe()
        for end in (self.ready, self._wake, self._asked, self._ask):
            os.set_blocking(end, False)
        self._wishes = collections.deque()  # type: collections.deque[tuple[Any, ...]]
        self._own = own
        self._logs = {}  # type: dict[int, Log]
        self._held = self._first = self._hurry = False
        self._grown = time.monotonic()
        self._sizes_s, self._next_sizes = sizes_s, 0.0
        _thread.start_new_thread(self._run, ())

    # called by the loop

    def watch(self, task: "int", path: "str", streamed: "bool") -> "None":
        """Follow the log of a rank from now on."""
        self._wish(self._begin, task, path, streamed)

    def hurry(self) -> "None":
        """Check more often until the first output: the ranks start now."""
        self._wish(self._begin_to_hurry)

    def hold(self, is_held: "bool") -> "None":
        """Pause reading until the hub has received the present output."""
        self._held = is_held

    def end(self, task: "int", tail: "bool") -> "None":
        """Report the rest of a rank's output, with its last lines if `tail`."""
        self._wish(self._finish, task, tail)

    def write(self, text: "str") -> "None":
        """Write a line to the agent's own log; the file is created with the first line."""
        self._wish(_append, self._own, "{} {}\n".format(time.strftime("%H:%M:%S"), text))

    @property
    def unshown(self) -> "int":
        """Bytes of output to stream that are not read yet."""
        return sum(log.unread for log in list(self._logs.values()) if log.streamed)

    def take(self) -> "list[tuple[str, int, Any]]":
        """The results since the last call."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.ready, 65536)
        return [self.found.popleft() for _ in range(len(self.found))]

    def drain(self, limit_s: "float") -> "None":
        """Wait until all requests are done, at most `limit_s`."""
        done = _thread.allocate_lock()
        done.acquire()
        self._wish(done.release)
        done.acquire(True, limit_s)

    def _wish(self, *what: "Any") -> "None":
        self._wishes.append(what)
        with contextlib.suppress(BlockingIOError):
            os.write(self._ask, b".")

    # in the thread

    def _run(self) -> "None":
        while True:
            try:
                self._turn()
            except Exception as error:
                self._tell("error", -1, repr(error))

    def _turn(self) -> "None":
        select.select([self._asked], [], [], self._pause())
        with contextlib.suppress(BlockingIOError):
            os.read(self._asked, 65536)
        while self._wishes:
            what, *arguments = self._wishes.popleft()
            what(*arguments)
        self._look()

    def _pause(self) -> "float":
        busy = time.monotonic() < self._grown + BUSY_S
        if busy and self._hurry and not self._first:
            return FIRST_LOOK_S
        if busy and any(log.streamed for log in self._logs.values()):
            return LOOK_S
        return QUIET_LOOK_S if not self._first or not self._sizes_s else self._sizes_s

    def _begin_to_hurry(self) -> "None":
        self._hurry, self._grown = True, time.monotonic()

    def _look(self) -> "None":
        now = time.monotonic()
        sizes = not self._first or (self._sizes_s and now >= self._next_sizes)
        seen = set()  # type: set[str]
        for task, log in self._logs.items():
            if log.path in seen:
                continue  # all ranks of a node may have one log
            seen.add(log.path)
            if (log.streamed or sizes) and log.look():
                self._first, self._grown = True, now
                if not log.streamed:
                    self._tell("grew", task, log.size)
            if log.streamed:
                self._stream(task, log)
        if sizes:
            self._next_sizes = now + self._sizes_s

    def _stream(self, task: "int", log: "Log") -> "None":
        while not self._held:
            text = log.text()
            if not text:
                return
            self._tell("output", task, text)

    def _measure(self) -> "None":
        """Measure the size of unread output while reading is paused."""
        for log in self._logs.values():
            log.look()

    def _begin(self, task: "int", path: "str", streamed: "bool") -> "None":
        self._logs[task] = Log(path, streamed)

    def _finish(self, task: "int", tail: "bool") -> "None":
        log = self._logs[task]
        log.look()
        while log.streamed:
            text = log.text(True)
            if not text:
                break
            self._tell("output", task, text)
            while self._held:
                time.sleep(LOOK_S)
                self._measure()
        del self._logs[task]
        self._tell("end", task, log.tail() if tail else [])

    def _tell(self, kind: "str", task: "int", value: "Any") -> "None":
        self.found.append((kind, task, value))
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake, b".")


def log_path(file: "dict[str, Any]", directory: "str", private: "str", node: "int", task: "int") -> "str":
    """The file for the output of a task's shim: in the logs of the step or the node's own directory."""
    if file["logs"] == "node" and task:
        return os.path.join(directory, f"node-{node:05d}.log")
    return os.path.join(private if file["logs"] == "first" and task else directory, f"rank-{task:05d}.log")


def _last(lines: "list[str]") -> "list[str]":
    fatal = next((i for i, line in enumerate(lines) if line.startswith(FATAL)), len(lines))
    at = next((i for i in range(fatal, len(lines)) if lines[i].startswith(CRASHED)), 0)
    if not at:
        return lines[-TAIL_LINES:]
    end = next((i for i in range(at + 1, len(lines)) if not lines[i].startswith("  ")), len(lines))
    stack = [lines[fatal], *lines[at:end][:STACK_LINES]]
    return lines[max(0, fatal + len(stack) - TAIL_LINES) : fatal] + stack


def _read(path: "str", start: "int", most: "int") -> "bytes":
    """A part of a file; empty if it cannot be read."""
    try:
        with open(path, "rb") as stream:
            stream.seek(start)
            return stream.read(most)
    except OSError:
        return b""


def _append(path: "str", line: "str") -> "None":
    with contextlib.suppress(OSError), open(path, "a") as stream:
        stream.write(line)
