"""Slurm: the head of an sbatch script, and sbatch, scontrol, sacct and scancel.

Options: sbatch(1) of Slurm 20.11 to 25.05. States: squeue(1), JOB STATE CODES.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from stackyard.core.errors import InputError
from stackyard.core.findings import counted
from stackyard.core.hostlist import expand
from stackyard.host.run.command import run, which
from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.launch.plan.model import Allocation, BatchHead, BatchRequest, JobState
from stackyard.launch.plan.schedulers import heads, slurm_nodes
from stackyard.launch.plan.schedulers.base import Batch
from stackyard.launch.plan.schedulers.slurm_state import ask_state, ask_tasks, is_preempted

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./~^*\[\]{}-]+")
_MAIL = {"begin": "BEGIN", "end": "END", "fail": "FAIL"}
_MEMORY = frozenset({"--mem", "--mem-per-cpu", "--mem-per-gpu"})
_CONF = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf")


class Slurm(Batch):
    """sbatch scripts."""

    name = "slurm"
    after_end = "afterany:{job}"
    job_variable = "SLURM_JOB_ID"
    submit_host_variable = "SLURM_SUBMIT_HOST"
    submit_program = "sbatch"
    job_id_pattern = r"^\s*(?:Submitted batch job )?(\d+)(?:;\S+)?\s*$"  # 1234, or 1234;cluster
    task_pattern = "{job}_{index}"
    cancel_words, cancelled_words = ("scancel",), ("already", "invalid job id")
    requeue_words = ("scontrol", "requeue")
    index_variable = "SLURM_ARRAY_TASK_ID"
    inherited = (
        r"(?!S(LURM|RUN|LURMD|LURMSTEPD)_|PMI|PALS_).*|SLURM_(CONF|CLUSTERS|JWT|CONF_SERVER|TIME_FORMAT|EXIT_\w+)"
    )
    queue_option = "qos"  # sbatch -q
    cpus_variable = "SLURM_CPUS_PER_TASK"
    makes_allocation = True
    reports = slurm_nodes

    def default_launcher(self, scheduler: Scheduler) -> str:
        """Slurm's own launcher."""
        return "srun"

    def is_here(self, environ: Mapping[str, str]) -> bool:
        """Whether sbatch belongs to a cluster: many distributions package Slurm's clients.

        Without a configuration or a controller that answers they cannot start jobs.
        """
        if not super().is_here(environ):
            return False
        if environ.get("SLURM_CONF") or any(Path(file).exists() for file in _CONF):
            return True
        if which("scontrol", environ) is None:
            return True  # a site that wraps sbatch alone
        return run(["scontrol", "ping"], env=dict(environ), check=False, timeout_s=20).returncode == 0

    def head(self, request: BatchRequest) -> BatchHead:
        """The directives.

        ``--signal=B:USR1@s`` signals only the batch script. The script ends with ``exec`` of the hub, which forwards
        the signal to the ranks: so it reaches the ranks of every launcher, and no shell in between swallows it. Slurm
        restarts a job after a preemption or a node failure (``--requeue``), not after a timeout: then the hub runs
        `requeue_argv` when it receives the signal.
        """
        directives = heads.Directives()
        _about(directives, request)
        _nodes(directives, request)
        _gpus(directives, request)
        _racks(directives, request)
        _life(directives, request)
        directives.own(request)
        return directives.head("#SBATCH")

    def quoted(self, word: str) -> str:
        """A word quoted for sbatch, which removes backslashes in quotes and starts a comment at any #."""
        if "\n" in word:
            raise InputError(f"a directive cannot contain a line break: {word!r}")
        if _PLAIN.fullmatch(word):
            return word
        text = word.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{text}"'

    def submit_argv(self, script: str) -> tuple[str, ...]:
        """The submit command; ``--parsable`` makes sbatch print only the id."""
        return ("sbatch", "--parsable", script)

    def own_id(self, job: str, index: str, environ: Mapping[str, str]) -> str:
        """The id of this task, derived from the id of the array."""
        return self.task_id(environ.get("SLURM_ARRAY_JOB_ID", job), index)

    def state(self, job: str) -> JobState:
        """Query the controller, then the accounting. Raises MissingError, CommandError."""
        return ask_state(job)

    def task_states(self, job: str) -> dict[str, JobState] | None:
        """The state of each array task by index. Raises MissingError, CommandError."""
        return ask_tasks(job)

    def preempted(self, job: str) -> bool:
        """Whether a job is running in the grace time of a preemption (GraceTime of its partition)."""
        return is_preempted(job)

    def variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables of a job; for a heterogeneous job the first component's, which salloc sets with a suffix."""
        variables = dict(environ)
        if "SLURM_JOB_NODELIST" not in environ:
            for suffix in ("_PACK_GROUP_0", "_HET_GROUP_0"):  # the first is of Slurm before 20.02
                variables |= {
                    name.removesuffix(suffix): text for name, text in environ.items() if name.endswith(suffix)
                }
        return variables

    def allocation(self, environ: dict[str, str]) -> Allocation | None:
        """The allocation from SLURM_JOB_ID and SLURM_JOB_NODELIST, expanded without scontrol."""
        job = environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID", "")
        nodes = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST", "")
        if not job or not nodes:
            return None
        return Allocation("slurm", job, expand(nodes))


