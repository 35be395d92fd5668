"""Reads Slurm by scontrol(1) and srun(1)."""

from __future__ import annotations

import re

from stackyard.core.errors import InputError
from stackyard.core.hostlist import expand
from stackyard.host.machine import scontrol
from stackyard.host.machine.runtimes import SRUN_OPTIONS
from stackyard.init.model import Ask, Cluster, HostNode, Queue, Told

_SLICE = re.compile(r"\dg\.\d+gb|^mig", re.IGNORECASE)
_DOWN = re.compile(r"DOWN|DRAIN|FAIL|MAINT|PLANNED|POWER|\*", re.IGNORECASE)
_SAVED = re.compile(r"POWERED_DOWN|POWERING|POWER_|~|#", re.IGNORECASE)
"""Nodes that save power are described as they are when they run."""
_MPI = ("pmix", "cray_shasta", "pmi2")
"""The kinds of ``srun --mpi`` that start an MPI, the usual one first."""
TOLD = "told by Slurm"


def is_here(ask: Ask) -> bool:
    """Whether scontrol is on PATH."""
    return ask.has("scontrol")


def read(ask: Ask) -> Cluster:
    """The nodes, partitions and settings."""
    config = scontrol.settings(ask("scontrol", "show", "config"))
    nodes = [_node(fields) for fields in scontrol.records(ask("scontrol", "-o", "show", "node"), "NodeName")]
    partitions = scontrol.records(ask("scontrol", "-o", "show", "partition"), "PartitionName")
    queues = [_queue(fields) for fields in partitions]
    settings = {"launcher": Told("srun", "assumed: Slurm starts ranks by srun")}
    if version := re.search(r"\d+\.\d+", config.get("SLURM_VERSION", "")):
        settings["version"] = Told(version[0], f"{TOLD} (SLURM_VERSION)")
    settings |= _mpi(ask("srun", "--mpi=list", quiet=True), config.get("MpiDefault", "none"))
    if "linear" in config.get("SelectType", ""):
        settings["linear"] = Told(value=True, origin=f"{TOLD} (SelectType={config['SelectType']})")
    if any(node.gpus for node in nodes):
        settings["gpu_request"] = _gpu_request(config.get("SelectType", ""))
    elif nodes:
        settings["gpu_request"] = Told("none", f"{TOLD}: no node has a gpu in Gres=")
    if queues:
        every = all(queue.is_exclusive for queue in queues if queue.is_up)
        state = "OverSubscribe=EXCLUSIVE" if every else "OverSubscribe= is not EXCLUSIVE: jobs share nodes"
        settings["exclusive"] = Told(every, f"{TOLD} ({state})")
    settings |= _racks(ask("scontrol", "show", "topology", quiet=True))
    name, runtimes = config.get("ClusterName", ""), _containers(ask)
    return Cluster("slurm", "Slurm", name, nodes, queues, settings, runtimes=runtimes)


def _node(fields: dict[str, str]) -> HostNode:
    cores = scontrol.shape(fields)
    count, model = _gpus(fields)
    return HostNode(
        fields["NodeName"], fields.get("Arch", ""), *cores, round(scontrol.number(fields, "RealMemory") / 1024, 1),
        count, model, _words(fields.get("Partitions", "")),
        _words(fields.get("ActiveFeatures", fields.get("AvailableFeatures", ""))),
        not _DOWN.search(_SAVED.sub("", fields.get("State", ""))),
    )  # fmt: skip


def _gpus(fields: dict[str, str]) -> tuple[int, str]:
    """The GPUs of a node, by Gres= or else by what is accounted; slices of MIG count only where nothing else is."""
    found = scontrol.gpus(fields.get("Gres", ""))
    if not found:
        pairs = re.findall(r"gres/gpu(?::([^=,]+))?=(\d+)", fields.get("CfgTRES", ""))
        found = [(model, int(count)) for model, count in pairs if model] or [("", int(n)) for _, n in pairs]
    whole = [each for each in found if not _SLICE.search(each[0])] or found
    return sum(count for _, count in whole), max(whole, key=lambda each: each[1])[0] if whole else ""


def _queue(fields: dict[str, str]) -> Queue:
    shared = fields.get("OverSubscribe", fields.get("Shared", ""))
    return Queue(
        fields["PartitionName"], fields.get("Default") == "YES", fields.get("State", "UP") == "UP",
        shared == "EXCLUSIVE", max(1, scontrol.number(fields, "MinNodes")), scontrol.number(fields, "MaxNodes"),
        scontrol.minutes(fields.get("MaxTime", "")),
    )  # fmt: skip


def _mpi(listed: str, default: str) -> dict[str, Told]:
    """``scheduler.mpi``, where the cluster's own default starts no MPI."""
    kinds = re.findall(r"^\s+(\w+)\s*$", listed, re.MULTILINE) or re.findall(r"^srun: (\w+)\s*$", listed, re.MULTILINE)
    if default not in ("none", "", "(null)") or not kinds:
        return {}
    best = next((kind for kind in _MPI if kind in kinds), "")
    if not best:
        return {}
    return {"mpi": Told(best, f"{TOLD}: srun --mpi=list has {', '.join(kinds)}; MpiDefault is none")}


def _gpu_request(select: str) -> Told:
    if "cons_tres" in select:
        return Told("gpus-per-node", f"{TOLD} (SelectType={select})")
    return Told("gres", f"{TOLD}: SelectType={select or '?'} has no --gpus-per-node")


def _racks(text: str) -> dict[str, Told]:
    """The number of nodes of a leaf switch, where all have as many."""
    sizes = set()
    for line in text.splitlines():
        match = re.search(r"SwitchName=\S+ Level=0 .*?\bNodes=(\S+)", line)
        if match:
            try:
                sizes.add(len(expand(match[1])))
            except InputError:
                return {}
    if len(sizes) != 1 or sizes == {1}:
        return {}
    return {"rack_nodes": Told(sizes.pop(), f"{TOLD}: nodes of each leaf switch (scontrol show topology)")}


def _containers(ask: Ask) -> list[Told]:
    """The container runtimes that srun has options for, by its help."""
    text = ask("srun", "--help", quiet=True)
    options = set(re.findall(r"--[a-z-]+", text))
    return [Told(name, f"{TOLD}: srun has {option}") for name, option in SRUN_OPTIONS.items() if option in options]


def _words(text: str) -> tuple[str, ...]:
    return () if text in ("", "(null)") else tuple(text.split(","))
