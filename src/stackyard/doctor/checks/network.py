"""The name of this machine, and its fast network. No name server is asked and no connection made."""

from __future__ import annotations

import os
from collections.abc import Iterator

from stackyard.core.findings import Finding
from stackyard.doctor.checks.base import Surroundings, said

_LOCAL = ("localhost", "localhost.localdomain")


def look_at_name(around: Surroundings) -> Iterator[Finding]:
    """A host name that leads other nodes to themselves.

    Debian's own line, ``127.0.1.1 NAME``, does no harm on a machine that works alone.
    """
    name = os.uname().nodename
    if name in _LOCAL:
        if around.cluster:
            yield said("host-unnamed", name=name)
        return
    lines = (line.partition("#")[0].split() for line in around.read("etc/hosts").splitlines())
    first = next((words[0] for words in lines if name in words[1:] and ":" not in words[0]), "")
    if first.startswith("127.") and (around.cluster or first != "127.0.1.1"):
        yield said("host-loopback", name=name, address=first)


def look_at_fabric(around: Surroundings) -> Iterator[Finding]:
    """A fabric without an active port, without a subnet manager, or without devices for accounts."""
    states = {}
    for device in around.fabric:
        for port in around.names(f"{device}/ports"):
            state = around.read(f"{device}/ports/{port}/state").partition(": ")[2]
            physical = around.read(f"{device}/ports/{port}/phys_state").partition(": ")[2]
            states[f"{device.rpartition('/')[2]} port {port}"] = state, physical
    waiting = [port for port, (state, physical) in states.items() if state in ("INIT", "ARMED")]
    if waiting:
        yield said("fabric-waiting", port=waiting[0], state=states[waiting[0]][0])
    elif states and all(state != "ACTIVE" for state, _ in states.values()):
        port, (state, physical) = next(iter(states.items()))
        yield said("fabric-down", port=port, state=state, physical=physical)
    verbs = [name for name in around.names("dev/infiniband") if name.startswith("uverbs")]
    closed = [name for name in verbs if not os.access(around.root / "dev/infiniband" / name, os.R_OK | os.W_OK)]
    if states and (closed or not verbs):
        yield said("fabric-devices", device=f"/dev/infiniband/{closed[0] if closed else 'uverbs0'}")
