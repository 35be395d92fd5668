"""mpiexec of HPE's Parallel Application Launch Service (PALS), used with PBS on Polaris, Aurora and Derecho.

Sources: HPE, the published client of PALS (options and their environment variables; after a colon it reads only --np,
--ppn, --depth, --wdir and --umask: hosts and the kind of CPU binding are those of the whole line); ALCF, *Running Jobs
on Aurora* and *on Polaris* (CPU binding by list). They do not state that the ranks after a colon begin on the next
host; rank.sh compares each rank's place with the plan and rejects a different one.
"""

from __future__ import annotations

from stackyard.core.findings import Finding
from stackyard.host.machine.ranges import ranges
from stackyard.launch.layout.model import Layout
from stackyard.launch.plan.launchers.words import (
    Words,
    common_threads,
    need_hosts,
    refuse_cyclic,
    threads_of,
)
from stackyard.launch.plan.model import LaunchLine, LaunchRequest


class Pals:
    """Ranks started by the PALS daemons of the nodes."""

    name = "pals"

    def line(self, request: LaunchRequest) -> LaunchLine:
        """mpiexec's options. Raises InputError for a cyclic distribution, and if hosts differ or are unknown."""
        layout = request.layout
        refuse_cyclic(layout, "PALS mpiexec")
        words = Words("mpiexec", reason="starts the ranks through the PALS daemons")
        words.add("passes the whole environment to the ranks", "--envall")
        words.add("line-buffered output", "--line-buffer")
        first, *others = layout.alike
        self._ranks(words, first)
        files: dict[str, str] = {}
        if layout.hosts or not request.inside:
            files["hostfile"] = "".join(f"{host}\n" for host in need_hosts(request, "PALS mpiexec"))
            words.add("the hosts in rank order", "--hostfile", "{step}/hostfile")
        by_depth = self._cores(words, layout)
        if request.mpi and request.scheduler.mpi:
            words.add("PMI interface of the MPI processes", "--pmi", request.scheduler.mpi)
        words.own(request)
        for part in others:
            words.next_nodes()
            self._ranks(words, part)
            if by_depth:
                self._depth(words, part)
        findings = (_COLONS,) if others else ()
        return LaunchLine(words.words, "pals", words.reasons, files, findings=findings)

    def _ranks(self, words: Words, part: Layout) -> None:
        words.add("total number of ranks", "--np", str(part.ranks))
        words.add("ranks per node", "--ppn", str(part.ranks_per_node))

    def _cores(self, words: Words, layout: Layout) -> bool:
        """Add the binding: ``depth`` for first threads in consecutive blocks (True); else a list for each rank."""
        if all(_consecutive(part) for part in layout.alike):
            words.add("binds each rank to its own block of hardware threads", "--cpu-bind", "depth")
            self._depth(words, layout.alike[0])
            return True
        threads = common_threads(layout, "PALS mpiexec")
        words.add("hardware threads of each rank of a node",
                  "--cpu-bind", "list:" + ":".join(map(ranges, threads)))  # fmt: skip
        return False

    def _depth(self, words: Words, part: Layout) -> None:
        words.add("hardware threads per block", "--depth", str(part.cores_per_rank * part.smt))


_COLONS = Finding(
    "colons-of-pals", "note", "the ranks after a colon are expected to begin on the next host",
    "PALS' published client and manual do not say so; a rank that finds itself elsewhere ends the launch before any "
    "program starts", "compare the run's placement report with its plan",
)  # fmt: skip


def _consecutive(layout: Layout) -> bool:
    """Whether the ranks of a node use its first threads in consecutive blocks of one size."""
    threads = [threads_of(layout, slot) for slot in layout.slots]
    flat = [thread for of_rank in threads for thread in of_rank]
    return flat == list(range(len(flat))) and len(set(map(len, threads))) == 1
