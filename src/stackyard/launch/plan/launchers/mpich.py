"""mpiexec.hydra: the launcher of MPICH, MVAPICH and Intel MPI.

Source: the help texts of hydra 4.0 (``mpiexec.hydra -help``, ``-bind-to -help``). ``-bind-to user:`` takes, for each
rank of a node in turn, processor numbers of the operating system joined by ``+``. Ranks beyond the slots of the hosts
start again at the first host, so that one slot per host gives a cyclic distribution. Hosts with unequal slots are
filled one after the other; a -ppn would override their slots.
"""

from __future__ import annotations

from stackyard.core.errors import InputError
from stackyard.launch.plan.launchers.words import Words, common_threads, finds_nodes, need_hosts
from stackyard.launch.plan.model import LaunchLine, LaunchRequest


class Mpich:
    """Ranks started by hydra's proxies, which the scheduler or ssh starts."""

    name = "mpich"

    def line(self, request: LaunchRequest) -> LaunchLine:
        """hydra's options. Raises InputError if hosts differ in the cores of a local rank, or are unknown."""
        layout = request.layout
        threads = common_threads(layout, "mpiexec.hydra")
        cyclic = layout.distribution == "cyclic"
        in_turn = 1 if cyclic else layout.ranks_per_node
        words = Words("mpiexec.hydra", reason="starts the ranks through hydra's proxies")
        words.add("number of ranks", "-n", str(layout.ranks))
        if not layout.hosts_differ:
            words.add(
                "cyclic distribution: one rank per node in turn" if cyclic else "ranks per node", "-ppn", str(in_turn)
            )
        files: dict[str, str] = {}
        if layout.hosts or not request.inside:
            need_hosts(request, "mpiexec.hydra")
            files["hostfile"] = "".join(
                f"{host}:{1 if cyclic else part.ranks_per_node}\n" for part in layout.alike for host in part.hosts
            )
            words.add("the hosts in order, each with its number of consecutive ranks", "-f", "{step}/hostfile")
        elif layout.nodes > 1 and not finds_nodes(request, self.name):
            raise InputError(
                "mpiexec.hydra requires hostnames, which are not known",
                hint="launch inside an allocation of Slurm, LSF or PBS",
            )
        binding = ",".join("+".join(map(str, of_rank)) for of_rank in threads)
        words.add("hardware threads of each rank of a node", "-bind-to", f"user:{binding}")
        words.add("passes the whole environment to the ranks", "-genvall")
        words.own(request)
        return LaunchLine(words.words, "hydra", words.reasons, files)
