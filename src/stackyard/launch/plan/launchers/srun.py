"""srun: Slurm's own launcher.

Options and their meaning: srun(1) of Slurm 20.11 to 24.11, and the release notes of 20.11 (--exact, --overlap), 22.05
(srun no longer inherits --cpus-per-task) and 24.11 (select/linear rejects GPUs per task).
"""

from __future__ import annotations

from dataclasses import replace

from stackyard.core.errors import InputError
from stackyard.core.findings import Finding, counted
from stackyard.core.hostlist import compress
from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.launch.layout.model import Layout
from stackyard.launch.plan.launchers.words import (
    Words,
    equal,
    mask,
    need_hosts,
    shares_cores,
    threads_of,
    used_gpus,
    version_of,
)
from stackyard.launch.plan.model import LaunchLine, LaunchRequest


class Srun:
    """Ranks as the tasks of one job step."""

    name = "srun"

    def line(self, request: LaunchRequest) -> LaunchLine:
        """The step's options. Raises InputError if hosts are required and unknown, or differ where they must not."""
        layout, scheduler = request.layout, request.scheduler
        if layout.hosts_differ and request.mpi and scheduler.mpi == "pmi2":
            raise InputError(
                "MPI_Init waits for ever in a step whose nodes have different ranks, with pmi2 (seen with Slurm 22.05)",
                hint="use --launcher mpirun or mpich, scheduler.mpi: pmix with an MPI that supports it, or give all "
                "nodes the same ranks (beside:)",
            )
        words = Words("srun", reason="starts the ranks as one job step of the allocation")
        for number, part in enumerate(layout.alike):
            if number:
                words.next_nodes()
            self._nodes_alike(words, replace(request, layout=part), several=layout.hosts_differ)
        findings = [finding for part in layout.alike for finding in self._findings(part, scheduler)]
        return LaunchLine(words.words, "slurm", words.reasons, findings=tuple(dict.fromkeys(findings)))

    def _nodes_alike(self, words: Words, request: LaunchRequest, several: bool) -> None:
        """Add the options for nodes with the same ranks: all nodes, or one component of a heterogeneous step (20.11).

        Each component names its nodes; its ranks and its node numbers go on from those before it.
        """
        layout, scheduler = request.layout, request.scheduler
        self._where(words, request, named=not request.inside or (several and bool(layout.hosts)))
        self._cores(words, layout, scheduler)
        self._gpus(words, layout, scheduler)
        self._wiring(words, request)
        self._ending(words)
        words.own(request)

    def _where(self, words: Words, request: LaunchRequest, named: bool) -> None:
        """Add nodes and ranks. Slurm numbers nodes in the order of the allocation's host list."""
        layout, scheduler = request.layout, request.scheduler
        words.add("number of nodes", "-N", str(layout.nodes))
        words.add("total number of ranks", "-n", str(layout.ranks))
        words.add("ranks per node", f"--ntasks-per-node={layout.ranks_per_node}")
        if layout.distribution == "cyclic":
            words.add("cyclic distribution over nodes, block distribution over sockets", "--distribution=cyclic:block")
        else:
            words.add(
                "block distribution: ranks fill a node, and a socket, before the next", "--distribution=block:block"
            )
        if named:
            hosts = need_hosts(request, self.name)
            words.add("only these nodes of the allocation", "-w", compress(hosts))
        known = version_of(scheduler.version)
        if known and known < (20, 11):
            return  # steps overlap by default
        if request.within_step:
            shell = "shares the nodes with the step that you are in (srun --pty), which holds all that it was given"
            words.add(f"{shell}: the ranks would wait for its end", "--overlap")
        elif not request.inside:
            words.add("may overlap with another step, e.g. one that is ending", "--overlap")

    def _cores(self, words: Words, layout: Layout, scheduler: Scheduler) -> None:
        """Add cores, by number if Slurm's own order matches the plan, else by mask.

        -c implies --exact (srun(1)): the step gets R x C cores that Slurm chooses, which may differ from the masks.
        Without -c it gets all cores of its nodes, and the masks select from them.
        """
        if scheduler.core_spec >= 0:
            words.add(
                f"{counted(scheduler.core_spec, 'core')} of each node reserved for the system",
                "-S",
                str(scheduler.core_spec),
            )
        if shares_cores(layout):
            words.add("allows more ranks than cores on a node", "--overcommit")
        if needs_masks(layout) and scheduler.exclusive:
            masks = ",".join(mask(threads_of(layout, slot)) for slot in layout.slots)
            share = f", {counted(layout.cores_per_rank, 'core')} each" if equal(layout) else ""
            words.add(
                f"masks of the hardware threads of each rank of a node{share}; without -c the step has all cores",
                f"--cpu-bind=mask_cpu:{masks}",
            )
            return
        if not equal(layout):
            raise InputError(
                "srun assigns every rank of a node the same number of cores and GPUs, unless the nodes are exclusive",
                hint="use exclusive nodes (exclusive: true), or the same cores_per_rank and gpus_per_rank in all roles",
            )
        per_rank = layout.cores_per_rank * layout.smt
        unit = (
            ("core" if per_rank == 1 else "cores")
            if layout.smt == 1
            else f"hardware threads ({layout.cores_per_rank} cores x {layout.smt})"
        )
        words.add(
            f"{per_rank} {unit} per rank; since 22.05 srun does not inherit this from the job", "-c", str(per_rank)
        )
        if layout.node.smt > 1:
            used = f"uses {layout.smt} of {layout.node.smt} hardware threads per core; -c counts these"
            words.add(used, f"--threads-per-core={layout.smt}")
        kind = "threads" if layout.smt < layout.node.smt else "cores"
        words.add(f"binds each rank to its own {kind}", f"--cpu-bind={kind}")

    def _gpus(self, words: Words, layout: Layout, scheduler: Scheduler) -> None:
        if not used_gpus(layout) or scheduler.gpu_request == "none":
            return
        own = layout.gpu_visibility == "own"
        per_task = scheduler.gpu_request == "gpus-per-task" and not gpus_shared(layout) and not _linear(scheduler)
        if not equal(layout) or (own and needs_masks(layout)):
            per_task = False  # the GPU of each mask is set explicitly
        kind = f"{scheduler.gres_type}:" if scheduler.gres_type else ""
        per_rank, count = layout.gpus_per_rank, gpus_asked(layout, scheduler)
        if per_task:
            words.add(f"{counted(per_rank, 'GPU')} per rank", f"--gpus-per-task={kind}{per_rank}")
        elif scheduler.gpu_request == "gres":
            words.add(f"{counted(count, 'GPU')} per node", f"--gres=gpu:{kind}{count}")
        else:
            words.add(f"{counted(count, 'GPU')} per node", f"--gpus-per-node={kind}{count}")
        if own and per_task:
            words.add("each rank sees only the GPUs nearest to its cores", "--gpu-bind=closest")
        elif own:
            words.add("each rank sees only its own GPUs", f"--gpu-bind={_gpu_map(layout)}")
        elif per_task or scheduler.exclusive:
            words.add(
                "each rank sees all GPUs of its node, so that NCCL and RCCL can use peer access", "--gpu-bind=none"
            )

    def _wiring(self, words: Words, request: LaunchRequest) -> None:
        """Add the site's kind of PMI, if it names one.

        The cluster's default (MpiDefault of slurm.conf) suits its own MPI: pmix Open MPI, cray_shasta Cray MPICH.
        """
        if request.mpi and request.scheduler.mpi:
            words.add("PMI interface of the MPI processes", f"--mpi={request.scheduler.mpi}")
        elif not request.mpi:
            words.add("no PMI: the ranks are not MPI processes", "--mpi=none")
        settings = (*request.scheduler.launcher_options, *request.args)
        if not any(word.startswith("--export") for word in settings):
            words.add("passes the environment of the launch to the ranks, whatever the job's --export", "--export=ALL")

    def _ending(self, words: Words) -> None:
        words.add("a failed rank terminates all ranks", "--kill-on-bad-exit=1")
        # otherwise Slurm's WaitTime kills running ranks some time after the first one finished
        words.add("ranks that finish early do not terminate the others", "--wait=0")

    def _findings(self, layout: Layout, scheduler: Scheduler) -> tuple[Finding, ...]:
        if not needs_masks(layout) or scheduler.exclusive:
            return ()
        return (
            Finding(
                "binding-not-exact", "warning", "Slurm chooses the cores of each rank, not the plan",
                "Slurm applies core masks only to jobs with exclusive nodes",
                "request exclusive nodes (exclusive: true)",
            ),
        )  # fmt: skip


