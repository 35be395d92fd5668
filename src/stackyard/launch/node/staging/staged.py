"""The agent's part of staging: nothing if no files are staged, else delegation to `stage`.

Part of the agent: any Python from 3.6 on, standard library alone, few imports (see `stackyard.launch.node.agent`).
`stage` and its imports are loaded, and part of agent.py, only if files are staged.
"""

import contextlib
import os
import selectors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from stackyard.launch.node.directory import NodeDirectory


class NodeStaging:
    """The files of a job that are copied to this node. `begun`: the hub has sent its plan and monitors progress."""

    def __init__(self, file: "dict[str, Any]", directory: "NodeDirectory", host: "str") -> "None":
        self._alone, self._directory = file["nodes"] == 1, directory
        self._stage = None  # type: Any
        self.begun = False
        if file["stage"]:
            from stackyard.launch.node.staging.stage import Stage

            self._stage = Stage(file["stage"], file["secret"], host, file["start_s"])

    def watch(self, selector: "selectors.BaseSelector", send: "Callable[[str, Any], None]") -> "None":
        """Forward staging messages to the hub as they arrive."""
        stage = self._stage
        if stage is not None:
            selector.register(stage.ready, selectors.EVENT_READ, lambda _: stage.report(send))

    def hello(self) -> "dict[str, Any] | None":
        """The facts that the hub needs."""
        return None if self._stage is None else self._stage.hello(self._alone)

    def obey(self, kind: "str", value: "Any") -> "None":
        """Handle a message: ``stage``: the source. ``leave``: the job is over; true: the next attempt uses files."""
        if self._stage is None:
            return
        if kind == "leave":
            self._stage.leave(value)
            return
        self.begun = True
        self._directory.put("staging", f"{os.getpid()}\n")  # the shims may wait for longer than for the nodes
        self._stage.begin(value)

    @property
    def may_leave(self) -> "bool":
        """Whether the hub has decided what happens to the files."""
        return self._stage is None or self._stage.may_leave

    @property
    def variables(self) -> "dict[str, str]":
        """The variables by which the ranks of this node find the files."""
        return {} if self._stage is None else self._stage.variables

    def close(self, send: "Callable[[str, Any], None]") -> "None":
        """Remove the files; the hub and the shims wait for this."""
        if self._stage is not None:
            send("unstaging", True)
            self._stage.close()
            with contextlib.suppress(OSError):
                os.unlink(self._directory.path + "/staging")  # noqa: PTH108
