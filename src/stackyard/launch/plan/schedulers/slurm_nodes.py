"""The resources of a node as reported by Slurm, if the site describes none; and an allocation's share of a node.

A login node is seldom like the compute nodes, so `this_node` would be a wrong guess. The variables are those of
salloc(1) and sbatch(1), OUTPUT ENVIRONMENT VARIABLES; the lines those of scontrol(1) ``-o -d show job`` and ``show
node``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from stackyard.core.errors import InputError, MissingError
from stackyard.core.findings import counted
from stackyard.host.machine import scontrol
from stackyard.host.run.command import CommandError
from stackyard.launch.layout.model import Layout, Node, NodeDomain
from stackyard.launch.layout.nodes import even_split, this_node
from stackyard.launch.plan.model import Allocation
from stackyard.launch.plan.schedulers.asking import ask
from stackyard.launch.plan.schedulers.base import Offer

_AMD = ("mi", "amd", "instinct")


def of_allocation(
    allocation: Allocation, environ: Mapping[str, str], *, here: str = "", described: bool = False, gpus: bool = True
) -> Offer:
    """The resources of an allocation's nodes.

    Args:
        here: this host's name: if the allocation has this whole node, the kernel is queried, which reports more than
            Slurm.
        described: whether the site describes its nodes, so that only the allocated share is queried.
        gpus: whether the job uses GPUs; the controller is queried for them only then.
    """
    cpus = min(counts(environ.get("SLURM_JOB_CPUS_PER_NODE", "")) or [0])
    count = _gpus_given(environ)
    if count is None and gpus:
        job = scontrol.record(_line(("scontrol", "-o", "-d", "show", "job", allocation.job)))
        count = _gpu_count(job.get("GRES", "")) if job else None
    if described:
        return Offer(None, cpus, count)
    if here in {host.partition(".")[0] for host in allocation.hosts}:
        own = this_node()
        if own.cores * own.smt == int(environ.get("SLURM_CPUS_ON_NODE", "0")) == cpus:
            return Offer(own, cpus, count)
    facts = scontrol.record(_line(("scontrol", "-o", "show", "node", allocation.hosts[0])))
    return Offer(_node(facts, "this allocation", cpus, count or 0), cpus, count)


def of_partition(queue: str) -> Offer | None:
    """The resources of a partition's nodes for an exclusive job; those of the smallest node if they differ.

    None if the partition does not exist (sbatch reports that) or Slurm does not answer.

    Args:
        queue: its name; empty: the default partition.
    """
    try:
        result = ask(("sinfo", "-h", "-N", "-o", "%R|%P|%N|%c", *(("-p", queue) if queue else ())))
    except (CommandError, MissingError):
        return None
    rows = [line.split("|") for line in result.stdout.splitlines() if line.count("|") == 3]
    name = queue or next((name for name, shown, *_ in rows if shown.endswith("*")), "")
    mine = sorted((int(re.sub(r"\D", "", cpus) or 0), host) for row, _, host, cpus in rows if row == name)
    if not mine:
        return None
    facts = scontrol.record(_line(("scontrol", "-o", "show", "node", mine[0][1])))
    differ = mine[0][0] != mine[-1][0]
    notes = (f"the nodes of partition {name} differ: assuming the smallest, {mine[0][1]}",) if differ else ()
    return Offer(_node(facts, f"partition {name}", 0, None, notes), partition=name, nodes=len({h for _, h in mine}))


def counts(text: str) -> list[int]:
    """``32(x4),16`` as 32, 32, 32, 32, 16: Slurm's notation for a number per node."""
    numbers: list[int] = []
    for number, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        numbers += [int(number)] * int(times or 1)
    return numbers


