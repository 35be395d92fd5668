"""srun: Slurm's own launcher.

Options and their meaning: srun(1) of Slurm 20.11 to 24.11, and the release notes of 20.11 (--exact, --overlap), 22.05
(srun no longer inherits --cpus-per-task) and 24.11 (select/linear refuses GPUs per task).
"""

from __future__ import annotations

from stackyard.errors import InputError
from stackyard.findings import Finding
from stackyard.launch.layout.model import Layout
from stackyard.launch.layout.rules import counted
from stackyard.launch.plan.launchers.words import (
    Words,
    mask,
    need_hosts,
    shares_cores,
    threads_of,
    uniform,
    used_gpus,
    version_of,
)
from stackyard.launch.plan.model import LaunchLine, LaunchRequest
from stackyard.launch.plan.schedulers.hostlist import compress
from stackyard.spec.sitemodels import Scheduler


class Srun:
    """Ranks as the tasks of one job step."""

    name = "srun"

    def line(self, request: LaunchRequest) -> LaunchLine:
        """The step's options. Raises InputError where hosts differ, or must be named and are not known."""
        layout, scheduler = request.layout, request.scheduler
        uniform(layout, self.name)
        words = Words("srun", reason="starts the ranks as one job step of the allocation")
        self._where(words, request)
        self._cores(words, layout, scheduler)
        self._gpus(words, layout, scheduler)
        self._wiring(words, request)
        self._ending(words)
        words.own(request)
        return LaunchLine(words.words, "slurm", words.reasons, findings=self._findings(layout, scheduler))

    def _where(self, words: Words, request: LaunchRequest) -> None:
        """Nodes and ranks. Slurm numbers nodes in its own order, which is that of an allocation's list of hosts."""
        layout, scheduler = request.layout, request.scheduler
        words.add("how many nodes", "-N", str(layout.nodes))
        words.add("how many ranks in all", "-n", str(layout.ranks))
        words.add("how many ranks on each node", f"--ntasks-per-node={layout.ranks_per_node}")
        if layout.distribution == "cyclic":
            words.add("ranks are dealt over the nodes, and fill a socket on each", "--distribution=cyclic:block")
        else:
            words.add("ranks fill a node, and a socket, before the next one", "--distribution=block:block")
        if not request.inside:
            hosts = need_hosts(request, self.name)
            words.add("exactly these nodes of the allocation", "-w", compress(hosts))
            known = version_of(scheduler.version)
            if not known or known >= (20, 11):
                words.add("may run beside another step, e.g. one that is just ending", "--overlap")

    def _cores(self, words: Words, layout: Layout, scheduler: Scheduler) -> None:
        """Cores by number where Slurm's own order is the planned one, else by mask.

        -c implies --exact (srun(1)): the step is given R x C cores that Slurm chooses, which need not be those of the
        masks. Without -c it is given all cores of its nodes, and the masks share them out.
        """
        if scheduler.core_spec >= 0:
            words.add(f"cores of each node kept for the system: {scheduler.core_spec}", "-S", str(scheduler.core_spec))
        if shares_cores(layout):
            words.add("more ranks than cores are allowed on a node", "--overcommit")
        if needs_masks(layout) and scheduler.exclusive:
            masks = ",".join(mask(threads_of(layout, slot)) for slot in layout.slots)
            words.add(
                f"the hardware threads of each rank of a node, {layout.cores_per_rank} cores each, as masks; "
                "without -c the step has all cores",
                f"--cpu-bind=mask_cpu:{masks}",
            )
            return
        per_rank = layout.cores_per_rank * layout.smt
        unit = (
            ("core" if per_rank == 1 else "cores")
            if layout.smt == 1
            else f"hardware threads ({layout.cores_per_rank} cores x {layout.smt})"
        )
        words.add(
            f"{per_rank} {unit} for each rank, which srun since 22.05 does not take from the job", "-c", str(per_rank)
        )
        if layout.node.smt > 1:
            used = f"uses {layout.smt} of {layout.node.smt} hardware threads of a core, and -c counts those"
            words.add(used, f"--threads-per-core={layout.smt}")
        kind = "threads" if layout.smt < layout.node.smt else "cores"
        words.add(f"each rank stays on its own {kind}", f"--cpu-bind={kind}")

    def _gpus(self, words: Words, layout: Layout, scheduler: Scheduler) -> None:
        if layout.gpus_per_rank == 0 or scheduler.gpu_request == "none":
            return
        own = layout.gpu_visibility == "own"
        per_task = scheduler.gpu_request == "gpus-per-task" and not gpus_shared(layout) and not _linear(scheduler)
        if own and needs_masks(layout):
            per_task = False  # which GPU goes with which mask is then said, not left to Slurm
        kind = f"{scheduler.gres_type}:" if scheduler.gres_type else ""
        each, count = layout.gpus_per_rank, gpus_asked(layout, scheduler)
        if per_task:
            words.add(f"{counted(each, 'GPU')} for each rank", f"--gpus-per-task={kind}{each}")
        elif scheduler.gpu_request == "gres":
            words.add(f"{counted(count, 'GPU')} of each node", f"--gres=gpu:{kind}{count}")
        else:
            words.add(f"{counted(count, 'GPU')} of each node", f"--gpus-per-node={kind}{count}")
        if own and per_task:
            words.add("each rank sees the GPUs nearest to its cores, and no others", "--gpu-bind=closest")
        elif own:
            words.add("each rank sees its own GPUs and no others", f"--gpu-bind={_gpu_map(layout)}")
        elif per_task or scheduler.exclusive:
            words.add("each rank sees all GPUs of its node, as NCCL and RCCL need to reach peers", "--gpu-bind=none")

    def _wiring(self, words: Words, request: LaunchRequest) -> None:
        if request.mpi:
            kind = request.scheduler.mpi or "pmix"
            words.add("wires the ranks up as MPI processes", f"--mpi={kind}")
        else:
            words.add("nothing is wired up: the ranks are not MPI processes", "--mpi=none")
        given = (*request.scheduler.launcher_options, *request.args)
        if not any(word.startswith("--export") for word in given):
            words.add("the environment of the launch goes along, whatever the job said", "--export=ALL")

    def _ending(self, words: Words) -> None:
        words.add("one rank that fails ends all", "--kill-on-bad-exit=1")
        # Slurm's WaitTime, or another number here, ends ranks that still work some time after the first that is done
        words.add("ranks that are done earlier do not end the others", "--wait=0")

    def _findings(self, layout: Layout, scheduler: Scheduler) -> tuple[Finding, ...]:
        if not needs_masks(layout) or scheduler.exclusive:
            return ()
        return (
            Finding(
                "binding-not-exact", "warning", "the cores of each rank are chosen by Slurm, not as planned",
                "a mask of cores is only obeyed where the job has whole nodes",
                "ask for whole nodes (exclusive: true)",
            ),
        )  # fmt: skip


