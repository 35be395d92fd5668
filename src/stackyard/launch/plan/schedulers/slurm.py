"""Slurm: the head of an sbatch script, and sbatch, scontrol, sacct and scancel.

Options: sbatch(1) of Slurm 20.11 to 25.05. States: squeue(1), JOB STATE CODES.
"""

from __future__ import annotations

import re

from stackyard.errors import InputError, StackyardError
from stackyard.launch.plan.model import Allocation, BatchHead, BatchRequest, JobState
from stackyard.launch.plan.schedulers import heads
from stackyard.launch.plan.schedulers.asking import end
from stackyard.launch.plan.schedulers.hostlist import expand
from stackyard.launch.plan.schedulers.slurm_state import ask_state, ask_tasks, is_preempted

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./~^*\[\]{}-]+")
_MAIL = {"begin": "BEGIN", "end": "END", "fail": "FAIL"}


class Slurm:
    """sbatch scripts."""

    name: heads.SchedulerName = "slurm"
    submit_stdin: bool = False

    def head(self, request: BatchRequest) -> BatchHead:
        """The directives.

        ``--signal=B:USR1@s`` signals the batch script alone. The script ends with ``exec`` of the hub, which hands the
        signal on to the ranks: so it reaches ranks of every launcher, and a shell between does not swallow it. Slurm
        starts a job again after a preemption or a lost node by itself (``--requeue``), not after a time-out: then the
        hub runs `requeue_argv` when the signal comes.
        """
        made = heads.Directives()
        _about(made, request)
        _nodes(made, request)
        _gpus(made, request)
        _racks(made, request)
        _life(made, request)
        made.own(request)
        return made.head("#SBATCH")

    def head_text(self, head: BatchHead) -> str:
        """The directives as lines; sbatch splits them itself and knows double quotes and backslashes."""
        return heads.lines(head, [[_quoted(word) for word in directive] for directive in head.directives])

    def submit_argv(self, script: str) -> tuple[str, ...]:
        """``--parsable`` makes sbatch print the id alone."""
        return ("sbatch", "--parsable", script)

    def job_id(self, output: str) -> str:
        """The id from ``1234`` or ``1234;cluster``. Raises StackyardError."""
        for line in reversed(output.strip().splitlines()):
            match = re.fullmatch(r"(?:Submitted batch job )?(\d+)(?:;\S+)?", line.strip())
            if match:
                return match[1]
        raise StackyardError("sbatch printed no job id", detail=output)

    def state(self, job: str) -> JobState:
        """Ask the controller, and the accounting where it has forgotten the job. Raises MissingError, CommandError."""
        return ask_state(job)

    def task_states(self, job: str) -> dict[str, JobState] | None:
        """How each task of an array is, by its index. Raises MissingError, CommandError."""
        return ask_tasks(job)

    def preempted(self, job: str) -> bool:
        """Whether a job still runs and is in the time that a preemption leaves it (GraceTime of its partition)."""
        return is_preempted(job)

    def cancel(self, job: str) -> None:
        """End a job; one that has ended already is no error. Raises CommandError."""
        end(("scancel", job), ("already", "invalid job id"))

    def requeue_argv(self, job: str) -> tuple[str, ...]:
        """The command that starts a running job again from its beginning, under the same id."""
        return ("scontrol", "requeue", job)

    def allocation(self, environ: dict[str, str]) -> Allocation | None:
        """From SLURM_JOB_ID and SLURM_JOB_NODELIST; the list is expanded without scontrol."""
        job = environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID", "")
        nodes = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST", "")
        if not job or not nodes:
            return None
        return Allocation("slurm", job, expand(nodes))


def _quoted(word: str) -> str:
    """sbatch takes backslashes away in both kinds of quotes, and # begins a comment even inside a word."""
    if "\n" in word:
        raise InputError(f"a directive cannot span lines: {word!r}")
    if _PLAIN.fullmatch(word):
        return word
    text = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _about(made: heads.Directives, request: BatchRequest) -> None:
    options = request.options
    made.add("the job's name in queues", f"--job-name={heads.name(request)}")
    if options.account:
        made.add("the project that pays", f"--account={options.account}")
    if heads.queue(request):
        made.add("the partition with the nodes", f"--partition={heads.queue(request)}")
    if options.qos:
        made.add("the quality of service, with its limits and priority", f"--qos={options.qos}")
    if heads.constraint(request):
        made.add("only nodes with this feature", f"--constraint={heads.constraint(request)}")
    if options.reservation:
        made.add("nodes of this reservation", f"--reservation={options.reservation}")
    if options.dependency:
        made.add("starts after other jobs", f"--dependency={options.dependency}")
    if options.time_min:
        made.add("ends after this time at the latest (hours:minutes:seconds)", f"--time={heads.clock(request)}")


