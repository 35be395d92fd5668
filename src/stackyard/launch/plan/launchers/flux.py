"""flux run: the launcher of a Flux instance.

Sources: flux-run(1) and flux-shell-options(7) of flux-core, and its shell's affinity plugin, for which the numbers of
cpu-affinity=map are those of hardware threads. A job inside an allocation names no queue. If the mpibind
plugin is loaded, it binds the ranks and cpu-affinity is ignored: such a site adds ``-o mpibind=off`` to its launcher
options.
"""

from __future__ import annotations

from stackyard.core.errors import InputError
from stackyard.core.hostlist import compress
from stackyard.host.machine.ranges import ranges
from stackyard.launch.layout.model import Layout
from stackyard.launch.plan.launchers.words import Words, equal, need_hosts, shares_cores, threads_of, uniform
from stackyard.launch.plan.model import LaunchLine, LaunchRequest


class Flux:
    """Ranks as the tasks of one Flux job."""

    name = "flux"

    def line(self, request: LaunchRequest) -> LaunchLine:
        """flux run's options. Raises InputError if hosts differ or ranks share cores."""
        layout = request.layout
        uniform(layout, "flux run")
        if shares_cores(layout):
            raise InputError(
                "flux run cannot assign one core to two ranks",
                hint="use fewer ranks or fewer cores per rank",
            )
        alike = equal(layout)
        if not alike and not request.scheduler.exclusive:
            raise InputError(
                "flux run assigns every rank the same number of cores and GPUs",
                hint="use exclusive nodes (exclusive: true), or the same cores_per_rank and gpus_per_rank in all roles",
            )
        words = Words("flux", "run", reason="starts the ranks as one job of this Flux instance")
        words.add("number of nodes", "-N", str(layout.nodes))
        words.add("total number of ranks", "-n", str(layout.ranks))
        if alike:
            words.add("cores per rank", "-c", str(layout.cores_per_rank))
        self._gpus(words, layout)
        self._placing(words, request)
        if request.mpi and request.scheduler.mpi:
            words.add("PMI interface of the MPI processes", "-o", f"pmi={request.scheduler.mpi}")
        # else Flux ends the job 30 s after its first task (flux-run(1), shell options)
        words.add("ranks that finish early do not terminate the others", "-o", "exit-timeout=none")
        words.own(request)
        return LaunchLine(words.words, "flux", words.reasons)

    def _placing(self, words: Words, request: LaunchRequest) -> None:
        layout = request.layout
        if request.scheduler.exclusive:
            words.add("exclusive nodes", "-x")
        if not request.inside:
            hosts = compress(need_hosts(request, "flux run"))
            words.add("only these nodes of the allocation", f"--requires=hosts:{hosts}")
        if layout.distribution == "cyclic":
            words.add("cyclic distribution: rank i runs on node i modulo the number of nodes", "--taskmap=cyclic")
        if (evenly(layout) and equal(layout)) or not request.scheduler.exclusive:
            words.add("binds each rank to its own share of the cores", "-o", "cpu-affinity=per-task")
        else:
            places = ";".join(ranges(threads_of(layout, slot)) for slot in layout.slots)
            words.add("hardware threads of each rank of a node", "-o", f"cpu-affinity=map:{places}")

    def _gpus(self, words: Words, layout: Layout) -> None:
        owned = [gpu for slot in layout.slots for gpu in slot.gpus]
        if not owned:
            return
        if len(set(owned)) == len(owned) and equal(layout):
            words.add("GPUs per rank", "-g", str(layout.gpus_per_rank))
        if layout.gpu_visibility == "all":
            words.add(
                "each rank sees all GPUs of its node, so that NCCL and RCCL can use peer access",
                "-o",
                "gpu-affinity=off",
            )
        elif owned == list(range(layout.node.gpus)) and equal(layout):
            words.add("each rank sees only its own GPUs", "-o", "gpu-affinity=per-task")
        else:
            places = ";".join(ranges(slot.gpus) for slot in layout.slots)
            words.add("each rank sees only its own GPUs", "-o", f"gpu-affinity=map:{places}")


def evenly(layout: Layout) -> bool:
    """Whether the ranks have equal, consecutive shares of all cores of a node, as per-task binding assigns them."""
    planned = [core for slot in layout.slots for core in sorted(map(layout.node.os_core, slot.cores))]
    return planned == sorted(core for domain in layout.node.domains for core in domain.cores)
