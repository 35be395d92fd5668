"""mpirun of Open MPI 4 and 5, and of Spectrum MPI, with a rankfile that places every rank.

Sources: mpirun(1) and orte_hosts(7) of Open MPI 4.1; prterun(1) of Open MPI 5.0 (which still reads --rankfile and
``slot=socket:cores``). Core numbers of a rankfile are logical: counted within the socket. Open MPI 4.1 exits with
status 1 and no message if a core of the rankfile does not exist. Relative hosts (``+n0``) are valid only inside an
allocation that mpirun detects (Slurm, PBS, LSF), never with a hostfile alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from stackyard.core.errors import InputError
from stackyard.core.findings import Finding
from stackyard.host.machine.ranges import ranges
from stackyard.launch.layout.model import Layout, Slot
from stackyard.launch.plan.launchers.words import Words, finds_nodes, shares_cores
from stackyard.launch.plan.model import LaunchLine, LaunchRequest


class Mpirun:
    """Ranks started by Open MPI's daemons, which the scheduler or ssh starts."""

    name = "mpirun"

    def line(self, request: LaunchRequest) -> LaunchLine:
        """mpirun with a rankfile, and a hostfile if hosts are known.

        Raises InputError if the hosts of several nodes are unknown and no scheduler can name them.
        """
        layout = request.layout
        names = self._hosts(request)
        words = Words("mpirun", reason="starts the ranks through Open MPI's daemons")
        words.add("number of ranks", "-n", str(layout.ranks))
        files = {"rankfile": "".join(rankfile_lines(layout, names))}
        if layout.hosts:
            files["hostfile"] = "".join(
                f"{host} slots={part.ranks_per_node}\n" for part in layout.alike for host in part.hosts
            )
            words.add("the hosts and the number of ranks of each", "--hostfile", "{step}/hostfile")
        words.add("binds every rank to its host, socket and cores", "--rankfile", "{step}/rankfile")
        if shares_cores(layout):
            words.add("allows more ranks than cores on a node", "--oversubscribe")
        if request.mpi and request.gpu_aware_mpi and request.spectrum:
            words.add("Spectrum MPI accepts GPU pointers", "-gpu")
        for name in request.variables:
            words.add("passes this variable to the other nodes", "-x", name)
        words.own(request)
        return LaunchLine(words.words, "openmpi", words.reasons, files, findings=_findings(request))

    def _hosts(self, request: LaunchRequest) -> tuple[str, ...]:
        layout = request.layout
        if layout.hosts:
            return layout.hosts
        if finds_nodes(request, self.name) and request.inside:
            return tuple(f"+n{index}" for index in range(layout.nodes))
        if layout.nodes == 1 and request.inside:
            return ("localhost",)
        raise InputError(
            "mpirun requires hostnames, which are not known",
            hint="launch inside an allocation of the scheduler",
        )


def _findings(request: LaunchRequest) -> tuple[Finding, ...]:
    layout = request.layout
    findings: list[Finding] = []
    if request.scheduler.csm and not layout.hosts:
        findings.append(_LAUNCH_NODE)
    if layout.node.cores < layout.node.all_cores:
        findings.append(_KEPT_CORES)
    return tuple(findings)


_LAUNCH_NODE = Finding(
    "launch-node-counts", "warning", "mpirun may count the launch node as the first host (+n0)",
    "under CSM, LSF lists the launch node first in the allocation",
    "use jsrun, or launch inside the allocation: there the hosts are named explicitly",
)  # fmt: skip
_KEPT_CORES = Finding(
    "kept-cores", "note", "the rankfile numbers only the cores that jobs may use",
    "this is correct if the scheduler hides reserved cores in a cgroup; otherwise the ranks are shifted by the "
    "reserved cores",
    "compare the run's placement report with its plan",
)  # fmt: skip


def rankfile_lines(layout: Layout, hosts: tuple[str, ...]) -> Iterator[str]:
    """``rank 3=h1 slot=0:7-13`` for every rank, host by host."""
    for block in layout.blocks:
        slots = [(slot.local_rank, rankfile_slot(layout, slot)) for slot in block.slots]
        for host in range(block.first, block.first + block.count):
            for local, place in slots:
                yield f"rank {layout.rank(host, local)}={hosts[host]} slot={place}\n"


def rankfile_slot(layout: Layout, slot: Slot) -> str:
    """Cores of a rank as ``socket:cores``, several sockets joined by commas: ``0:20,1:0-5``.

    A core's number is its index among the usable cores of its socket: Open MPI 4.1 does not count cores that a cgroup
    hides, which is how schedulers reserve cores for the system.
    """
    by_socket: dict[int, list[int]] = {}
    for core in slot.cores:
        socket = layout.node.socket_of(core)
        by_socket.setdefault(socket, []).append(_within(layout, socket, layout.node.os_core(core)))
    parts: list[str] = []
    for socket, cores in sorted(by_socket.items()):
        parts += [f"{socket}:{run}" for run in ranges(cores).split(",")]
    return ",".join(parts)


def _within(layout: Layout, socket: int, os_core: int) -> int:
    domains = [domain for domain in layout.node.domains if domain.socket == socket]
    return sorted(core for domain in domains for core in domain.cores).index(os_core)