def need(layout: Layout, offer: Offer, *, oversubscribe: bool) -> None:
    """Raise InputError if the allocation has fewer CPUs or GPUs per node than the ranks need.

    srun would only report "More processors requested than permitted", and only after the job has started.
    """
    threads = layout.ranks_per_node * layout.cores_per_rank * layout.smt
    ranks, cores = counted(layout.ranks_per_node, "rank"), layout.cores_per_rank * layout.smt
    if offer.cpus and threads > offer.cpus and not oversubscribe:
        raise InputError(
            f"{ranks} with {counted(cores, 'CPU')} each need {threads} CPUs per node, but this allocation has "
            f"{offer.cpus}",
            hint=f"salloc -N {layout.nodes} --exclusive, or salloc -N {layout.nodes} "
            f"--ntasks-per-node={layout.ranks_per_node} --cpus-per-task={cores}",
        )
    gpus = len({gpu for slot in layout.slots for gpu in slot.gpus})
    if offer.gpus is not None and gpus > offer.gpus:
        raise InputError(
            f"{ranks} with {counted(layout.gpus_per_rank, 'GPU')} each need {gpus} per node, but this allocation has "
            f"{offer.gpus or 'none'}",
            hint=f"salloc -N {layout.nodes} --gpus-per-node={gpus} ..., or --gpus-per-rank 0",
        )


def _node(facts: Mapping[str, str], kind: str, cpus: int, gpus: int | None, notes: tuple[str, ...] = ()) -> Node:
    """A node from ``scontrol show node``, or `cpus` of it if the allocation has only a part.

    The sockets are known only where the job has the whole node.
    """
    shape = scontrol.shape(facts, cpus)
    whole = not cpus or cpus == shape.cores * shape.smt
    cores, smt = (shape.cores if whole else cpus // shape.smt or 1), shape.smt
    sockets = shape.sockets if whole else 1
    there = _gpu_count(facts.get("Gres", "")) if gpus is None else gpus
    part = "" if whole else f" of {shape.cores}"
    said = f"{counted(cores, 'core')}{part}" + (f", {counted(there, 'GPU')}" if there else "")
    where = "" if sockets == 1 else f" on {sockets} sockets, split evenly"
    assumed = (f"a node of {kind} has {said}{where}, as reported by Slurm: no site file describes it", *notes)
    # Slurm does not report which GPU belongs to which socket: cores and GPUs are split evenly
    sizes, shares = even_split(cores, sockets), even_split(there, sockets)
    domains, core, gpu = [], 0, 0
    for socket, (size, share) in enumerate(zip(sizes, shares, strict=True)):
        domains.append(NodeDomain(socket, tuple(range(core, core + size)), tuple(range(gpu, gpu + share))))
        core, gpu = core + size, gpu + share
    memory = scontrol.number(facts, "RealMemory") / 1024
    vendor = "" if not there else "amd" if _gpu_type(facts.get("Gres", "")).startswith(_AMD) else "nvidia"
    return Node(kind, tuple(domains), cores, smt, gpu_vendor=vendor, memory_gib=round(memory, 1), assumed=assumed)


def _gpus_given(environ: Mapping[str, str]) -> int | None:
    """GPUs of the allocation per node; None if no variable is set (``--gres`` sets none in salloc)."""
    if environ.get("SLURM_GPUS_ON_NODE"):
        return last_number(environ["SLURM_GPUS_ON_NODE"])
    if environ.get("SLURM_GPUS_PER_NODE"):
        return sum(last_number(part) for part in environ["SLURM_GPUS_PER_NODE"].split(","))
    return None


def last_number(text: str) -> int:
    """``4`` and ``a100:4`` as 4; a type alone is one."""
    last = text.rpartition(":")[2]
    return int(last) if last.isdigit() else 1


def _gpu_count(gres: str) -> int:
    """``gpu:h100:4(S:0-1),gpu:a100:2(IDX:0-1)`` as 6; 0 without a GPU."""
    return sum(count for _, count in scontrol.gpus(gres))


def _gpu_type(gres: str) -> str:
    return next((model.lower() for model, _ in scontrol.gpus(gres) if re.search("[a-zA-Z]", model)), "")


def _line(argv: tuple[str, ...]) -> str:
    """The first line of the output; empty on failure."""
    try:
        result = ask(argv)
    except (CommandError, MissingError):
        return ""
    return (result.stdout.splitlines() or [""])[0] if result.returncode == 0 else ""
