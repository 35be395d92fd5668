"""One rank in the agent's view: its shim and the processes below it.

Part of the agent: any Python from 3.6 on, standard library alone, few imports (see `stackyard.launch.node.agent`).
"""

from stackyard.launch.node.processes import alive, catches, children, descendants, marked, send_signal, stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


class Rank:
    """One task of this node: its shim, and the processes below it."""

    def __init__(self, task: "int", local: "int", pid: "int") -> "None":
        self.task, self.local, self.pid = task, local, pid
        status = stat(pid)
        self.born = status[2] if status else 0
        self.code = None  # type: int | None
        self.below = {}  # type: dict[int, int]

    def shim_alive(self) -> "bool":
        """Whether the shell that the launcher started still runs."""
        return alive(self.pid, self.born)

    def refresh(self) -> "None":
        """Update the list of processes below the shim, so that they are found after the shim was killed."""
        self.below = {pid: born for pid, born in self.below.items() if alive(pid, born)}
        for pid, born in descendants(self.pid) if self.shim_alive() else ():
            self.below[pid] = born

    def orphans(self, directory: "str") -> "list[int]":
        """The processes still running after the shim was killed: known ones, and those with its environment."""
        marks = [f"STACKYARD_DIR={directory}".encode(), b"STACKYARD_TASK=%d" % self.task]
        self.below.update(marked(*marks))
        return [pid for pid, born in self.below.items() if alive(pid, born)]

    def tell(self, number: "int") -> "int":
        """Send a warning such as SIGUSR1 to the topmost processes that handle it; it would kill the others."""
        queue, count = children(self.pid), 0
        while queue:
            pid = queue.pop(0)
            if catches(pid, number):
                send_signal(pid, number)
                count += 1
            else:
                queue.extend(children(pid))
        return count


def below(ranks: "Iterable[Rank]") -> "dict[int, int]":
    """The present processes of these ranks, each with its start time."""
    parents = {}  # type: dict[int, int]
    for rank in ranks:
        rank.refresh()
        parents.update(rank.below)
    return parents


def tasks_of(plan: "dict[str, Any]", node: "int") -> "int":
    """The number of tasks on a node."""
    before = 0
    for nodes, tasks in plan["counts"]:
        before += nodes
        if node < before:
            return int(tasks)
    return int(plan["tasks_per_node"])