def _nodes(made: heads.Directives, request: BatchRequest) -> None:
    layout, options = request.layout, request.options
    made.add("how many nodes", f"--nodes={request.nodes}")
    made.add("how many ranks on each node", f"--ntasks-per-node={layout.ranks_per_node}")
    per_rank = layout.cores_per_rank * layout.smt
    cores = heads.counted(layout.cores_per_rank, "core")
    says = cores if layout.smt == 1 else f"{per_rank} hardware threads ({cores} x {layout.smt})"
    made.add(f"{says} for each rank", f"--cpus-per-task={per_rank}")
    if layout.node.smt > 1:
        made.add(
            f"uses {layout.smt} of {layout.node.smt} hardware threads of a core, and the line above counts those",
            f"--threads-per-core={layout.smt}",
        )
    if heads.exclusive(request):
        made.add("whole nodes, shared with no other job", "--exclusive")
    if options.memory_gib:
        made.add(f"{options.memory_gib:g} GiB of memory on each node", f"--mem={round(options.memory_gib * 1024)}M")
    elif heads.exclusive(request):
        made.add("all memory of each node", "--mem=0")
    if request.scheduler.core_spec >= 0:
        made.add("cores of each node kept for the system", f"--core-spec={request.scheduler.core_spec}")


def _gpus(made: heads.Directives, request: BatchRequest) -> None:
    scheduler, count = request.scheduler, heads.gpus(request)
    how = scheduler.gpu_request
    if not count or how == "none":
        return
    kind = f"{scheduler.gres_type}:" if scheduler.gres_type else ""
    if how == "gpus-per-task" and scheduler.linear:
        made.note(
            "gpus-per-node-instead",
            "GPUs are asked for per node and not per rank",
            "select/linear gives whole nodes and has refused GPUs per task since Slurm 24.11",
            "scheduler.gpu_request: gpus-per-node",
        )
        how = "gpus-per-node"
    if how == "gpus-per-task":
        each = request.layout.gpus_per_rank
        made.add(f"{heads.counted(each, 'GPU')} for each rank", f"--gpus-per-task={kind}{each}")
    elif how == "gres":
        made.add(f"{heads.counted(count, 'GPU')} on each node", f"--gres=gpu:{kind}{count}")
    else:
        made.add(f"{heads.counted(count, 'GPU')} on each node", f"--gpus-per-node={kind}{count}")


def _racks(made: heads.Directives, request: BatchRequest) -> None:
    count, scheduler = heads.racks(request), request.scheduler
    if not count:
        return
    if scheduler.rack == "switches":
        wait = f"@{scheduler.rack_wait_min}" if scheduler.rack_wait_min else ""
        patience = f", and waits up to {scheduler.rack_wait_min} min for that" if wait else ""
        switches = f"{count} leaf switch{'es' if count > 1 else ''}"
        made.add(
            f"nodes under at most {switches} of {scheduler.rack_nodes} nodes{patience}",
            f"--switches={count}{wait}",
        )
    elif scheduler.rack == "segment":
        size = min(scheduler.rack_nodes, request.nodes)
        if request.nodes % size:
            raise InputError(
                f"{request.nodes} nodes cannot be cut into segments of {size} nodes (--segment)",
                hint=f"ask for a multiple of {size} nodes",
            )
        made.add(f"nodes in groups of {size} within one block of the network", f"--segment={size}")
    elif scheduler.rack == "exclusive-topo":
        made.add("whole blocks of the network, shared with no other job", "--exclusive=topo")
    else:
        raise heads.unsupported(
            "Slurm", "place=group", "set scheduler.rack to switches, segment or exclusive-topo in site.yaml"
        )


def _life(made: heads.Directives, request: BatchRequest) -> None:
    options = request.options
    if heads.output(request):
        made.add("where the script's own output goes", f"--output={heads.output(request, '%a')}")
    if options.array:
        made.add("one job for each index", f"--array={options.array}")
    if options.requeue:
        made.add("starts again after a preemption or a lost node", "--requeue")
        made.add("a second start does not overwrite the first one's output", "--open-mode=append")
    else:
        made.add("is never started a second time", "--no-requeue")
    if options.signal_s:
        made.add(
            f"{options.signal_s} s before its end the script gets SIGUSR1 and hands it on to the ranks",
            f"--signal=B:USR1@{options.signal_s}",
        )
    if options.mail_events:
        events = ",".join(_MAIL[event] for event in options.mail_events)
        made.add("when mail is sent", f"--mail-type={events}")
    if options.mail:
        made.add("to whom mail is sent", f"--mail-user={options.mail}")
