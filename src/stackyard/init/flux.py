"""Reads Flux by the R of ``flux resource R`` (RFC 20) and its configuration."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from stackyard.core.hostlist import expand
from stackyard.host.machine.ranges import core_list
from stackyard.init.model import Ask, Cluster, HostNode, Queue, Told

TOLD = "told by Flux"


def is_here(ask: Ask) -> bool:
    """Whether flux is on PATH and an instance of it answers here."""
    return ask.has("flux") and bool(ask("flux", "getattr", "size", quiet=True))


def read(ask: Ask) -> Cluster:
    """The nodes and queues of the instance; Flux counts cores and knows no sockets."""
    whole = _json(ask("flux", "resource", "R"))
    execution = whole.get("execution", {})
    properties = {name: _ids(ids) for name, ids in execution.get("properties", {}).items()}
    hosts = [host for part in execution.get("nodelist", []) for host in expand(part)]
    nodes, at = [], 0
    for row in execution.get("R_lite", []):
        children = row.get("children", {})
        cores, gpus = len(_ids(children.get("core", ""))), len(_ids(children.get("gpu", "")))
        for rank in _ids(str(row.get("rank", ""))):
            host = hosts[at] if at < len(hosts) else f"rank{rank}"
            own = tuple(name for name, ranks in properties.items() if rank in ranks)
            nodes.append(HostNode(host, "", max(1, cores), max(1, cores), 1, 1, 0.0, gpus, "", (), own))
            at += 1
    settings = {"launcher": Told("flux", "assumed: Flux starts ranks by flux run")}
    queues = [Queue(name) for name in _json(ask("flux", "config", "get", "queues", quiet=True))]
    return Cluster("flux", "Flux", "", nodes, queues, settings)


def _ids(text: str) -> tuple[int, ...]:
    """An idset of RFC 22, ``0-3,7`` or ``[0-3,7]``, as numbers; none if it is not one."""
    with suppress(ValueError):
        return core_list(text.strip("[]")) if text else ()
    return ()


def _json(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
