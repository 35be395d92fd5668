"""PBS Professional and OpenPBS: the head of a qsub script, and qsub, qstat and qdel.

Options: qsub(1B), qstat(1B), qdel(1B) and pbs_resources(7B) of OpenPBS 20 to 23.

A PBS job starts in the user's home directory: the script changes to its directory (``cd "$PBS_O_WORKDIR"``, or the run
directory). A name has at most 15 characters (POSIX, enforced by older PBS); longer ones are truncated.
"""

from __future__ import annotations

import json
import re
from typing import Any

from stackyard.core.errors import InputError
from stackyard.core.findings import counted
from stackyard.host.run.command import CommandError, Result
from stackyard.launch.plan.model import BatchHead, BatchRequest, JobPhase, JobState
from stackyard.launch.plan.schedulers import heads
from stackyard.launch.plan.schedulers.asking import ask, signalled
from stackyard.launch.plan.schedulers.base import Batch

NAME_LENGTH = 15
_MAIL = {"begin": "b", "end": "e", "fail": "a"}

_PHASES: dict[str, JobPhase] = {
    "Q": "queued", "H": "queued", "W": "queued", "T": "queued", "M": "queued", "B": "running",
    "R": "running", "E": "running", "S": "running", "U": "running", "F": "done", "X": "done",
}  # fmt: skip
# JOB_EXEC_* of OpenPBS's job.h with a specific meaning.
_SPECIAL: dict[int, tuple[JobPhase, str]] = {
    -4: ("node-fail", "the daemon of the node restarted"),
    -5: ("node-fail", "the daemon of the node restarted"),
    -6: ("node-fail", "the daemon of the node restarted"),
    -20: ("node-fail", "lost connection to the first node of the job"),
    -25: ("failed", "killed: CPU limit exceeded"),
    -26: ("failed", "killed: virtual memory limit exceeded"),
    -27: ("failed", "killed: memory limit exceeded"),
    -28: ("failed", "killed: CPU time limit exceeded"),
    -29: ("timeout", "killed: wall time limit exceeded"),
}


class Pbs(Batch):
    """qsub scripts. PBS leaves the start of ranks to the MPI."""

    name = "pbs"
    after_end = "afterany:{job}"
    job_variable = "PBS_JOBID"
    submit_host_variable = "PBS_O_HOST"
    submit_program = "qsub"
    job_id_pattern = r"^\s*(\d+(?:\[\])?(?:\.\S+)?)\s*$"  # 1234.server; of an array 1234[].server
    cancel_words, cancelled_words = ("qdel",), ("has finished", "unknown job id")
    requeue_words = ("qrerun",)
    index_variable = "PBS_ARRAY_INDEX"
    hosts_variable = "PBS_NODEFILE"
    carries_environment = False
    inherited = r"(?!PBS_|PMI|PALS_).*|PBS_(CONF_FILE|DEFAULT|SERVER|EXEC|HOME|DPREFIX|AUTH_METHOD|ENCRYPT_METHOD)"

    def head(self, request: BatchRequest) -> BatchHead:
        """The directives. Raises InputError for a quality of service, a signal, and racks without a resource."""
        directives = heads.Directives()
        _about(directives, request)
        _nodes(directives, request)
        _life(directives, request)
        directives.own(request)
        return directives.head("#PBS")

    def task_id(self, job: str, index: str) -> str:
        """The ID of one task of an array."""
        return job.replace("[]", f"[{index}]")

    def state(self, job: str) -> JobState:
        """The state of a job, finished ones included (``-x``).

        Raises MissingError (no qstat), CommandError (no answer from the server).
        """
        result = ask(("qstat", "-x", "-f", "-F", "json", job))
        if result.returncode and re.search(r"unknown job id", result.output, re.IGNORECASE):
            return JobState("unknown", "PBS no longer lists this job")
        jobs = list(_jobs(result).values())
        if not jobs:
            raise CommandError(f"cannot read the state of job {job} from PBS", result)
        return _state(jobs[0])

    def task_states(self, job: str) -> dict[str, JobState] | None:
        """The states of an array's subjobs (``-t``), by index; empty for an array that PBS no longer lists.

        Raises MissingError (no qstat), CommandError (no answer from the server).
        """
        result = ask(("qstat", "-t", "-x", "-f", "-F", "json", job))
        jobs = _jobs(result)
        if not jobs and not re.search(r"unknown job id", result.output, re.IGNORECASE):
            raise CommandError(f"cannot read the states of the tasks of job {job} from PBS", result)
        states = {}
        for name, attributes in jobs.items():
            if index := re.match(r"\d+\[(\d+)\]", name):
                states[index[1]] = _state(attributes)
        return states


def _about(directives: heads.Directives, request: BatchRequest) -> None:
    options = request.options
    whole = heads.name(request)
    short = re.sub(r"\s+", "_", whole)[:NAME_LENGTH]
    if short != whole:
        directives.note(
            "name-shortened", f"the job name is shortened to {short}", "PBS allows 15 characters and no spaces"
        )
    directives.add("job name", "-N", short)
    directives.add_given(options.account, "project to charge", "-A", options.account)
    directives.add_given(heads.queue(request), "queue of the nodes", "-q", heads.queue(request))
    if options.qos:
        raise heads.unsupported("PBS", "quality of service", "use a queue")
    if options.reservation:
        raise heads.unsupported(
            "PBS", "option for a reservation", "use the queue of the reservation: -q R123 (see pbs_rstat)"
        )
    directives.add_given(options.dependency, "starts after other jobs", "-W", f"depend={options.dependency}")
    directives.add_given(options.time_min, "wall time limit", "-l", f"walltime={heads.clock(request)}")


