"""mpiexec of HPE's Parallel Application Launch Service (PALS), used with PBS on Polaris, Aurora and Derecho.

Sources: HPE, the published client of PALS (options and their environment variables); ALCF, *Running Jobs on Aurora* and
*on Polaris* (CPU binding by list).
"""

from __future__ import annotations

from stackyard.launch.layout.model import Layout
from stackyard.launch.plan.launchers.words import Words, need_hosts, ranges, refuse_cyclic, threads_of, uniform
from stackyard.launch.plan.model import LaunchLine, LaunchRequest


class Pals:
    """Ranks started by the PALS daemons of the nodes."""

    name = "pals"

    def line(self, request: LaunchRequest) -> LaunchLine:
        """mpiexec's options. Raises InputError for a cyclic distribution, and if hosts differ or are unknown."""
        layout = request.layout
        uniform(layout, "PALS mpiexec")
        refuse_cyclic(layout, "PALS mpiexec")
        words = Words("mpiexec", reason="starts the ranks through the PALS daemons")
        words.add("passes the whole environment to the ranks", "--envall")
        words.add("line-buffered output", "--line-buffer")
        words.add("total number of ranks", "--np", str(layout.ranks))
        words.add("ranks per node", "--ppn", str(layout.ranks_per_node))
        files: dict[str, str] = {}
        if layout.hosts or not request.inside:
            files["hostfile"] = "".join(f"{host}\n" for host in need_hosts(request, "PALS mpiexec"))
            words.add("the hosts in rank order", "--hostfile", "{step}/hostfile")
        self._cores(words, layout)
        if request.mpi and request.scheduler.mpi:
            words.add("PMI interface of the MPI processes", "--pmi", request.scheduler.mpi)
        words.own(request)
        return LaunchLine(words.words, "pals", words.reasons, files)

    def _cores(self, words: Words, layout: Layout) -> None:
        """``depth`` if the ranks use the first threads in consecutive blocks; else a list per rank."""
        threads = [threads_of(layout, slot) for slot in layout.slots]
        depth = len(threads[0])
        flat = [thread for of_rank in threads for thread in of_rank]
        if flat == list(range(len(flat))):
            words.add("binds each rank to its own block of hardware threads", "--cpu-bind", "depth")
            words.add("hardware threads per block", "--depth", str(depth))
        else:
            words.add("hardware threads of each rank of a node",
                      "--cpu-bind", "list:" + ":".join(map(ranges, threads)))  # fmt: skip
