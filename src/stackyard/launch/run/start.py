"""What must stand before a launcher is started: the hub's addresses, plan.json, rank.sh, the line's own files."""

from __future__ import annotations

import resource
import secrets
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from stackyard.errors import StackyardError
from stackyard.launch.layout.model import Layout
from stackyard.launch.node.machine import addresses, is_loopback
from stackyard.launch.node.sockets import hold_port
from stackyard.launch.node.step import PlannedSlot, StepFile
from stackyard.launch.plan.model import Plan
from stackyard.launch.records.paths import StepPaths
from stackyard.launch.shim.rank_sh import shim_text, sidecar_argv
from stackyard.yard.atomic import write_json, write_text


@dataclass(frozen=True)
class WatchOptions:
    """How a step is watched. Times in seconds, `hang_min` in minutes (0: never).

    Attributes:
        start_s: until all nodes, and then all ranks, must have reported.
        beat_s: how often an agent reports; `lost_s`: silence after which a node is lost (two beats at least).
        grace_s: from SIGTERM to SIGKILL.
        stream: whose output the listener is given.
        interface: where the hub and rank 0 are reached, by the beginnings of interface names, e.g. ``hsn`` or
            ``ib0,eth``, best first; empty: any.
        python: runs the agents; anything from 3.6 on that all nodes have.
        py_spy: the program on the nodes, for stacks; empty: the kernel's view only.
        queued: the launcher itself waits for its nodes (srun outside of an allocation), for as long as the queue is;
            `start_s` begins with the first node.
    """

    start_s: float = 60.0
    beat_s: float = 1.0
    lost_s: float = 4.0
    grace_s: float = 5.0
    hang_min: float = 0.0
    stream: Literal["first", "all", "none"] = "first"
    interface: str = ""
    python: str = field(default_factory=lambda: sys.executable)
    py_spy: str = ""
    queued: bool = False


def reachable(found: Mapping[str, Sequence[str]], interface: str, *, alone: bool) -> list[str]:
    """Addresses of a machine, the best first: the named interfaces', IPv4, IPv6; loopback last and only if `alone`.

    Args:
        found: addresses by interface, as `stackyard.launch.node.machine.addresses` gives them.
        alone: only this machine itself will ask; else its loopback is of no use to anybody.
    """
    wanted = [name for name in interface.split(",") if name]

    def rank(item: tuple[str, str]) -> tuple[int, bool]:
        name, address = item
        place = next((i for i, start in enumerate(wanted) if name.startswith(start)), len(wanted))
        return place, ":" in address

    pairs = [(name, address) for name, every in found.items() for address in every]
    outside = [address for _, address in sorted(((n, a) for n, a in pairs if not is_loopback(a)), key=rank)]
    inside = [address for _, address in pairs if is_loopback(address)]
    return outside + (inside if alone or not outside else [])


def rendezvous(hello: Mapping[str, Any], peer: str, interface: str, nodes: int) -> str:
    """The address at which the other nodes reach the node of rank 0.

    One on the named interface if it has one there, else the one from which it speaks to the hub, which is known to
    work; with one node the loopback.

    Raises:
        StackyardError: the node has no address but its loopback, and there are others that would ask for it.
    """
    if nodes == 1:
        return "127.0.0.1"
    found: Mapping[str, Sequence[str]] = hello.get("facts", {}).get("interfaces", {})
    every = [one for one in reachable(found, interface, alone=False) if not is_loopback(one)]
    named = [a for n in interface.split(",") if n for k, v in found.items() if k.startswith(n) for a in v if a in every]
    if not every:
        raise StackyardError(
            f"the node of rank 0, {hello['host']}, has no address but its loopback: {nodes} nodes cannot meet there",
            hint="name an interface that all nodes share in the site file",
        )
    if named:
        return min(named, key=lambda address: ":" in address)
    return peer if peer in every else every[0]


