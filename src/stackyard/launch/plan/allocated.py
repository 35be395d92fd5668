"""Uses the tasks that a Slurm allocation was requested with as the ranks of a launch inside it.

Variables: sbatch(1) and salloc(1), OUTPUT ENVIRONMENT VARIABLES. Those for tasks, CPUs and GPUs per task are set only
if the option was given. In a step (``srun --pty``) they describe the step, which is one shell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stackyard.core.findings import Finding
from stackyard.inputs.sites.sitemodels import Site
from stackyard.launch.layout.model import Layout, Node
from stackyard.launch.plan.inherited import is_within_step
from stackyard.launch.plan.model import BatchHead, LaunchLine
from stackyard.launch.plan.schedulers.base import Offer
from stackyard.launch.plan.schedulers.slurm_nodes import counts, last_number
from stackyard.launch.request.intent import Intent

SHARED_BY_SRUN = frozenset(
    ("--time", "--account", "--partition", "--qos", "--constraint", "--reservation", "--dependency", "--job-name",
     "--mem", "--exclusive", "--switches", "--gres", "--gpus-per-node", "--mail-type", "--mail-user")
)  # fmt: skip
"""Options that sbatch and srun share, for a launch that makes its own allocation."""


def as_allocated(intent: Intent, node: Node, offer: Offer, environ: Mapping[str, str], *, hosts: int) -> Intent:
    """The request, with the allocation's tasks where it does not specify ranks.

    Cores and GPUs per task apply only to that number of tasks, not to another number of ranks.

    Args:
        hosts: the nodes of the allocation.
    """
    ranks = _tasks_per_node(environ, hosts)
    if not ranks or intent.ranks_per_node not in (None, ranks):
        return intent
    changes: dict[str, int] = {"ranks_per_node": ranks}
    if intent.cores_per_rank is None and (cores := _cores(environ, node, offer, ranks)):
        changes["cores_per_rank"] = cores
    if intent.gpus_per_rank is None and (gpus := _gpus(environ, offer, ranks)) is not None:
        changes["gpus_per_rank"] = gpus
    return intent.model_copy(update=changes)


def left_over(layout: Layout, environ: Mapping[str, str]) -> tuple[Finding, ...]:
    """Warnings about unused parts of an allocation: components of a heterogeneous job, uneven CPUs.

    Sources: sbatch(1) and heterogeneous_jobs of Slurm: SLURM_HET_SIZE (SLURM_PACK_SIZE before 20.02).
    """
    findings = []
    components = environ.get("SLURM_HET_SIZE") or environ.get("SLURM_PACK_SIZE", "")
    if components.isdigit() and int(components) > 1:
        findings.append(
            Finding(
                "one-component", "warning", f"this job has {components} components; the launch uses the first one only",
                "a launch has the nodes of one allocation",
                "allocate all nodes alike and describe the programs as roles, or start the other components yourself: "
                "srun --het-group=1",
            )
        )  # fmt: skip
    cpus = counts(environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
    if len(set(cpus)) > 1 and len(cpus) == layout.nodes and not is_within_step(environ):
        used = sum(len({core for slot in part.slots for core in slot.cores}) * part.nodes for part in layout.alike)
        if (spare := sum(cpus) - used * layout.smt) > 0:
            tasks = environ.get("SLURM_TASKS_PER_NODE", "")
            findings.append(
                Finding(
                    "uneven-allocation", "warning", f"{spare} of the {sum(cpus)} CPUs of this allocation are not used",
                    f"its nodes have {', '.join(map(str, cpus))} CPUs" + (f" for {tasks} tasks" if tasks else "")
                    + ", and each node gets the same ranks",
                    "allocate the same number of tasks on each node, e.g. --ntasks-per-node=N instead of -n",
                )
            )  # fmt: skip
    return tuple(findings)


def _tasks_per_node(environ: Mapping[str, str], hosts: int) -> int:
    """``--ntasks-per-node``, else ``-n`` over the nodes; 0 if neither was given, or it does not divide evenly."""
    if is_within_step(environ):
        return 0
    if count := environ.get("SLURM_NTASKS_PER_NODE", ""):
        return int(count) if count.isdigit() else 0
    tasks = environ.get("SLURM_NTASKS", "")
    return int(tasks) // hosts if tasks.isdigit() and int(tasks) % hosts == 0 else 0


def _cores(environ: Mapping[str, str], node: Node, offer: Offer, ranks: int) -> int:
    """``-c`` in cores (Slurm counts hardware threads); without it, the tasks' share unless it is whole nodes."""
    count = environ.get("SLURM_CPUS_PER_TASK", "")
    if count.isdigit():
        threads = int(count)
    elif 0 < offer.cpus < sum(len(domain.cores) for domain in node.domains) * node.smt:
        threads = offer.cpus // ranks
    else:
        return 0
    told = environ.get("SLURM_THREADS_PER_CORE", "")
    alone = 1 if environ.get("SLURM_HINT") == "nomultithread" else node.smt
    return max(1, threads // (int(told) if told.isdigit() and int(told) else alone))


def _gpus(environ: Mapping[str, str], offer: Offer, ranks: int) -> int | None:
    """``--gpus-per-task``, else a share of the allocated GPUs; None: unknown, or fewer than ranks."""
    if count := environ.get("SLURM_GPUS_PER_TASK", ""):
        return last_number(count)
    return None if offer.gpus is None or 0 < offer.gpus < ranks else offer.gpus // ranks


def own_allocation(intent: Intent, site: Site, head: BatchHead, line: LaunchLine) -> LaunchLine:
    """The launch line of srun outside of an allocation, which then creates one.

    It gets the options of the batch script that srun shares with sbatch, and those of the site and of this launch that
    are passed through unchanged.
    """
    own = {word.split("=")[0].split()[0] for word in (*site.scheduler.options, *intent.batch.scheduler_args)}
    words = [d for d in head.directives if d[0].split("=")[0] in SHARED_BY_SRUN or d[0].split("=")[0] in own]
    options = {word.split("=")[0] for word in line.words}
    more = tuple(word for directive in words for word in directive if directive[0].split("=")[0] not in options)
    return replace(line, words=(line.words[0], *more, *line.words[1:]))