def needs_masks(layout: Layout) -> bool:
    """Whether Slurm, which fills cores in the operating system's order, would assign other cores than planned.

    This is so if the site's domains are ordered by GPU (LUMI-G, Frontier), if a core stays idle so that no rank
    straddles a socket, and if ranks share cores or have unequal numbers of them.
    """
    if not equal(layout):
        return True
    planned = [core for slot in layout.slots for core in sorted(map(layout.node.os_core, slot.cores))]
    ascending = sorted(core for domain in layout.node.domains for core in domain.cores)
    return planned != ascending[: len(planned)]


def gpus_shared(layout: Layout) -> bool:
    """Whether two ranks of a node own the same GPU."""
    return len(used_gpus(layout)) < sum(len(slot.gpus) for slot in layout.slots)


def gpus_asked(layout: Layout, scheduler: Scheduler) -> int:
    """GPUs per node that the step requests: as many as the ranks own, as in the batch script.

    Slurm assigns GPUs from 0 on, so other numbers require all GPUs of an exclusive node. Raises InputError for such a
    layout on a shared node.
    """
    used = used_gpus(layout)
    if used == tuple(range(len(used))):
        return len(used)
    if not scheduler.exclusive:
        raise InputError(
            f"srun cannot select the GPUs {', '.join(map(str, used))} on a node shared with other jobs",
            hint="use all GPUs of the node, or request exclusive nodes",
        )
    return layout.node.gpus


def _linear(scheduler: Scheduler) -> bool:
    known = version_of(scheduler.version)
    return scheduler.linear and (not known or known >= (24, 11))


def _gpu_map(layout: Layout) -> str:
    if layout.gpus_per_rank == 1:
        return "map_gpu:" + ",".join(str(slot.gpus[0]) for slot in layout.slots)
    return "mask_gpu:" + ",".join(mask(slot.gpus) for slot in layout.slots)