def _nodes(directives: heads.Directives, request: BatchRequest) -> None:
    """Add one chunk per node: cores, MPI processes (lines in the node file), GPUs, memory, and the placement."""
    layout, options = request.layout, request.options
    ncpus = heads.cores(request) * layout.smt
    chunk = [f"{request.nodes}", f"ncpus={ncpus}", f"mpiprocs={layout.ranks_per_node}"]
    ranks = counted(layout.ranks_per_node, "rank")
    says = [f"{counted(request.nodes, 'node')}, each with {counted(ncpus, 'CPU')} and {ranks}"]
    if heads.gpus(request) and request.scheduler.gpu_request != "none":
        chunk.append(f"ngpus={heads.gpus(request)}")
        says.append(f"{counted(heads.gpus(request), 'GPU')}")
    # amounts are per chunk, so per node
    mebibytes, amount = heads.memory(request)
    if mebibytes:
        chunk.append(f"mem={mebibytes}mb")
        says.append(amount)
    if heads.constraint(request):
        own = heads.constraint(request, ":")
        chunk.append(own if all("=" in part for part in own.split(":")) else _no_feature(request))
        says.append("only nodes with this resource")
    directives.add(", ".join(says), "-l", f"select={':'.join(chunk)}")
    # how chunks are placed is a second directive
    place, why = ["scatter"], ["each chunk on a separate node"]
    if heads.exclusive(request):
        place.append("excl")
        why.append("not shared with other jobs")
    if options.pack == "racks":
        place.append(f"group={_rack_group(request)}")
        why.append("nodes with the same value of this resource, so close in the network")
    directives.add("; ".join(why), "-l", f"place={':'.join(place)}")


def _no_feature(request: BatchRequest) -> str:
    raise InputError(
        f"PBS selects nodes by a resource and its value, not by '{heads.constraint(request)}'",
        hint="use the form resource=value",
    )


def _rack_group(request: BatchRequest) -> str:
    """The resource that nodes of a rack share; PBS picks a value of it with enough nodes."""
    if not request.scheduler.rack_group:
        raise InputError(
            "cannot pack nodes into racks: the site file does not define the resource that nodes of a rack share",
            hint="set scheduler.rack_group in site.yaml, e.g. tier0, or leave out --pack racks",
        )
    return request.scheduler.rack_group


def _life(directives: heads.Directives, request: BatchRequest) -> None:
    options = request.options
    directives.add_given(
        heads.output(request), "output file of the script", "-o", heads.output(request, "^array_index^")
    )
    directives.add("stderr goes to the same file", "-j", "oe")
    if options.array:
        if "%" in options.array or "," in options.array:
            raise InputError(
                f"PBS does not support the array {options.array}", hint="use one range, e.g. 0-9 or 0-8:2, without %"
            )
        directives.add("one job per array index", "-J", options.array)
    directives.add(
        "restarts after a node failure or a preemption" if options.requeue else "never restarts",
        "-r", "y" if options.requeue else "n",
    )  # fmt: skip
    if options.signal_s:
        raise heads.unsupported(
            "PBS", "signal before the end of a job", "omit the signal; PBS sends SIGTERM at the end of a job"
        )
    directives.add_given(
        options.mail_events, "events that send mail", "-m", "".join(_MAIL[event] for event in options.mail_events)
    )
    directives.add_given(options.mail, "mail recipient", "-M", options.mail)


def _jobs(result: Result) -> dict[str, dict[str, Any]]:
    """The jobs in qstat's JSON; control characters, which OpenPBS 19 writes, are accepted."""
    try:
        value = json.loads(result.stdout, strict=False)
    except ValueError:
        return {}
    return dict(value.get("Jobs", {})) if isinstance(value, dict) else {}


def _state(attributes: dict[str, Any]) -> JobState:
    phase = _PHASES.get(str(attributes.get("job_state", "")), "unknown")
    restarts = max(int(attributes.get("run_count", 1)) - 1, 0)
    hosts = _hosts(str(attributes.get("exec_host", "")))
    comment = str(attributes.get("comment", ""))
    if phase != "done":
        return JobState(phase, comment if phase == "queued" else "", None, hosts, restarts)
    status = attributes.get("Exit_status")
    if status is None:
        return JobState("cancelled", comment, None, hosts, restarts)
    phase, reason, code = ended(int(status), comment)
    return JobState(phase, reason or comment, code, hosts, restarts)


def ended(status: int, comment: str) -> tuple[JobPhase, str, int]:
    """The end of a job by Exit_status: the script's; 256 + signal (128 + signal from a shell); negative: a PBS error.

    A job cancelled by qdel is recognized by its comment, as is one over its wall time on servers without -29.
    """
    if status in _SPECIAL:
        phase, reason = _SPECIAL[status]
        return phase, reason, signalled(0, 15)
    code = signalled(0, status - 256) if status > 256 else status
    if status and re.search(r"walltime .*exceeded|exceeded .*walltime", comment):
        return "timeout", comment, code
    if status in (256 + 15, 256 + 9, 128 + 15, 128 + 9) and "terminated" in comment:
        return "cancelled", comment, code
    if status < 0:
        return "failed", f"PBS failed to run the job ({status})", 1
    return ("failed" if status else "done"), "", code


def _hosts(text: str) -> tuple[str, ...]:
    """The host names in ``x1/0*64+x2/0*64``."""
    return tuple(dict.fromkeys(part.split("/")[0] for part in text.split("+") if part))
