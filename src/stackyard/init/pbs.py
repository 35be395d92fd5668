"""Reads PBS Professional and OpenPBS by the JSON of pbsnodes(8B) and qstat(1B), Torque by its text."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

from stackyard.init.model import Ask, Cluster, HostNode, Queue, Told

TOLD = "told by PBS"
_UNITS = {"": 1, "b": 1, "kb": 1024, "mb": 1024**2, "gb": 1024**3, "tb": 1024**4}


def is_here(ask: Ask) -> bool:
    """Whether pbsnodes is on PATH."""
    return ask.has("pbsnodes")


def read(ask: Ask) -> Cluster:
    """The nodes and queues. PBS counts hardware threads as `ncpus`, and knows no sockets."""
    nodes, version = _nodes(ask)
    queues = _queues(ask("qstat", "-Q", "-f", "-F", "json", quiet=True))
    settings = {"launcher": _launcher(ask)}
    if version:
        settings["version"] = Told(version, TOLD)
    return Cluster("pbs", "PBS", "", nodes, queues, settings, threads=True)


def _launcher(ask: Ask) -> Told:
    text = ask("mpiexec", "--version", quiet=True)
    if re.search(r"\bPALS\b|cray-pals", text, re.IGNORECASE):
        return Told("pals", "seen here: mpiexec is that of PALS")
    if "Open MPI" in text or "OpenRTE" in text:
        return Told("mpirun", "seen here: mpiexec is that of Open MPI")
    if "HYDRA" in text.upper() or "MPICH" in text:
        return Told("mpich", "seen here: mpiexec is that of MPICH or Intel MPI")
    return Told("mpirun", "assumed: no mpiexec on PATH here; PALS is `pals`, MPICH and Intel MPI `mpich`")


def _nodes(ask: Ask) -> tuple[list[HostNode], str]:
    whole = _json(ask("pbsnodes", "-a", "-F", "json", quiet=True))
    rows = whole.get("nodes", {})
    if not isinstance(rows, dict) or not rows:
        return [_node(name, fields) for name, fields in _text(ask("pbsnodes", "-a")).items()], ""
    nodes = [_node(name, _flat(fields)) for name, fields in rows.items() if isinstance(fields, dict)]
    version = re.match(r"\d+(\.\d+)?", str(whole.get("pbs_version", "")))
    return nodes, version[0] if version else ""


def _flat(fields: dict[str, Any]) -> dict[str, str]:
    """The fields of a node, with those of its resources beside them."""
    resources = fields.get("resources_available")
    own = {key: str(value) for key, value in fields.items() if not isinstance(value, dict | list)}
    return {**own, **{key: str(value) for key, value in (resources or {}).items()}}


def _text(text: str) -> dict[str, dict[str, str]]:
    """The nodes of ``pbsnodes -a`` as text: a name, and indented fields; Torque's have a status with commas."""
    found: dict[str, dict[str, str]] = {}
    name = ""
    for line in text.splitlines():
        if line and not line[0].isspace():
            name = line.strip()
            found[name] = {}
        elif "=" in line and name:
            key, _, value = line.strip().partition("=")
            found[name][key.strip().removeprefix("resources_available.")] = value.strip()
            if key.strip() == "status":
                pairs = (part.partition("=") for part in value.split(","))
                found[name] |= {key.strip(): value.strip() for key, _, value in pairs if key.strip() != "state"}
    return found


def _node(name: str, fields: dict[str, str]) -> HostNode:
    threads = _number(fields, "pcpus") or _number(fields, "ncpus") or _number(fields, "np")
    memory = memory_gib(fields.get("mem") or fields.get("physmem", ""))
    down = re.search(r"down|offline|unknown|stale|maintenance", fields.get("state", ""))
    model = fields.get("gputype") or fields.get("gpu_model") or fields.get("gpu_type", "")
    gpus = _number(fields, "ngpus") or _number(fields, "gpus")
    queues = tuple(part.strip() for part in fields.get("queue", fields.get("Qlist", "")).split(",") if part.strip())
    features = tuple(f"{key}={fields[key]}" for key in ("system", "cputype", "chip", "model") if fields.get(key))
    properties = tuple(part for part in fields.get("properties", "").split(",") if part)
    return HostNode(name, "", max(1, threads), max(1, threads), 1, 0, memory, gpus, model if gpus else "", queues,
                    (*features, *properties), not down)  # fmt: skip


def memory_gib(text: str) -> float:
    """A size of PBS, ``527672488kb``, in GiB; 0 if it is none."""
    match = re.fullmatch(r"(\d+)([kmgt]?b)?", text.strip().lower())
    return round(int(match[1]) * _UNITS[match[2] or ""] / 1024**3, 1) if match else 0.0


def _queues(text: str) -> list[Queue]:
    rows = _json(text).get("Queue", {})
    found = []
    for name, fields in rows.items() if isinstance(rows, dict) else ():
        top, low = fields.get("resources_max", {}), fields.get("resources_min", {})
        is_up = str(fields.get("enabled")) == "True" and str(fields.get("started")) == "True"
        found.append(Queue(
            name, False, is_up, False, max(1, int(low.get("nodect", 1))), int(top.get("nodect", 0)),
            minutes(str(top.get("walltime", ""))),
        ))  # fmt: skip
    return found


def minutes(text: str) -> float:
    """A wall time, ``24:00:00``, in minutes; 0: none."""
    parts = text.split(":")
    if not text or not all(part.isdigit() for part in parts):
        return 0
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return seconds / 60


def _json(text: str) -> dict[str, Any]:
    with suppress(ValueError):
        value = json.loads(text)
        if isinstance(value, dict):
            return value
    return {}


def _number(fields: dict[str, str], name: str) -> int:
    text = str(fields.get(name, ""))
    return int(text) if text.isdigit() else 0
