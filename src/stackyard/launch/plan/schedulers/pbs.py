"""PBS Professional and OpenPBS: the head of a qsub script, and qsub, qstat and qdel.

Options: qsub(1B), qstat(1B), qdel(1B) and pbs_resources(7B) of OpenPBS 20 to 23.

A PBS job starts in the user's home: the script must go to its folder itself (``cd "$PBS_O_WORKDIR"``, or the run's
own folder). A name has at most 15 characters, as POSIX says of qsub and older PBS enforces; longer ones are cut here.
"""

from __future__ import annotations

import re
from pathlib import Path

from stackyard.errors import InputError, StackyardError
from stackyard.launch.plan.model import Allocation, BatchHead, BatchRequest, JobState
from stackyard.launch.plan.schedulers import heads
from stackyard.launch.plan.schedulers.asking import end
from stackyard.launch.plan.schedulers.pbs_state import ask_state, ask_tasks

NAME_LENGTH = 15
_MAIL = {"begin": "b", "end": "e", "fail": "a"}


class Pbs:
    """qsub scripts."""

    name: heads.SchedulerName = "pbs"
    submit_stdin: bool = False

    def head(self, request: BatchRequest) -> BatchHead:
        """The directives. Raises InputError for a quality of service, a signal, and racks without a resource."""
        made = heads.Directives()
        _about(made, request)
        _nodes(made, request)
        _life(made, request)
        made.own(request)
        return made.head("#PBS")

    def head_text(self, head: BatchHead) -> str:
        """The directives as lines; qsub splits them itself, no shell reads them."""
        return heads.lines(head, [[heads.quoted_once(word) for word in directive] for directive in head.directives])

    def submit_argv(self, script: str) -> tuple[str, ...]:
        """The submission of a file."""
        return ("qsub", script)

    def job_id(self, output: str) -> str:
        """The id from ``1234.server``, or ``1234[].server`` for an array. Raises StackyardError."""
        for line in reversed(output.strip().splitlines()):
            if re.fullmatch(r"\d+(\[\])?(\.\S+)?", line.strip()):
                return line.strip()
        raise StackyardError("qsub printed no job id", detail=output)

    def state(self, job: str) -> JobState:
        """Ask qstat, finished jobs included. Raises MissingError, CommandError."""
        return ask_state(job)

    def task_states(self, job: str) -> dict[str, JobState] | None:
        """The states of the subjobs of an array, by index."""
        return ask_tasks(job)

    def preempted(self, job: str) -> bool:
        """A job that is preempted here ends without a word to it."""
        return False

    def cancel(self, job: str) -> None:
        """End a job; one that has ended already is no error. Raises CommandError."""
        end(("qdel", job), ("has finished", "unknown job id"))

    def requeue_argv(self, job: str) -> tuple[str, ...]:
        """The command that starts a running job again from its beginning, under the same id."""
        return ("qrerun", job)

    def allocation(self, environ: dict[str, str]) -> Allocation | None:
        """From PBS_JOBID and the file PBS_NODEFILE, which names a host once for each of its MPI processes."""
        job, name = environ.get("PBS_JOBID", ""), environ.get("PBS_NODEFILE", "")
        if not job or not name:
            return None
        try:
            hosts = Path(name).read_text(encoding="utf-8").split()
        except OSError as error:
            raise StackyardError(f"the file with this job's hosts cannot be read: {error}") from error
        return Allocation("pbs", job, tuple(dict.fromkeys(hosts)))


