"""mpirun of Open MPI 4 and 5, and of Spectrum MPI, with a rankfile that names the place of every rank.

Sources: mpirun(1) and orte_hosts(7) of Open MPI 4.1; prterun(1) of Open MPI 5.0 (which still reads --rankfile and
``slot=socket:cores``). Core numbers of a rankfile are logical: counted within the socket. Open MPI 4.1 ends with code 1
and without a word where a core of the rankfile is not there. Relative hosts (``+n0``) only mean something inside an
allocation that mpirun itself finds (Slurm, PBS, LSF), never with a hostfile alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from stackyard.errors import InputError
from stackyard.findings import Finding
from stackyard.launch.layout.model import Layout, Slot
from stackyard.launch.plan.launchers.words import Words, ranges, shares_cores
from stackyard.launch.plan.model import LaunchLine, LaunchRequest


class Mpirun:
    """Ranks by Open MPI's own daemons, which the scheduler or ssh starts."""

    name = "mpirun"

    def line(self, request: LaunchRequest) -> LaunchLine:
        """mpirun with a rankfile, and a hostfile where hosts are known.

        Raises InputError where the hosts of several nodes are not known and there is no scheduler to ask.
        """
        layout = request.layout
        names = self._hosts(request)
        words = Words("mpirun", reason="starts the ranks through Open MPI's daemons")
        words.add("how many ranks", "-n", str(layout.ranks))
        files = {"rankfile": "".join(rankfile_lines(layout, names))}
        if layout.hosts:
            files["hostfile"] = "".join(f"{host} slots={layout.ranks_per_node}\n" for host in layout.hosts)
            words.add("the hosts and how many ranks each takes", "--hostfile", "{step}/hostfile")
        words.add("the host, socket and cores of every rank, which stays there", "--rankfile", "{step}/rankfile")
        if shares_cores(layout):
            words.add("more ranks than cores are allowed on a node", "--oversubscribe")
        if request.mpi and request.gpu_aware_mpi and request.scheduler.kind == "lsf":
            words.add("Spectrum MPI may be given addresses in GPU memory", "-gpu")
        for name in request.variables:
            words.add("this variable goes along to the other nodes", "-x", name)
        words.own(request)
        return LaunchLine(words.words, "openmpi", words.reasons, files, findings=_findings(request))

    def _hosts(self, request: LaunchRequest) -> tuple[str, ...]:
        layout = request.layout
        if layout.hosts:
            return layout.hosts
        if request.scheduler.kind in ("slurm", "lsf", "pbs", "flux") and request.inside:
            return tuple(f"+n{index}" for index in range(layout.nodes))
        if layout.nodes == 1 and request.inside:
            return ("localhost",)
        raise InputError(
            "mpirun must be told the names of the hosts, and they are not known",
            hint="name them, or launch inside an allocation of the scheduler",
        )


def _findings(request: LaunchRequest) -> tuple[Finding, ...]:
    layout = request.layout
    found: list[Finding] = []
    if request.scheduler.csm and not layout.hosts:
        found.append(_LAUNCH_NODE)
    if layout.node.cores < layout.node.all_cores:
        found.append(_KEPT_CORES)
    return tuple(found)


_LAUNCH_NODE = Finding(
    "launch-node-counts", "warning", "mpirun may count the launch node as the first host (+n0)",
    "under CSM the allocation that LSF shows begins with the launch node",
    "use jsrun, or launch inside the allocation, where the names of the compute nodes are used",
)  # fmt: skip
_KEPT_CORES = Finding(
    "kept-cores", "note", "the rankfile counts only the cores that a job may use",
    "that is right where the scheduler hides the cores kept for the system in a control group, and shifts the ranks by "
    "those cores where it does not",
    "compare the run's receipt with its plan",
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

    A core's number is its place among the cores of its socket that a job may use: Open MPI 4.1 does not count cores
    that a control group hides, which is how schedulers keep cores for the system.
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
