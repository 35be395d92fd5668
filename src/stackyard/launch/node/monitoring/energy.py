"""The energy of this node's GPUs from before its ranks run until after they have ended, by the GPUs' own counters.

Part of the agent: any Python from 3.6 on, standard library alone, few imports (see `stackyard.launch.node.agent`).
"""

import contextlib
import json
import os
import signal
import sys

from stackyard.launch.node.machine import slurp
from stackyard.launch.node.monitoring.counters import main as counters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIMIT_S = 1.5
"""For the second reading: the last shims wait 2 s for their agent."""


class GpuEnergy:
    """Reads the counters for the first time when it is made, without blocking the agent."""

    def __init__(self, vendor: "str") -> "None":
        import subprocess

        own = {name: value for name, value in os.environ.items() if not name.startswith("STACKYARD_")}  # not a rank's
        self._process = None  # type: Any
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _text(), vendor], env=own, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._why = f"cannot run {sys.executable}: {error.strerror}"

    def used(self, went: "float") -> "dict[str, Any]":
        """Read again; for each GPU its joules, or why they are not known. Waits, but not for a stuck driver.

        Args:
            went: when the ranks began, by the clock of `time.monotonic`; 0: they did not.
        """
        import subprocess

        if self._process is None:
            return {"why": self._why}
        process = self._process
        try:
            text, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)  # not awaited: in the driver, it may outlive that
            return {"why": f"reading the energy counters timed out after {LIMIT_S:g} s"}
        lines = text.decode("utf-8", "replace").splitlines()
        if process.returncode or len(lines) != 2:
            return {"why": f"the process that reads the energy counters exited with status {process.returncode}"}
        before, after = map(json.loads, lines)
        why = before.get("why") or after.get("why")
        if why:
            return {"why": why}
        last = {gpu["index"]: gpu for gpu in after["gpus"]}
        is_early = before["at"] < went or not went  # a later reading has seen the processes of the ranks
        lost = {"why": "was lost during the run"}
        return {"gpus": [_used(gpu, last.get(gpu["index"], lost), is_early) for gpu in before["gpus"]]}


def _used(before: "dict[str, Any]", after: "dict[str, Any]", is_early: "bool") -> "dict[str, Any]":
    """What both readings say of a GPU; the processes that compute on it while no rank runs are others'."""
    why = before.get("why") or after.get("why", "")
    if not why and after["joules"] < before["joules"]:
        why = "has a counter that started again during the run"
    if not why and after["joules"] == 0:
        why = "has a counter that stays at 0"
    others = max(before["others"] if is_early else 0, after.get("others", 0))
    return dict(before, others=others, why=why, joules=None if why else after["joules"] - before["joules"])


def _text() -> "str":
    """The text of `counters`: agent.py has it, which runs its parts from memory; else it is a file."""
    module = sys.modules[counters.__module__]
    return getattr(module, "__text__", "") or slurp(str(module.__file__), 1 << 16)