def needs_masks(layout: Layout) -> bool:
    """Whether Slurm, filling cores in the operating system's order, would give the ranks other cores than planned.

    So it is where the site's domains are ordered by GPU (LUMI-G, Frontier), where a core is left idle so that no rank
    straddles a socket, and where ranks share cores.
    """
    planned = [core for slot in layout.slots for core in sorted(map(layout.node.os_core, slot.cores))]
    ascending = sorted(core for domain in layout.node.domains for core in domain.cores)
    return planned != ascending[: len(planned)]


def gpus_shared(layout: Layout) -> bool:
    """Whether two ranks of a node own the same GPU."""
    return len(used_gpus(layout)) < sum(len(slot.gpus) for slot in layout.slots)


def gpus_asked(layout: Layout, scheduler: Scheduler) -> int:
    """GPUs of each node that the step asks for: as many as the ranks own, as the batch script does.

    Slurm gives out GPUs from 0 on, so other numbers mean all GPUs of a node that is the job's alone, and cannot be had
    on a node shared with other jobs. Raises InputError for such a layout.
    """
    used = used_gpus(layout)
    if used == tuple(range(len(used))):
        return len(used)
    if not scheduler.exclusive:
        raise InputError(
            f"srun cannot give the ranks the GPUs {', '.join(map(str, used))} of a node shared with other jobs",
            hint="use all GPUs of the node, or ask for whole nodes",
        )
    return layout.node.gpus


def _linear(scheduler: Scheduler) -> bool:
    known = version_of(scheduler.version)
    return scheduler.linear and (not known or known >= (24, 11))


def _gpu_map(layout: Layout) -> str:
    if layout.gpus_per_rank == 1:
        return "map_gpu:" + ",".join(str(slot.gpus[0]) for slot in layout.slots)
    return "mask_gpu:" + ",".join(mask(slot.gpus) for slot in layout.slots)
