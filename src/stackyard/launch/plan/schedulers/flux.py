"""Flux: the head of a ``flux batch`` script, and flux batch, jobs, cancel and getattr.

Options: flux-batch(1), flux-jobs(1), flux-cancel(1), flux-hostlist(1) of flux-core 0.50 and later. Directives: RFC 36.
"""

from __future__ import annotations

import re
import shlex

from stackyard.errors import InputError, StackyardError
from stackyard.launch.plan.model import Allocation, BatchHead, BatchRequest, JobState
from stackyard.launch.plan.schedulers import heads
from stackyard.launch.plan.schedulers.asking import ask, end
from stackyard.launch.plan.schedulers.flux_state import ask_state
from stackyard.launch.plan.schedulers.hostlist import expand


class Flux:
    """Scripts of flux batch: each runs in a Flux instance of its own, on the job's nodes."""

    name: heads.SchedulerName = "flux"
    submit_stdin: bool = False

    def head(self, request: BatchRequest) -> BatchHead:
        """The directives. Raises InputError for what Flux has no option for: QoS, arrays, mail, racks, memory.

        The signal before the end goes to all running jobs of the instance, that is to the ranks, since flux-core 0.51
        (flux-core pull request 5202), and since 2025 to the script as well (issue 6729), which therefore must not end
        by it and need not hand it on.
        """
        _refuse(request)
        made = heads.Directives()
        _about(made, request)
        _nodes(made, request)
        options = request.options
        if heads.output(request):
            made.add("where the script's own output goes", f"--output={heads.output(request)}")
            if options.requeue:
                made.add("a second start does not overwrite the first one's output", "--setopt=output.mode=append")
        if options.signal_s:
            made.add(
                f"{options.signal_s} s before its end SIGUSR1 goes to the ranks, and since 2025 to the script too",
                f"--signal=USR1@{options.signal_s}s",
            )
        made.own(request)
        return made.head("#flux:")

    def head_text(self, head: BatchHead) -> str:
        """The directives as lines; Flux splits them as a shell would, without expanding anything (RFC 36)."""
        return heads.lines(head, [[shlex.quote(word) for word in directive] for directive in head.directives])

    def submit_argv(self, script: str) -> tuple[str, ...]:
        """The submission of a file."""
        return ("flux", "batch", script)

    def job_id(self, output: str) -> str:
        """The id from ``ƒ2Tz1`` (``f2Tz1`` where the locale has no ƒ). Raises StackyardError."""
        for line in reversed(output.strip().splitlines()):
            if re.fullmatch(r"[ƒf][1-9A-HJ-NP-Za-km-z]+|\d+", line.strip()):
                return line.strip()
        raise StackyardError("flux batch printed no job id", detail=output)

    def state(self, job: str) -> JobState:
        """Ask flux jobs. Raises MissingError, CommandError."""
        return ask_state(job)

    def task_states(self, job: str) -> dict[str, JobState] | None:
        """None: an array is asked after as a whole here."""
        return None

    def preempted(self, job: str) -> bool:
        """A job that is preempted here ends without a word to it."""
        return False

    def requeue_argv(self, job: str) -> tuple[str, ...]:
        """None: Flux has no command that starts a job again."""
        return ()

    def cancel(self, job: str) -> None:
        """End a job; one that has ended already is no error. Raises CommandError."""
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
        (bool(options.array), "job arrays", "submit the jobs one by one, or use flux bulksubmit inside one job"),
        (bool(options.mail or options.mail_events), "mail", "follow the job with stackyard runs attach"),
        (bool(options.reservation), "reservations", "use the queue or the constraint that your site names"),
        (options.pack == "racks", "option for racks", "leave out --pack racks, or use a property: --constraint"),
        (bool(options.memory_gib), "option for memory", "ask for whole nodes"),
    )
    for given, what, hint in wanted:
        if given:
            raise heads.unsupported("Flux", what, hint)


def _about(made: heads.Directives, request: BatchRequest) -> None:
    options = request.options
    made.add("the job's name in queues", f"--job-name={heads.name(request)}")
    if options.account:
        made.add("the bank that pays", f"--bank={options.account}")
    if heads.queue(request):
        made.add("the queue with the nodes", f"--queue={heads.queue(request)}")
    if heads.constraint(request):
        made.add("only nodes with these properties (RFC 35)", f"--requires={heads.constraint(request)}")
    if options.dependency:
        if not re.match(r"(after(any|ok|notok|except)?|begin-time|singleton|string):?", options.dependency):
            raise InputError(
                f"'{options.dependency}' is not a dependency of Flux", hint="write it as afterok:ƒ2Tz1 (RFC 26)"
            )
        made.add("starts after other jobs", f"--dependency={options.dependency}")
    if options.time_min:
        made.add("ends after this time at the latest", f"--time-limit={options.time_min:g}m")


def _nodes(made: heads.Directives, request: BatchRequest) -> None:
    """One slot per rank; with ``--exclusive`` the rest of each node belongs to the job too."""
    made.add("how many nodes", f"--nodes={request.nodes}")
    layout = request.layout
    slots = request.nodes * layout.ranks_per_node
    made.add("a slot for each rank", f"--nslots={slots}")
    made.add(
        f"{heads.counted(layout.cores_per_rank, 'core')} in each slot", f"--cores-per-slot={layout.cores_per_rank}"
    )
    gpus = layout.gpus_per_rank if request.scheduler.gpu_request != "none" else 0
    if gpus:
        made.add(f"{heads.counted(gpus, 'GPU')} in each slot", f"--gpus-per-slot={gpus}")
    if heads.exclusive(request):
        made.add("whole nodes, shared with no other job", "--exclusive")
    if request.options.requeue:
        made.note("requeue-not-said", "Flux has no option to start a job again", "a lost node ends the job")
