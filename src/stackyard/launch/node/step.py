"""The protocol of the shim, the agents and the hub of one step: files, order, messages, and plan.json (`StepFile`).

**Files of a step** are in `StepPaths`, on a shared file system. **Files of a node** are in a private directory on its
own disk, ``${STACKYARD_TMP:-/tmp}/stackyard-<uid>-<id>-<hostname>`` (mode 0700, owner checked; with the hostname, so
that several simulated nodes on one machine have one each). Where another user has made that first, it is the first of
``...-<hostname>.1``, ``.2`` ... that can be made:

    pipe        FIFO; shims write one line each: ``start <local> <rank> <pid> <cpus> <visible gpus>`` and
                ``exit <local> <code>`` (less than PIPE_BUF, so that lines never mix)
    go          shell assignments from the hub: MASTER_ADDR, MASTER_PORT, STACKYARD_PORT_1 ...; written once all nodes
                have reported
    stop        a message: the shim prints it and exits with status 70 without starting its program
    staging     the agent's process id, from the first file that is staged until all are removed: the shims wait
                meanwhile, as long as that process lives (`launch.node.staging.stage`)
    ack.<local> the hub has received this task's exit status; the shim exits then (at most 2 s later). The last ones
                of a node exit when the directory is gone: a scheduler may kill the agent with the node's last task
    probe/      the probe (`stackyard.launch.probe`), written before ``go``, and the sockets of the ranks' processes
    lock        held by the agent as long as it lives (`launch.node.left`)

**Order.** The launcher starts `rank.sh` for every task. Each shim reads its identity (a complete set of one launcher's
variables, world size as planned, else an error and status 71) and writes ``start``; that of local task 0 first creates
the directory and the FIFO and starts the agent, detached. The agent connects to the hub (the first address at which one
knows the secret of agent.py: `stackyard.launch.node.handshake`), sends hello, and on the node of task 0 binds the
ports: sockets with SO_REUSEADDR that are bound and never listen, so that no other process is given the port while a
program that sets SO_REUSEADDR too (TCPStore, gRPC, Ray) can bind and listen there. When all nodes have sent hello, the
hub sends ``go`` with the address of task 0's node. The shim then sets the environment and runs the program in the
foreground, both streams into the rank's log.

**Messages.** One JSON object a line over TCP, both ways (`stackyard.launch.node.messages`).

    agent to hub                                                hub to agent
    {"hello": {"host", "addresses": [..], "node",               {"go": {"MASTER_ADDR": .., "MASTER_PORT": ..}}
               "pid", "facts", "stage", "lacks"}}
    {"ports": [29411, ..]}          (first node of a role, or   {"stop": "message"}
                                    with `task_ports` each)
    {"start": {"task", "local", "pid", "cpus", "gpus"}}         {"signal": "USR1"}      to the topmost processes of each
    {"exit": {"task", "code", "tail": ["last lines"],                                   rank that handle it, no others
              "how": "killed" or "orphaned",                    {"stacks": true}
              "usage": {..}, "edges": {..}}}    (`launch.node.monitoring.usage`, `edges`)
    {"out": {"task", "text"}}       streamed output             {"end": grace_s}        SIGTERM, then SIGKILL, then exit
    {"tail": {"task", "tail"}}      the last lines, later       {"hold": true or false}   send no output meanwhile
    {"grew": true}                  output that is not streamed
    {"beat": {}}                    heartbeat, once a second
    {"ends": [[task, [[local, remote], ..]], ..]}               {"met": [task, ..]}   they are connected to another rank
                                    of new connections (`launch.node.monitoring.edges`)
    {"energy": {"gpus": [..]}}      of its GPUs, at the end (`launch.node.monitoring.energy`)
    {"unable": "why"}               the node's own disk is full ...
    {"stacks": {"task", "text", "recorders"}}                   {"probe": {"number", "request", "only"}}
    {"probed": {"number", "answers"}}                           for the ranks' probes (`stackyard.launch.probe`)
    {"bye": {"unshown": bytes}}     `unshown` was to be streamed, and was not taken in time
    {"signalled": {"task", "signal", "processes"}}
    {"sidecar": {"code", "tail"}}   it ended before the ranks
    {"staging": {"total", "files"}} what is read to be staged   {"stage": {"from": [..], "children", "needs"}}
    {"staging": {"bytes"}}          how far this node is        {"leave": true}     all ranks have ended; keep what is
    {"staged": {}}                  it has everything                               staged for the next attempt
    {"unstaged": {"why", ..}}       it cannot go on
    {"unstaging": true}             it removes what was staged

`stackyard profile` connects to the hub too and proves that it knows the secret: `stackyard.launch.run.asking.passing`
has what it says.

A node from which the hub has received no message for `lost_s` (heartbeat timeout) is lost. An agent that loses its
connection to the hub ends its ranks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

FORMAT = 1


@dataclass(frozen=True)
class PlannedSlot:
    """The planned place of one task of a node: hardware threads and GPUs, as the system and the driver number them."""

    cpus: tuple[int, ...]
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class PlannedBlock:
    """Consecutive nodes with the same tasks. `roles`: the role of each task of a node, by index."""

    nodes: int
    slots: tuple[PlannedSlot, ...]
    roles: tuple[int, ...]


@dataclass(frozen=True)
class PlannedRole:
    """One program of a job with several: `each` tasks on each of `nodes` nodes from node `first` on.

    `serves`: it is terminated when all tasks of the other roles have ended. `ports` are bound on its first node.
    """

    name: str
    first: int
    nodes: int
    each: int
    serves: bool = False
    ports: int = 1
    gpu_visibility: Literal["all", "own"] = "all"

    @property
    def tasks(self) -> int:
        """The number of its tasks."""
        return self.nodes * self.each


@dataclass(frozen=True)
class PlannedStage:
    """The files that are copied to every node before the ranks start.

    Attributes:
        items: (name, path) of each: read at the path, found by the ranks under the name.
        key: a part of the name of the nodes' directories, the same in all attempts of a run.
        base: the site's staging directory, with variables of the node; empty: chosen on the node.
        interface: as in `WatchOptions`.
        again: another attempt may follow, so the nodes wait for a message of the hub before they remove files.
    """

    items: tuple[tuple[str, str], ...]
    key: str
    base: str = ""
    interface: str = ""
    again: bool = False


@dataclass(frozen=True)
class StepFile:
    """plan.json of a step. Times in seconds; `hubs` are ``address:port``, tried in this order.

    Attributes:
        secret: known to the processes of this step only; proved, never sent.
        logs: where the output goes: a file for each rank, one for rank 0 and one for each node, or one for rank 0 only,
            while that of the others stays on their node until it ends.
        attempt: the number of this start of the program within its allocation, from 1.
        id: a random part of the names of the nodes' directories, which other users see.
        blocks: in a job with several roles, the tasks of the nodes, block by block; then `roles` has the roles, and
            `slots` and `tasks_per_node` are those of the first node only.
        more_ports: the number of ports to bind on nodes other than that of task 0.
        task_ports: whether a port is bound for each task too, on its own node; the hub then passes the addresses of all
            tasks to each (STACKYARD_PEERS).
        shown: the tasks whose output is streamed as the first one's: the first of each role.
        sizes_s: the interval for checking the length of logs that are not streamed; 0: no checks after the first
            output.
        probe: whether the ranks have the probe; `probe_signal`: on which their Python processes write their stacks;
            0: none (`stackyard.launch.probe`).
        edges: whether the agents look for connections between ranks (`stackyard.launch.run.alone`).
        mpi_library: the host's MPI, which the ranks should load in their image; empty: not checked.
        mpi_names: the names of the libraries of all MPIs.
    """

    run: str
    secret: str
    id: str
    hubs: tuple[str, ...]
    family: str
    nodes: int
    tasks_per_node: int
    ranks_per_task: int = 1
    distribution: Literal["block", "cyclic"] = "block"
    hosts: tuple[str, ...] = ()
    slots: tuple[PlannedSlot, ...] = ()
    gpu_visibility: Literal["all", "own"] = "all"
    gpu_vendor: str = ""
    ports: int = 1
    attempt: int = 1
    more_ports: tuple[tuple[int, int], ...] = ()
    task_ports: bool = False
    blocks: tuple[PlannedBlock, ...] = ()
    roles: tuple[PlannedRole, ...] = ()
    shown: tuple[int, ...] = (0,)
    sidecar: tuple[str, ...] = ()
    stream: Literal["first", "all", "none"] = "first"
    logs: Literal["all", "node", "first"] = "all"
    beat_s: float = 1.0
    lost_s: float = 60.0
    grace_s: float = 5.0
    start_s: float = 60.0
    sizes_s: float = 0.0
    py_spy: str = ""
    probe: bool = False
    probe_signal: int = 0
    stage: PlannedStage | None = None
    edges: bool = False
    mpi_library: str = ""
    mpi_names: tuple[str, ...] = ()
    format: int = FORMAT

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        if self.blocks:
            return sum(block.nodes * len(block.slots) for block in self.blocks)
        return self.nodes * self.tasks_per_node

    def place(self, task: int) -> tuple[int, int]:
        """The node and the local number of a task."""
        if self.distribution == "cyclic":
            return task % self.nodes, task // self.nodes
        node = 0
        for block in self.blocks:
            per_node = len(block.slots)
            if task < block.nodes * per_node:
                return node + task // per_node, task % per_node
            node, task = node + block.nodes, task - block.nodes * per_node
        return task // self.tasks_per_node, task % self.tasks_per_node

    def tasks_of(self, node: int) -> range:
        """The tasks of a node."""
        if self.distribution == "cyclic":
            return range(node, self.tasks, self.nodes)
        task = 0
        for block in self.blocks:
            per_node = len(block.slots)
            if node < block.nodes:
                return range(task + node * per_node, task + (node + 1) * per_node)
            node, task = node - block.nodes, task + block.nodes * per_node
        return range(task + node * self.tasks_per_node, task + (node + 1) * self.tasks_per_node)

    def block_of(self, node: int) -> PlannedBlock:
        """The tasks of a node of a job with several roles."""
        for block in self.blocks:
            if node < block.nodes:
                return block
            node -= block.nodes
        raise IndexError(node)

    def in_role(self, task: int) -> tuple[PlannedRole, int] | None:
        """The role of a task and its rank within it; None in a job with one program."""
        if not self.roles:
            return None
        node, local = self.place(task)
        indices = self.block_of(node).roles
        role = self.roles[indices[local]]
        return role, (node - role.first) * role.each + indices[:local].count(indices[local])

    def task_of(self, role: PlannedRole, rank: int) -> int:
        """The task that is a rank of a role."""
        node, nth = role.first + rank // role.each, rank % role.each
        index = self.roles.index(role)
        own = [local for local, one in enumerate(self.block_of(node).roles) if one == index]
        return self.tasks_of(node)[own[nth]]

    def who(self, task: int) -> str:
        """``rank 3``, or ``rank 1 of workers (task 3)``."""
        place = self.in_role(task)
        if place is None:
            return f"rank {task}" if self.ranks_per_task == 1 else f"task {task}"
        return f"rank {place[1]} of {place[0].name} (task {task})"

    @property
    def ports_of(self) -> dict[int, int]:
        """The number of ports to bind, by node: those of the roles that begin there, then those of its tasks."""
        ports = {0: self.ports, **dict(self.more_ports)}
        if not self.task_ports:
            return ports
        return {node: ports.get(node, 0) + len(self.tasks_of(node)) for node in range(self.nodes)}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, without the secret."""
        return {name: value for name, value in asdict(self).items() if name != "secret"}

    def for_agents(self) -> dict[str, Any]:
        """The part for the agents: without hosts and places, whose size grows with the cluster."""
        return {name: value for name, value in asdict(self).items() if name not in ("hosts", "slots", "blocks")} | {
            "counts": [[block.nodes, len(block.slots)] for block in self.blocks]
        }

    @classmethod
    def read(cls, path: Path) -> StepFile:
        """Read plan.json; it has no secret, and in former versions no id. Raises OSError, ValueError, KeyError."""
        value = json.loads(path.read_text(encoding="utf-8"))
        if value["format"] != FORMAT:
            raise ValueError(f"{path}: format {value['format']}, not {FORMAT}")
        known = {f.name for f in fields(cls)}
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in value.items() if k in known}
        values = {"secret": "", "id": "", **values}
        values["slots"] = _slots(value.get("slots", ()))
        values["more_ports"] = tuple((node, count) for node, count in value.get("more_ports", ()))
        values["blocks"] = tuple(
            PlannedBlock(b["nodes"], _slots(b["slots"]), tuple(b["roles"])) for b in value.get("blocks", ())
        )
        if stage := value.get("stage"):
            values["stage"] = PlannedStage(**{**stage, "items": tuple((name, path) for name, path in stage["items"])})
        values["roles"] = tuple(PlannedRole(**role) for role in value.get("roles", ()))
        return cls(**values)


def _slots(values: Iterable[dict[str, Any]]) -> tuple[PlannedSlot, ...]:
    return tuple(PlannedSlot(tuple(slot["cpus"]), tuple(slot["gpus"])) for slot in values)
