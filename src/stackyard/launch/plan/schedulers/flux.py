"""Flux: the head of a ``flux batch`` script, and flux batch, jobs, cancel and getattr.

Options: flux-batch(1), flux-jobs(1), flux-cancel(1), flux-hostlist(1) of flux-core 0.50 and later. Directives: RFC 36.
"""

from __future__ import annotations

import re
import shlex

from stackyard.core.errors import InputError, StackyardError
from stackyard.core.findings import counted
from stackyard.core.hostlist import expand
from stackyard.host.run.command import CommandError
from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.launch.plan.model import Allocation, BatchHead, BatchRequest, JobPhase, JobState
from stackyard.launch.plan.schedulers import heads
from stackyard.launch.plan.schedulers.asking import ask, signalled
from stackyard.launch.plan.schedulers.base import Batch

FORMAT = "{state}|{result}|{returncode}|{exception.type}|{nodelist}|{exception.note}"
_STATES: dict[str, JobPhase] = {
    "NEW": "queued", "DEPEND": "queued", "PRIORITY": "queued", "SCHED": "queued", "RUN": "running",
    "CLEANUP": "running",
}  # fmt: skip
_RESULTS: dict[str, JobPhase] = {
    "COMPLETED": "done", "FAILED": "failed", "CANCELED": "cancelled", "TIMEOUT": "timeout",
}  # fmt: skip


class Flux(Batch):
    """Scripts of flux batch: each runs in a Flux instance of its own, on the job's nodes."""

    name = "flux"
    after_end = "afterany:{job}"
    job_variable = "FLUX_URI"
    submit_program = "flux"
    cancel_words, cancelled_words = ("flux", "cancel"), ("is inactive", "unknown job", "inactive")
    arrays = False
    inherited = r"(?!FLUX_(JOB|TASK|KVS)_|PMI).*"
    finds_nodes = ("mpirun",)

    def default_launcher(self, scheduler: Scheduler) -> str:
        """Flux's own launcher."""
        return "flux"

    def head(self, request: BatchRequest) -> BatchHead:
        """The directives. Raises InputError for requests without an option in Flux: QoS, arrays, mail, racks, memory.

        The signal before the end goes to all running jobs of the instance, that is to the ranks, since flux-core 0.51
        (flux-core pull request 5202), and since 2025 to the script as well (issue 6729), which therefore must survive
        it and need not forward it.
        """
        _refuse(request)
        directives = heads.Directives()
        _about(directives, request)
        _nodes(directives, request)
        options = request.options
        if heads.output(request):
            directives.add("output file of the script", f"--output={heads.output(request)}")
            if options.requeue:
                directives.add(
                    "appends, so that a restart keeps the output of the first run", "--setopt=output.mode=append"
                )
        if options.signal_s:
            directives.add(
                f"sends SIGUSR1 to the ranks (since 2025 also to the script) {options.signal_s} s before the end",
                f"--signal=USR1@{options.signal_s}s",
            )
        directives.own(request)
        return directives.head("#flux:")

    def quoted(self, word: str) -> str:
        """A word quoted for Flux, which splits lines like a shell, without expansion (RFC 36)."""
        return shlex.quote(word)

    def submit_argv(self, script: str) -> tuple[str, ...]:
        """The submit command for a file."""
        return ("flux", "batch", script)

    def job_id(self, output: str) -> str:
        """The ID from ``ƒ2Tz1`` (``f2Tz1`` if the locale has no ƒ). Raises StackyardError."""
        for line in reversed(output.strip().splitlines()):
            if re.fullmatch(r"[ƒf][1-9A-HJ-NP-Za-km-z]+|\d+", line.strip()):
                return line.strip()
        raise StackyardError("flux batch printed no job ID", detail=output)

    def task_id(self, job: str, index: str) -> str:
        """Raises InputError: Flux has no arrays."""
        raise InputError(f"Flux has no job arrays: task {index} of {job}")

    def state(self, job: str) -> JobState:
        """Query flux-jobs(1). Raises MissingError (no flux), CommandError (no answer from Flux)."""
        result = ask(("flux", "jobs", "-n", "-o", FORMAT, job))
        rows = [line.split("|", 5) for line in result.stdout.splitlines() if line.count("|") >= 5]
        if rows:
            return _row(rows[0])
        if "No such file" in result.output or "unknown" in result.output.lower():
            return JobState("unknown", "Flux no longer lists this job")
        raise CommandError(f"cannot read the state of job {job} from Flux", result)

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
    rows: tuple[tuple[bool, str, str], ...] = (
        (bool(options.qos), "quality of service", "use a queue, or --scheduler-arg=--urgency=N"),
        (bool(options.array), "job arrays", "submit the jobs individually, or use flux bulksubmit inside one job"),
        (bool(options.mail or options.mail_events), "mail", "follow the job with stackyard runs attach"),
        (bool(options.reservation), "reservations", "use the queue or the constraint of the reservation"),
        (options.pack == "racks", "option for racks", "leave out --pack racks, or use a property: --constraint"),
        (bool(options.memory_gib), "option for memory", "request exclusive nodes"),
    )
    for is_set, what, hint in rows:
        if is_set:
            raise heads.unsupported("Flux", what, hint)


