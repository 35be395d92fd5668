"""PBS Professional and OpenPBS: the head of a qsub script, and qsub, qstat and qdel.

Options: qsub(1B), qstat(1B), qdel(1B) and pbs_resources(7B) of OpenPBS 20 to 23.

A PBS job starts in the user's home directory: the script changes to its directory (``cd "$PBS_O_WORKDIR"``, or the run
directory). A name has at most 15 characters (POSIX, enforced by older PBS); longer ones are truncated.
"""

from __future__ import annotations

import re
from pathlib import Path

from stackyard.core.errors import InputError, StackyardError
from stackyard.core.findings import counted
from stackyard.launch.plan.model import Allocation, BatchHead, BatchRequest, JobState
from stackyard.launch.plan.schedulers import heads
from stackyard.launch.plan.schedulers.asking import end
from stackyard.launch.plan.schedulers.base import Batch
from stackyard.launch.plan.schedulers.pbs_state import ask_state, ask_tasks

NAME_LENGTH = 15
_MAIL = {"begin": "b", "end": "e", "fail": "a"}


class Pbs(Batch):
    """qsub scripts. PBS leaves the start of ranks to the MPI."""

    name = "pbs"
    job_variable = "PBS_JOBID"
    submit_program = "qsub"
    index_variable = "PBS_ARRAY_INDEX"
    carries_environment = False
    inherited = r"(?!PBS_|PMI|PALS_).*|PBS_(CONF_FILE|DEFAULT|SERVER|EXEC|HOME|DPREFIX|AUTH_METHOD|ENCRYPT_METHOD)"

    def head(self, request: BatchRequest) -> BatchHead:
        """The directives. Raises InputError for a quality of service, a signal, and racks without a resource."""
        made = heads.Directives()
        _about(made, request)
        _nodes(made, request)
        _life(made, request)
        made.own(request)
        return made.head("#PBS")

    def head_text(self, head: BatchHead) -> str:
        """The directives as lines; qsub splits them, no shell reads them."""
        return heads.lines(head, [[heads.quoted_once(word) for word in directive] for directive in head.directives])

    def job_id(self, output: str) -> str:
        """The ID from ``1234.server``, or ``1234[].server`` for an array. Raises StackyardError."""
        for line in reversed(output.strip().splitlines()):
            if re.fullmatch(r"\d+(\[\])?(\.\S+)?", line.strip()):
                return line.strip()
        raise StackyardError("qsub printed no job ID", detail=output)

    def task_id(self, job: str, index: str) -> str:
        """The ID of one task of an array."""
        return job.replace("[]", f"[{index}]")

    def state(self, job: str) -> JobState:
        """Query qstat, including finished jobs. Raises MissingError, CommandError."""
        return ask_state(job)

    def task_states(self, job: str) -> dict[str, JobState] | None:
        """The states of the subjobs of an array, by index."""
        return ask_tasks(job)

    def cancel(self, job: str) -> None:
        """Cancel a job; not an error if it has already ended. Raises CommandError."""
        end(("qdel", job), ("has finished", "unknown job id"))

    def requeue_argv(self, job: str) -> tuple[str, ...]:
        """The command that restarts a running job from its beginning, under the same ID."""
        return ("qrerun", job)

    def allocation(self, environ: dict[str, str]) -> Allocation | None:
        """From PBS_JOBID and the file PBS_NODEFILE, which lists a host once per MPI process."""
        job, name = environ.get("PBS_JOBID", ""), environ.get("PBS_NODEFILE", "")
        if not job or not name:
            return None
        try:
            hosts = Path(name).read_text(encoding="utf-8").split()
        except OSError as error:
            raise StackyardError(f"cannot read this job's host file: {error}") from error
        return Allocation("pbs", job, tuple(dict.fromkeys(hosts)))


def _about(made: heads.Directives, request: BatchRequest) -> None:
    options = request.options
    whole = heads.name(request)
    short = re.sub(r"\s+", "_", whole)[:NAME_LENGTH]
    if short != whole:
        made.note("name-shortened", f"the job name is shortened to {short}", "PBS allows 15 characters and no spaces")
    made.add("job name", "-N", short)
    if options.account:
        made.add("project to charge", "-A", options.account)
    if heads.queue(request):
        made.add("queue of the nodes", "-q", heads.queue(request))
    if options.qos:
        raise heads.unsupported("PBS", "quality of service", "use a queue")
    if options.reservation:
        raise heads.unsupported(
            "PBS", "option for a reservation", "use the queue of the reservation: -q R123 (see pbs_rstat)"
        )
    if options.dependency:
        made.add("starts after other jobs", "-W", f"depend={options.dependency}")
    if options.time_min:
        made.add("wall time limit", "-l", f"walltime={heads.clock(request)}")


def _nodes(made: heads.Directives, request: BatchRequest) -> None:
    """One chunk per node: cores, MPI processes (lines in the node file), GPUs, memory, and the placement of chunks."""
    layout, options = request.layout, request.options
    ncpus = heads.cores(request) * layout.smt
    chunk = [f"{request.nodes}", f"ncpus={ncpus}", f"mpiprocs={layout.ranks_per_node}"]
    ranks = counted(layout.ranks_per_node, "rank")
    says = [f"{counted(request.nodes, 'node')}, each with {counted(ncpus, 'CPU')} and {ranks}"]
    if heads.gpus(request) and request.scheduler.gpu_request != "none":
        chunk.append(f"ngpus={heads.gpus(request)}")
        says.append(f"{counted(heads.gpus(request), 'GPU')}")
    mebibytes, amount = heads.memory(request)
    if mebibytes:
        chunk.append(f"mem={mebibytes}mb")
        says.append(amount)
    if heads.constraint(request):
        own = heads.constraint(request, ":")
        chunk.append(own if all("=" in part for part in own.split(":")) else _no_feature(request))
        says.append("only nodes with this resource")
    made.add(", ".join(says), "-l", f"select={':'.join(chunk)}")
    place, why = ["scatter"], ["each chunk on a separate node"]
    if heads.exclusive(request):
        place.append("excl")
        why.append("not shared with other jobs")
    if options.pack == "racks":
        place.append(f"group={_rack_group(request)}")
        why.append("nodes with the same value of this resource, so close in the network")
    made.add("; ".join(why), "-l", f"place={':'.join(place)}")


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


def _life(made: heads.Directives, request: BatchRequest) -> None:
    options = request.options
    if heads.output(request):
        made.add("output file of the script", "-o", heads.output(request, "^array_index^"))
    made.add("stderr goes to the same file", "-j", "oe")
    if options.array:
        if "%" in options.array or "," in options.array:
            raise InputError(
                f"PBS does not support the array {options.array}", hint="use one range, e.g. 0-9 or 0-8:2, without %"
            )
        made.add("one job per array index", "-J", options.array)
    made.add(
        "restarts after a node failure or a preemption" if options.requeue else "never restarts",
        "-r", "y" if options.requeue else "n",
    )  # fmt: skip
    if options.signal_s:
        raise heads.unsupported(
            "PBS", "signal before the end of a job", "omit the signal; PBS sends SIGTERM at the end of a job"
        )
    if options.mail_events:
        made.add("events that send mail", "-m", "".join(_MAIL[event] for event in options.mail_events))
    if options.mail:
        made.add("mail recipient", "-M", options.mail)