def _about(directives: heads.Directives, request: BatchRequest) -> None:
    options = request.options
    directives.add("job name", f"--job-name={heads.name(request)}")
    directives.add_given(options.account, "project to charge", f"--account={options.account}")
    directives.add_given(heads.queue(request), "partition of the nodes", f"--partition={heads.queue(request)}")
    directives.add_given(options.qos, "quality of service", f"--qos={options.qos}")
    directives.add_given(
        heads.constraint(request), "only nodes with this feature", f"--constraint={heads.constraint(request)}"
    )
    directives.add_given(options.reservation, "reservation", f"--reservation={options.reservation}")
    directives.add_given(options.dependency, "starts after other jobs", f"--dependency={options.dependency}")
    directives.add_given(options.time_min, "wall time limit (hours:minutes:seconds)", f"--time={heads.clock(request)}")


def _nodes(directives: heads.Directives, request: BatchRequest) -> None:
    layout = request.layout
    is_range = _is_range(request)
    least = f"{request.least_nodes}-" if is_range else ""
    directives.add("number of nodes", f"--nodes={least}{request.nodes}")
    directives.add_given(
        request.restarts, "the job goes on when a node is lost: the program starts again on the others", "--no-kill"
    )
    per_rank = layout.cores_per_rank * layout.smt
    cores = counted(layout.cores_per_rank, "core")
    says = cores if layout.smt == 1 else f"{per_rank} hardware threads ({cores} x {layout.smt})"
    if is_range:
        directives.add(
            f"{says} for each of {counted(layout.ranks_per_node, 'rank')} per node; with a number of tasks, Slurm "
            "grants the smallest number of nodes",
            f"--cpus-per-task={per_rank * layout.ranks_per_node}",
        )
    else:
        directives.add("ranks per node", f"--ntasks-per-node={layout.ranks_per_node}")
        directives.add(f"{says} per rank", f"--cpus-per-task={per_rank}")
    if layout.node.smt > 1:
        directives.add(
            f"uses {layout.smt} of {layout.node.smt} hardware threads per core; --cpus-per-task counts these",
            f"--threads-per-core={layout.smt}",
        )
    directives.add_given(heads.exclusive(request), "exclusive nodes, not shared with other jobs", "--exclusive")
    _memory(directives, request)
    directives.add_given(
        request.scheduler.core_spec >= 0,
        "cores of each node reserved for the system",
        f"--core-spec={request.scheduler.core_spec}",
    )


def _is_range(request: BatchRequest) -> bool:
    """Whether fewer nodes are accepted.

    Slurm 22.05 grants ``--nodes=1-3 --ntasks-per-node=2`` two nodes on an idle cluster of four, and ``--nodes=1-3``
    with the CPUs of a node three.
    """
    return 0 < request.least_nodes < request.nodes


