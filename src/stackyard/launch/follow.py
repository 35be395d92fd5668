"""Following a run from outside: its phases and the output of its first rank, read from its folder.

Works for a job that waits in a queue, for one that runs, and again after the connection dropped: nothing but the folder
and the scheduler's own answer is needed.
"""

from __future__ import annotations

import time
from pathlib import Path

from stackyard.launch.outcome import Listener
from stackyard.launch.paths import RunPaths
from stackyard.launch.record import RunStatus
from stackyard.launch.runs import current_status

ASK_FIRST_S, ASK_MOST_S = 1.0, 30.0
"""How often the scheduler is asked: often at first, then less, since it serves everybody."""


class _Tail:
    """What a file has gained since the last look."""

    def __init__(self, path: Path) -> None:
        self.path, self.offset = path, 0

    def new(self) -> str:
        """Text that came since; empty while there is no file. Starts over where the file was replaced."""
        try:
            size = self.path.stat().st_size
            if size < self.offset:
                self.offset = 0
            if size == self.offset:
                return ""
            with self.path.open("rb") as stream:
                stream.seek(self.offset)
                data = stream.read(1 << 20)
        except OSError:
            return ""
        self.offset += len(data)
        return data.decode("utf-8", "replace")


def follow(paths: RunPaths, listener: Listener, *, logs: tuple[Path, ...] = (), poll_s: float = 0.2) -> RunStatus:
    """Tell `listener` what happens until the run is over; how it ended.

    Args:
        logs: the files shown as output; none: the first rank's log.
    """
    tails = [_Tail(path) for path in logs or (paths.main.rank_log(0),)]
    seen = ""
    ask, asked = ASK_FIRST_S, 0.0
    while True:
        due = time.monotonic() - asked >= ask
        status = current_status(paths, ask=due)
        if due:
            asked, ask = time.monotonic(), min(ask * 1.3, ASK_MOST_S)
        seen = _phase(status, seen, listener)
        for number, tail in enumerate(tails):
            while text := tail.new():
                listener.output(number, text)
        if status.over:
            return status
        time.sleep(poll_s)


def _phase(status: RunStatus, seen: str, listener: Listener) -> str:
    """Tell a phase that is new."""
    now = f"queued {status.message}".rstrip() if status.state == "queued" else status.phase
    if now and now != seen:
        name, _, detail = now.partition(" ")
        listener.phase(name, detail)
        return now
    return seen
