"""mpiexec.hydra: the launcher of MPICH, MVAPICH and Intel MPI.

Source: the help texts of hydra 4.0 (``mpiexec.hydra -help``, ``-bind-to -help``). ``-bind-to user:`` takes, for each
rank of a node in turn, processor numbers of the operating system joined by ``+``. Ranks beyond the slots of the hosts
begin again at the first host, so one slot per host deals them out.
"""

from __future__ import annotations

from stackyard.errors import InputError
from stackyard.launch.plan.launchers.words import Words, need_hosts, threads_of, uniform
from stackyard.launch.plan.model import LaunchLine, LaunchRequest


class Mpich:
    """Ranks by hydra's proxies, which the scheduler or ssh starts."""

    name = "mpich"

    def line(self, request: LaunchRequest) -> LaunchLine:
        """hydra's options. Raises InputError where hosts differ, or are not known and no scheduler knows them."""
        layout = request.layout
        slots = uniform(layout, "mpiexec.hydra")
        cyclic = layout.distribution == "cyclic"
        in_turn = 1 if cyclic else layout.ranks_per_node
        words = Words("mpiexec.hydra", reason="starts the ranks through hydra's proxies")
        words.add("how many ranks", "-n", str(layout.ranks))
        words.add(
            "ranks are dealt over the nodes, one at a time" if cyclic else "how many ranks on each node",
            "-ppn",
            str(in_turn),
        )
        files: dict[str, str] = {}
        if layout.hosts or not request.inside:
            hosts = need_hosts(request, "mpiexec.hydra")
            files["hostfile"] = "".join(f"{host}:{in_turn}\n" for host in hosts)
            words.add("the hosts in order and how many ranks each takes in turn", "-f", "{step}/hostfile")
        elif layout.nodes > 1 and request.scheduler.kind in ("", "none", "flux"):
            raise InputError(
                "mpiexec.hydra must be told the names of the hosts, and they are not known",
                hint="name them, or launch inside an allocation of Slurm, LSF or PBS",
            )
        binding = ",".join("+".join(map(str, threads_of(layout, slot))) for slot in slots)
        words.add("the hardware threads of each rank of a node", "-bind-to", f"user:{binding}")
        words.add("the whole environment goes along", "-genvall")
        words.own(request)
        return LaunchLine(words.words, "hydra", words.reasons, files)
