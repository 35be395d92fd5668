"""Reports the ends of a node's ranks, with the last lines of their logs if the file system delivers them in time.

Part of the agent: any Python from 3.6 on, standard library alone, few imports (see `stackyard.launch.node.agent`).
"""

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from stackyard.launch.node.logs import Logs

TAIL_S = 3.0
"""How long the report of an end waits for the last lines of the log, which is on a shared file system."""


class Ends:
    """The ended ranks that are not reported yet, or whose logs are not completely read.

    `report` is called with a kind of message and its value, once for each end.
    """

    def __init__(self, logs: "Logs", report: "Callable[[str, dict[str, Any]], None]") -> "None":
        self._logs, self._report = logs, report
        self._since = {}  # type: dict[int, float]
        self._held = {}  # type: dict[int, tuple[str, dict[str, Any]]]

    @property
    def waiting(self) -> "bool":
        """Whether an end is not reported yet."""
        return bool(self._held)

    def begin(self, kind: "str", task: "int", value: "dict[str, Any]") -> "None":
        """Handle an end: a success is reported at once, a failure with the last lines of its log."""
        self._since[task] = time.monotonic()
        self._logs.end(task, bool(value["code"]))
        if value["code"]:
            self._held[task] = kind, value
        else:
            self._report(kind, dict(value, tail=[]))

    def read(self, task: "int", tail: "list[str]") -> "None":
        """Handle a log that has been read to its end."""
        self._since.pop(task, None)
        if task in self._held:
            kind, value = self._held.pop(task)
            self._report(kind, dict(value, tail=tail))
        elif tail:
            self._report("tail", {"task": task, "tail": tail})

    def overdue(self, now: "float") -> "None":
        """Report ends that have waited too long without their last lines, which follow later."""
        for task in [task for task in self._held if now > self._since[task] + TAIL_S]:
            kind, value = self._held.pop(task)
            self._report(kind, dict(value, tail=[]))

    def unread(self, now: "float", limit_s: "float") -> "bool":
        """Whether a log of an ended rank is still being read, for at most `limit_s`."""
        return any(now < since + limit_s for since in self._since.values())