def _about(directives: heads.Directives, request: BatchRequest) -> None:
    options = request.options
    directives.add("job name", f"--job-name={heads.name(request)}")
    directives.add_given(options.account, "bank to charge", f"--bank={options.account}")
    directives.add_given(heads.queue(request), "queue of the nodes", f"--queue={heads.queue(request)}")
    directives.add_given(
        heads.constraint(request),
        "only nodes with these properties (RFC 35)",
        f"--requires={heads.constraint(request)}",
    )
    if options.dependency:
        if not re.match(r"(after(any|ok|notok|except)?|begin-time|singleton|string):?", options.dependency):
            raise InputError(
                f"'{options.dependency}' is not a valid Flux dependency", hint="write it as afterok:ƒ2Tz1 (RFC 26)"
            )
        directives.add("starts after other jobs", f"--dependency={options.dependency}")
    directives.add_given(options.time_min, "wall time limit", f"--time-limit={options.time_min:g}m")


def _nodes(directives: heads.Directives, request: BatchRequest) -> None:
    """Add the nodes: one slot per rank; with ``--exclusive`` the job also gets the rest of each node."""
    directives.add("number of nodes", f"--nodes={request.nodes}")
    layout = request.layout
    slots = request.nodes * layout.ranks_per_node
    directives.add("one slot per rank", f"--nslots={slots}")
    directives.add(f"{counted(layout.cores_per_rank, 'core')} per slot", f"--cores-per-slot={layout.cores_per_rank}")
    gpus = layout.gpus_per_rank if request.scheduler.gpu_request != "none" else 0
    directives.add_given(gpus, f"{counted(gpus, 'GPU')} per slot", f"--gpus-per-slot={gpus}")
    directives.add_given(heads.exclusive(request), "exclusive nodes, not shared with other jobs", "--exclusive")
    if request.options.requeue:
        directives.note("requeue-not-said", "Flux has no option to restart a job", "a node failure ends the job")


def _row(row: list[str]) -> JobState:
    state, result, code, exception, nodes, note = (part.strip() for part in row)
    hosts = expand(nodes) if nodes else ()
    if state != "INACTIVE":
        return JobState(_STATES.get(state, "unknown"), "" if state == "RUN" else state, None, hosts)
    phase = _RESULTS.get(result, "unknown")
    if phase == "failed" and exception in ("node-failure", "exec") and "lost" in note:
        phase = "node-fail"
    number = int(code) if code.lstrip("-").isdigit() else None
    if number is not None and number < 0:
        number = None if number == -128 else signalled(0, -number)
    reason = ": ".join(part for part in (exception, note) if part)
    return JobState(phase, reason, number, hosts)