def _memory(directives: heads.Directives, request: BatchRequest) -> None:
    """Add the memory per node, unless you request it by an option: sbatch rejects --mem together with --mem-per-cpu."""
    if _MEMORY & heads.own_options(request) and not request.options.memory_gib:
        return
    mebibytes, why = heads.memory(request)
    if mebibytes:
        directives.add(why.replace(" of memory", " of memory per node", 1), f"--mem={mebibytes}M")
    elif heads.exclusive(request):
        directives.add("all memory of each node", "--mem=0")


def _gpus(directives: heads.Directives, request: BatchRequest) -> None:
    scheduler, count = request.scheduler, heads.gpus(request)
    how = scheduler.gpu_request
    if not count or how == "none":
        return
    kind = f"{scheduler.gres_type}:" if scheduler.gres_type else ""
    if how == "gpus-per-task" and _is_range(request):
        how = "gpus-per-node"  # it has one task per node
    if how == "gpus-per-task" and scheduler.linear:
        directives.note(
            "gpus-per-node-instead",
            "GPUs are requested per node, not per rank",
            "select/linear allocates whole nodes and rejects GPUs per task since Slurm 24.11",
            "set scheduler.gpu_request: gpus-per-node in site.yaml",
        )
        how = "gpus-per-node"
    if how == "gpus-per-task":
        per_rank = request.layout.gpus_per_rank
        directives.add(f"{counted(per_rank, 'GPU')} per rank", f"--gpus-per-task={kind}{per_rank}")
    elif how == "gres":
        directives.add(f"{counted(count, 'GPU')} per node", f"--gres=gpu:{kind}{count}")
    else:
        directives.add(f"{counted(count, 'GPU')} per node", f"--gpus-per-node={kind}{count}")


def _racks(directives: heads.Directives, request: BatchRequest) -> None:
    count, scheduler = heads.racks(request), request.scheduler
    if not count:
        return
    if scheduler.rack == "switches":
        wait = f"@{scheduler.rack_wait_min}" if scheduler.rack_wait_min else ""
        patience = f"; waits up to {scheduler.rack_wait_min} min for this" if wait else ""
        switches = f"{count} leaf switch{'es' if count > 1 else ''}"
        directives.add(
            f"nodes under at most {switches} of {scheduler.rack_nodes} nodes{patience}",
            f"--switches={count}{wait}",
        )
    elif scheduler.rack == "segment":
        size = min(scheduler.rack_nodes, request.nodes)
        if request.nodes % size:
            raise InputError(
                f"cannot split {request.nodes} nodes into segments of {size} nodes (--segment)",
                hint=f"request a multiple of {size} nodes",
            )
        directives.add(f"nodes in groups of {size} within one block of the network", f"--segment={size}")
    elif scheduler.rack == "exclusive-topo":
        directives.add("whole blocks of the network, not shared with other jobs", "--exclusive=topo")
    else:
        raise heads.unsupported(
            "Slurm", "place=group", "set scheduler.rack to switches, segment or exclusive-topo in site.yaml"
        )


def _life(directives: heads.Directives, request: BatchRequest) -> None:
    options = request.options
    directives.add_given(heads.output(request), "output file of the script", f"--output={heads.output(request, '%a')}")
    directives.add_given(options.array, "one job per array index", f"--array={options.array}")
    if options.requeue:
        directives.add("restarts after a preemption or a node failure", "--requeue")
        directives.add("appends, so that a restart keeps the output of the first run", "--open-mode=append")
    else:
        directives.add("never restarts", "--no-requeue")
    if options.signal_s:
        directives.add(
            f"sends SIGUSR1 to the script {options.signal_s} s before the end; the script forwards it to the ranks",
            f"--signal=B:USR1@{options.signal_s}",
        )
    if options.mail_events:
        events = ",".join(_MAIL[event] for event in options.mail_events)
        directives.add("events that send mail", f"--mail-type={events}")
    directives.add_given(options.mail, "mail recipient", f"--mail-user={options.mail}")
