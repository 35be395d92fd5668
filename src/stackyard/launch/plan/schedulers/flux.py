"""Flux: the head of a ``flux batch`` script, and flux batch, jobs, cancel and getattr.

Options: flux-batch(1), flux-jobs(1), flux-cancel(1), flux-hostlist(1) of flux-core 0.50 and later. Directives: RFC 36.
"""

from __future__ import annotations

import re
import shlex

from stackyard.core.errors import InputError, StackyardError
from stackyard.core.findings import counted
from stackyard.inputs.sites.sitemodels import Scheduler
from stackyard.launch.plan.model import Allocation, BatchHead, BatchRequest, JobState
from stackyard.launch.plan.schedulers import heads
from stackyard.launch.plan.schedulers.asking import ask, end
from stackyard.launch.plan.schedulers.base import Batch
from stackyard.launch.plan.schedulers.flux_state import ask_state
from stackyard.launch.plan.schedulers.hostlist import expand


class Flux(Batch):
    """Scripts of flux batch: each runs in a Flux instance of its own, on the job's nodes."""

    name = "flux"
    job_variable = "FLUX_URI"
    submit_program = "flux"
    arrays = False
    inherited = r"(?!FLUX_(JOB|TASK|KVS)_|PMI).*"
    finds_nodes = ("mpirun",)

    def default_launcher(self, scheduler: Scheduler) -> str:
        """Its own."""
        return "flux"

    def head(self, request: BatchRequest) -> BatchHead:
        """The directives. Raises InputError for requests without an option in Flux: QoS, arrays, mail, racks, memory.

        The signal before the end goes to all running jobs of the instance, that is to the ranks, since flux-core 0.51
        (flux-core pull request 5202), and since 2025 to the script as well (issue 6729), which therefore must survive
        it and need not forward it.
        """
        _refuse(request)
        made = heads.Directives()
        _about(made, request)
        _nodes(made, request)
        options = request.options
        if heads.output(request):
            made.add("output file of the script", f"--output={heads.output(request)}")
            if options.requeue:
                made.add("appends, so that a restart keeps the output of the first run", "--setopt=output.mode=append")
        if options.signal_s:
            made.add(
                f"sends SIGUSR1 to the ranks (since 2025 also to the script) {options.signal_s} s before the end",
                f"--signal=USR1@{options.signal_s}s",
            )
        made.own(request)
        return made.head("#flux:")

    def head_text(self, head: BatchHead) -> str:
        """The directives as lines; Flux splits them like a shell, without expansion (RFC 36)."""
        return heads.lines(head, [[shlex.quote(word) for word in directive] for directive in head.directives])

    def submit_argv(self, script: str) -> tuple[str, ...]:
        """The submission of a file."""
        return ("flux", "batch", script)

    def job_id(self, output: str) -> str:
        """The ID from ``ƒ2Tz1`` (``f2Tz1`` if the locale has no ƒ). Raises StackyardError."""
        for line in reversed(output.strip().splitlines()):
            if re.fullmatch(r"[ƒf][1-9A-HJ-NP-Za-km-z]+|\d+", line.strip()):
                return line.strip()
        raise StackyardError("flux batch printed no job ID", detail=output)

    def task_id(self, job: str, index: str) -> str:
        """Flux has no arrays."""
        raise InputError(f"Flux has no job arrays: task {index} of {job}")

    def state(self, job: str) -> JobState:
        """Ask flux jobs. Raises MissingError, CommandError."""
        return ask_state(job)

    def cancel(self, job: str) -> None:
        """Cancel a job; not an error if it has already ended. Raises CommandError."""
        end(("flux", "cancel", job), ("is inactive", "unknown job", "inactive"))

    def allocation(self, environ: dict[str, str]) -> Allocation | None:
        """The nodes of the instance that runs a batch script (or ``flux alloc``): its attribute ``hostlist``.

        flux-environment(7): FLUX_URI names the instance and FLUX_ENCLOSING_ID the job that it is; before that variable
        there was only the attribute ``jobid``, which the system's own instance (no allocation) does not have.
        """
        if not environ.get("FLUX_URI"):
            return None
        job = environ.get("FLUX_ENCLOSING_ID") or ask(("flux", "getattr", "jobid")).stdout.strip()
        if not job:
            return None
        return Allocation("flux", job, expand(ask(("flux", "getattr", "hostlist"), check=True).stdout.strip()))


def _refuse(request: BatchRequest) -> None:
    options = request.options
    wanted: tuple[tuple[bool, str, str], ...] = (
        (bool(options.qos), "quality of service", "use a queue, or --scheduler-arg=--urgency=N"),
        (bool(options.array), "job arrays", "submit the jobs individually, or use flux bulksubmit inside one job"),
        (bool(options.mail or options.mail_events), "mail", "follow the job with stackyard runs attach"),
        (bool(options.reservation), "reservations", "use the queue or the constraint of the reservation"),
        (options.pack == "racks", "option for racks", "leave out --pack racks, or use a property: --constraint"),
        (bool(options.memory_gib), "option for memory", "request exclusive nodes"),
    )
    for given, what, hint in wanted:
        if given:
            raise heads.unsupported("Flux", what, hint)


def _about(made: heads.Directives, request: BatchRequest) -> None:
    options = request.options
    made.add("job name", f"--job-name={heads.name(request)}")
    if options.account:
        made.add("bank to charge", f"--bank={options.account}")
    if heads.queue(request):
        made.add("queue of the nodes", f"--queue={heads.queue(request)}")
    if heads.constraint(request):
        made.add("only nodes with these properties (RFC 35)", f"--requires={heads.constraint(request)}")
    if options.dependency:
        if not re.match(r"(after(any|ok|notok|except)?|begin-time|singleton|string):?", options.dependency):
            raise InputError(
                f"'{options.dependency}' is not a valid Flux dependency", hint="write it as afterok:ƒ2Tz1 (RFC 26)"
            )
        made.add("starts after other jobs", f"--dependency={options.dependency}")
    if options.time_min:
        made.add("wall time limit", f"--time-limit={options.time_min:g}m")


def _nodes(made: heads.Directives, request: BatchRequest) -> None:
    """One slot per rank; with ``--exclusive`` the job also gets the rest of each node."""
    made.add("number of nodes", f"--nodes={request.nodes}")
    layout = request.layout
    slots = request.nodes * layout.ranks_per_node
    made.add("one slot per rank", f"--nslots={slots}")
    made.add(f"{counted(layout.cores_per_rank, 'core')} per slot", f"--cores-per-slot={layout.cores_per_rank}")
    gpus = layout.gpus_per_rank if request.scheduler.gpu_request != "none" else 0
    if gpus:
        made.add(f"{counted(gpus, 'GPU')} per slot", f"--gpus-per-slot={gpus}")
    if heads.exclusive(request):
        made.add("exclusive nodes, not shared with other jobs", "--exclusive")
    if request.options.requeue:
        made.note("requeue-not-said", "Flux has no option to restart a job", "a node failure ends the job")