def listen(nodes: int) -> tuple[int, list[socket.socket]]:
    """The hub's port and its listening sockets, on all addresses of both families."""
    port, sockets = hold_port()
    for one in sockets:
        one.setblocking(False)
        one.listen(max(128, nodes))
    return port, sockets


def hub_names(port: int, interface: str, nodes: int) -> tuple[str, ...]:
    """``address:port`` of this machine, as agents try them."""
    every = reachable(addresses(), interface, alone=nodes == 1)
    return tuple(f"[{one}]:{port}" if ":" in one else f"{one}:{port}" for one in every)


def step_file(step: StepPaths, plan: Plan, *, run: str, hubs: tuple[str, ...], options: WatchOptions) -> StepFile:
    """What plan.json says. The token is made here: a connection that does not know it is not an agent."""
    layout = plan.program.layout
    return StepFile(
        run=run, token=secrets.token_hex(16), hubs=hubs, family=plan.line.family, nodes=layout.nodes,
        tasks_per_node=layout.ranks_per_node, ranks_per_task=plan.program.ranks_per_task,
        distribution=layout.distribution, hosts=layout.hosts, slots=planned(layout),
        gpu_visibility=layout.gpu_visibility, gpu_vendor=layout.node.gpu_vendor, ports=plan.program.ports,
        sidecar=sidecar_argv(step, plan), stream=options.stream, beat_s=options.beat_s,
        lost_s=max(options.lost_s, 2 * options.beat_s), grace_s=options.grace_s, start_s=options.start_s,
        py_spy=options.py_spy,
    )  # fmt: skip


def planned(layout: Layout) -> tuple[PlannedSlot, ...]:
    """The places of a node's tasks in the operating system's numbers."""
    return tuple(
        PlannedSlot(tuple(t for core in slot.cores for t in layout.node.os_threads(core, layout.smt)), slot.gpus)
        for slot in layout.slots
    )


def prepare(step: StepPaths, plan: Plan, file: StepFile, *, python: str) -> tuple[str, ...]:
    """Write all files of a step and return the complete command of its launcher.

    plan.json holds the token, so only its owner may read it. The logs of an earlier start in the same folder (a job
    that the scheduler started again) are set aside as ``logs-1``, ``logs-2`` ...
    """
    _set_aside(step)
    step.logs.mkdir(parents=True, exist_ok=True)
    write_json(step.plan, file.to_json())
    step.plan.chmod(0o600)
    write_text(step.shim, shim_text(step, file, plan, python=python), mode=0o755)
    for name, text in plan.line.files.items():
        write_text(step.root / Path(name).name, text.replace("{step}", str(step.root)))
    return (*(word.replace("{step}", str(step.root)) for word in plan.line.words), str(step.shim))


def preview(step: StepPaths, plan: Plan, *, run: str, python: str) -> dict[str, str]:
    """The files that `prepare` would write, by name, without writing any; the hub's addresses are not known yet."""
    file = step_file(step, plan, run=run, hubs=(), options=WatchOptions())
    texts = {name: text.replace("{step}", str(step.root)) for name, text in plan.line.files.items()}
    return {**texts, "rank.sh": shim_text(step, file, plan, python=python)}


def _set_aside(step: StepPaths) -> None:
    if step.launcher_log.exists():
        number = 1
        while (aside := step.logs.with_name(f"logs-{number}")).exists():
            number += 1
        step.logs.rename(aside)


def raise_file_limit(nodes: int) -> None:
    """Allow one connection per node and some more, as far as the hard limit lets us.

    Raises:
        StackyardError: the hard limit is too low for so many nodes.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = nodes + 256
    if soft != resource.RLIM_INFINITY and soft < need:
        if hard != resource.RLIM_INFINITY and hard < need:
            raise StackyardError(
                f"{nodes} nodes need {need} open files, and at most {hard} are allowed here",
                hint="raise the hard limit (ulimit -Hn) where the launch runs",
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))
