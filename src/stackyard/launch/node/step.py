"""What the shim, the agents and the hub of one step agree on.

**Files of a step** are in `StepPaths`, on a shared file system. **Files of a node** are in a private folder on its
own disk,
``${STACKYARD_TMP:-/tmp}/stackyard-<uid>-<token8>-<hostname>`` (mode 0700, owner checked), so that several "nodes" on
one
machine do not meet:

    pipe        FIFO; shims write one line each: ``start <local> <rank> <pid> <cpus> <visible gpus>`` and
                ``exit <local> <code>`` (less than PIPE_BUF, so lines never mix)
    go          shell assignments from the hub: MASTER_ADDR, MASTER_PORT, STACKYARD_PORT_1 ...; written once all nodes
    are there
    stop        a message: the shim prints it and ends with code 70 without starting its program
    ack.<local> the agent has told the hub how this task ended; the shim leaves then (at most 2 s later)

**Order.** The launcher starts `rank.sh` for every task. Each shim finds out who it is (one launcher family, a
complete set,
size as planned, else a clear error and code 71), writes ``start``; that of local task 0 first makes the folder and
the FIFO
and starts the agent, detached. The agent connects to the hub (the first address that answers), says hello, and on the
node
of task 0 binds the ports: sockets with SO_REUSEADDR that are bound, never listened on, and kept open, so that nobody
else is given the port while a program that sets SO_REUSEADDR too (TCPStore, gRPC, Ray) can bind and listen. When all
nodes have said hello the
hub answers ``go`` with the address of task 0's node. The shim then sets the environment and runs the program in the
foreground, both streams into the rank's log.

**Wire.** One JSON object a line over TCP, both ways.

    agent to hub                                                hub to agent
    {"hello": {"token", "host", "addresses": [..],              {"go": {"MASTER_ADDR": .., "MASTER_PORT": ..}}
               "node", "pid", "facts": {..}}}
    {"ports": [29411, ..]}          (node of task 0)            {"stop": "message"}
    {"start": {"task", "local", "pid", "cpus", "gpus"}}         {"signal": "USR1"}      to the topmost processes of each
    {"exit": {"task", "code", "tail": ["last lines"],                                   rank that handle it, to no other
              "how": "killed" or "orphaned"}}                   {"stacks": true}
    {"out": {"task", "text"}}       streamed output             {"end": grace_s}        TERM, then KILL, then leave
    {"beat": {"tasks": {"3": bytes_of_output}}}  once a second
    {"stacks": {"task", "text"}}    {"bye": {}}
    {"signalled": {"task", "signal", "processes"}}
    {"sidecar": {"code", "tail"}}   it ended before the ranks

A hub that has heard nothing from a node for `lost_s` calls it lost. An agent whose hub is gone ends its ranks.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

FORMAT = 1


@dataclass(frozen=True)
class PlannedSlot:
    """Where one task of a node should be: hardware threads and GPUs, in the operating system's and driver's numbers."""

    cpus: tuple[int, ...]
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class StepFile:
    """plan.json of a step. Times in seconds; `hubs` are ``address:port`` in the order to try."""

    run: str
    token: str
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
    sidecar: tuple[str, ...] = ()
    stream: Literal["first", "all", "none"] = "first"
    beat_s: float = 1.0
    lost_s: float = 4.0
    grace_s: float = 5.0
    start_s: float = 60.0
    py_spy: str = ""
    format: int = FORMAT

    @property
    def tasks(self) -> int:
        """Tasks in all."""
        return self.nodes * self.tasks_per_node

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    @classmethod
    def read(cls, path: Path) -> StepFile:
        """Read plan.json. Raises OSError, ValueError, KeyError."""
        value = json.loads(path.read_text(encoding="utf-8"))
        if value["format"] != FORMAT:
            raise ValueError(f"{path}: format {value['format']}, not {FORMAT}")
        known = {f.name for f in fields(cls)}
        made: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in value.items() if k in known}
        made["slots"] = tuple(PlannedSlot(tuple(s["cpus"]), tuple(s["gpus"])) for s in value.get("slots", ()))
        return cls(**made)