def _about(made: heads.Directives, request: BatchRequest) -> None:
    options = request.options
    whole = heads.name(request)
    short = re.sub(r"\s+", "_", whole)[:NAME_LENGTH]
    if short != whole:
        made.note("name-shortened", f"the job is called {short}", "PBS takes 15 characters and no blanks")
    made.add("the job's name in queues", "-N", short)
    if options.account:
        made.add("the project that pays", "-A", options.account)
    if heads.queue(request):
        made.add("the queue with the nodes", "-q", heads.queue(request))
    if options.qos:
        raise heads.unsupported("PBS", "quality of service", "use a queue")
    if options.reservation:
        raise heads.unsupported(
            "PBS", "option for a reservation", "a reservation of PBS is a queue of its own: -q R123 (see pbs_rstat)"
        )
    if options.dependency:
        made.add("starts after other jobs", "-W", f"depend={options.dependency}")
    if options.time_min:
        made.add("ends after this time at the latest", "-l", f"walltime={heads.clock(request)}")


def _nodes(made: heads.Directives, request: BatchRequest) -> None:
    """One chunk per node: cores, MPI processes (lines in the node file), GPUs, memory, and where chunks go."""
    layout, options = request.layout, request.options
    ncpus = heads.cores(request) * layout.smt
    chunk = [f"{request.nodes}", f"ncpus={ncpus}", f"mpiprocs={layout.ranks_per_node}"]
    ranks = heads.counted(layout.ranks_per_node, "rank")
    says = [f"{heads.counted(request.nodes, 'node')} with {heads.counted(ncpus, 'CPU')} and {ranks} each"]
    if heads.gpus(request) and request.scheduler.gpu_request != "none":
        chunk.append(f"ngpus={heads.gpus(request)}")
        says.append(f"{heads.counted(heads.gpus(request), 'GPU')} each")
    if options.memory_gib:
        chunk.append(f"mem={round(options.memory_gib * 1024)}mb")
        says.append(f"{options.memory_gib:g} GiB of memory each")
    if heads.constraint(request):
        chunk.append(heads.constraint(request) if "=" in heads.constraint(request) else _no_feature(request))
        says.append("only nodes with this resource")
    made.add(", ".join(says), "-l", f"select={':'.join(chunk)}")
    place, why = ["scatter"], ["each chunk on a node of its own"]
    if heads.exclusive(request):
        place.append("excl")
        why.append("shared with no other job")
    if options.pack == "racks":
        place.append(f"group={_rack_group(request)}")
        why.append("nodes that have this resource in common, so near each other in the network")
    made.add("; ".join(why), "-l", f"place={':'.join(place)}")


def _no_feature(request: BatchRequest) -> str:
    raise InputError(
        f"PBS chooses nodes by a resource and its value, not by '{heads.constraint(request)}'",
        hint="write the constraint as resource=value",
    )


def _rack_group(request: BatchRequest) -> str:
    """The resource that nodes of a rack share; PBS finds one value of it that has enough nodes."""
    if not request.scheduler.rack_group:
        raise InputError(
            "nodes from as few racks as possible were asked for, but not which resource the nodes of a rack share",
            hint="set scheduler.rack_group in site.yaml, e.g. tier0, or leave out --pack racks",
        )
    return request.scheduler.rack_group


def _life(made: heads.Directives, request: BatchRequest) -> None:
    options = request.options
    if heads.output(request):
        made.add("where the script's own output goes", "-o", heads.output(request, "^array_index^"))
    made.add("its errors go to the same file", "-j", "oe")
    if options.array:
        if "%" in options.array or "," in options.array:
            raise InputError(
                f"PBS cannot express the array {options.array}", hint="write one range, e.g. 0-9 or 0-8:2, without %"
            )
        made.add("one job for each index", "-J", options.array)
    made.add(
        "starts again when a node is lost or after a preemption" if options.requeue else "is never started again",
        "-r", "y" if options.requeue else "n",
    )  # fmt: skip
    if options.signal_s:
        raise heads.unsupported(
            "PBS", "signal before the end of a job", "leave out the signal; the end itself comes as SIGTERM"
        )
    if options.mail_events:
        made.add("when mail is sent", "-m", "".join(_MAIL[event] for event in options.mail_events))
    if options.mail:
        made.add("to whom mail is sent", "-M", options.mail)
