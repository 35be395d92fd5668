"""LSF: the head of a bsub script, and bsub, bjobs and bkill.

Options: bsub(1) and bjobs(1) of IBM Spectrum LSF 10.1, https://www.ibm.com/docs/en/spectrum-lsf/10.1.0. Easy and
expert mode of CSM: the pages of -csm, -nnodes, -cn_cu and -alloc_flags there, and the Summit user guide of OLCF.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from stackyard.core.errors import InputError
from stackyard.core.findings import counted
from stackyard.host.run.command import CommandError
from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.launch.plan.model import Allocation, BatchHead, BatchRequest, JobPhase, JobState
from stackyard.launch.plan.schedulers import heads
from stackyard.launch.plan.schedulers.asking import ask
from stackyard.launch.plan.schedulers.base import Batch
from stackyard.launch.plan.schedulers.slurm_state import together

_COMPUTE = "select[((CN)&&(type==any))]order[r15s:pg]span[ptile={slots}]cu[type=rack:maxcus={racks}]"
_LAUNCH = "1*{select[((LN)&&(type==any))]order[r15s:pg]span[hosts=1]cu[type=rack:pref=config]}"

_PHASES: dict[str, JobPhase] = {
    "PEND": "queued",
    "PSUSP": "queued",
    "WAIT": "queued",
    "PROV": "starting",
    "RUN": "running",
    "USUSP": "running",
    "SSUSP": "running",
    "DONE": "done",
    "POST_DONE": "done",
    "EXIT": "failed",
    "POST_ERR": "failed",
    "ZOMBI": "node-fail",
    "UNKWN": "unknown",
}
_REASONS: dict[str, JobPhase] = {
    "TERM_RUNLIMIT": "timeout",
    "TERM_DEADLINE": "timeout",
    "TERM_OWNER": "cancelled",
    "TERM_ADMIN": "cancelled",
    "TERM_FORCE_OWNER": "cancelled",
    "TERM_FORCE_ADMIN": "cancelled",
    "TERM_PREEMPT": "cancelled",
    "TERM_REQUEUE_OWNER": "queued",
    "TERM_REQUEUE_ADMIN": "queued",
    "TERM_ZOMBIE": "node-fail",
    "TERM_CSM_ALLOC": "node-fail",
    "TERM_RMS": "node-fail",
}
FIELDS = "stat exit_code exit_reason exec_host pend_reason delimiter='|'"


def reservation(nodes: int, slots: int, rack_nodes: int) -> tuple[int, str]:
    """Total slots and the resource string that reserves nodes of as few racks as possible, in CSM's expert mode.

    n = nodes * slots + 1: one slot on the launch node comes first. maxcus = nodes / rack_nodes, rounded up, is the
    fewest racks that can hold them. The formula is OLCF's ("Reserving Whole Racks"): 2 nodes of 42 slots are 85 slots
    in 1 rack of 18 nodes, 144 nodes are 6049 slots in 8.

    Args:
        slots: slots of a compute node, as LSF counts them (42 on Summit: usable cores).
        rack_nodes: nodes of a rack.
    """
    if min(nodes, slots, rack_nodes) < 1:
        raise InputError(
            f"cannot reserve {nodes} nodes of {slots} slots, {rack_nodes} per rack: all numbers must be positive"
        )
    racks = -(-nodes // rack_nodes)
    compute = f"{nodes * slots}*{{{_COMPUTE.format(slots=slots, racks=racks)}}}"
    return nodes * slots + 1, f"{_LAUNCH}+{compute}"


class Lsf(Batch):
    """bsub scripts.

    Args:
        submit_stdin: plain LSF reads the directives of a script only from standard input (``bsub < script``). With CSM
            bsub takes the file name, and redirection does not work on Summit (OLCF).
    """

    name = "lsf"
    after_end = "ended({job})"
    job_variable = "LSB_JOBID"
    submit_host_variable = "LSB_SUB_HOST"
    submit_program = "bsub"
    job_id_pattern = r"Job <(\d+)> is submitted"
    task_pattern = "{job}[{index}]"
    cancel_words, cancelled_words = ("bkill",), ("already finished", "already exited")
    requeue_words = ("brequeue", "-r")
    index_variable, no_index = "LSB_JOBINDEX", "0"
    inherited = r"(?!LSB_|LS_|JSM_|PMI|OMPI_COMM_).*|LSB_(DEFAULT\w*|CONFDIR|SHAREDIR)"
    disk_on_request = True

    def __init__(self, submit_stdin: bool = True) -> None:
        self.submit_stdin = submit_stdin

    def for_site(self, scheduler: Scheduler) -> Batch:
        """The scheduler with the site's settings: with CSM, bsub reads a file."""
        return Lsf(submit_stdin=False) if scheduler.csm else self

    def default_launcher(self, scheduler: Scheduler) -> str:
        """jsrun with CSM (Summit, Sierra), mpirun elsewhere."""
        return "jsrun" if scheduler.csm else "mpirun"

    def head(self, request: BatchRequest) -> BatchHead:
        """The directives. Raises InputError for a quality of service, and for requests that easy mode lacks."""
        directives = heads.Directives()
        _about(directives, request)
        if not request.scheduler.csm:
            _plain(directives, request)
        elif request.options.pack == "racks":
            _expert(directives, request)
        else:
            _easy(directives, request)
        _life(directives, request)
        directives.own(request)
        return directives.head("#BSUB")

    def submit_argv(self, script: str) -> tuple[str, ...]:
        """The submit command: ``bsub`` alone if the script is read from standard input."""
        return (self.submit_program,) if self.submit_stdin else super().submit_argv(script)

    def own_id(self, job: str, index: str, environ: Mapping[str, str]) -> str:
        """The id of this task, derived from the array's id, which is what LSF sets."""
        return self.task_id(job, index)

    def state(self, job: str) -> JobState:
        """The state of a job, of one index (``12[3]``), or of an array as a whole, as bjobs(1) reports it.

        Raises MissingError (no bjobs), CommandError (no answer from LSF).
        """
        result = ask(("bjobs", "-noheader", "-o", FIELDS, job))
        rows = [line.split("|") for line in result.stdout.splitlines() if line.count("|") >= 4]
        if rows:
            return together([_row(row) for row in rows])
        if "is not found" in result.output:
            return JobState("unknown", "LSF no longer lists this job")
        raise CommandError(f"cannot read the state of job {job} from LSF", result)

    def allocation(self, environ: dict[str, str]) -> Allocation | None:
        """The allocation from LSB_MCPU_HOSTS, else LSB_DJOB_RANKFILE; a launch node, which comes first, is left out.

        ``batch1 1 h41n01 42 h41n02 42``: the first pair is the launch node if it has one slot and the others have more;
        on clusters without launch nodes a host with one slot is a compute node.
        """
        job = environ.get("LSB_JOBID", "")
        pairs = _pairs(environ)
        if not job or not pairs:
            return None
        first, *others = pairs.items()
        if others and first[1] == 1 and all(count > 1 for _, count in others):
            del pairs[first[0]]
        return Allocation("lsf", job, tuple(pairs))


def _pairs(environ: dict[str, str]) -> dict[str, int]:
    """Slots by host, in LSF's order."""
    fields = environ.get("LSB_MCPU_HOSTS", "").split()
    if fields and len(fields) % 2 == 0:
        return {host: int(count) for host, count in zip(fields[::2], fields[1::2], strict=True)}
    name = environ.get("LSB_DJOB_RANKFILE") or environ.get("LSB_DJOB_HOSTFILE", "")
    return Counter((heads.hosts_file(name) if name else environ.get("LSB_HOSTS", "")).split())


def _about(directives: heads.Directives, request: BatchRequest) -> None:
    options = request.options
    index = ""
    if options.array:
        indices, _, limit = options.array.partition("%")
        if any(int(number) == 0 for number in re.findall(r"(?:^|[,-])(\d+)", indices)):
            raise InputError(f"LSF array indices start at 1, not {indices}", hint="use e.g. 1-10")
        index = f"[{indices}]" + (f"%{limit}" if limit else "")
    directives.add("job name" + (" and array indices" if index else ""), "-J", heads.name(request) + index)
    directives.add_given(options.account, "project to charge", "-P", options.account)
    directives.add_given(heads.queue(request), "queue of the nodes", "-q", heads.queue(request))
    if options.qos:
        raise heads.unsupported(
            "LSF", "quality of service", "use a queue, or a service class: --scheduler-arg='-sla …'"
        )
    directives.add_given(options.reservation, "advance reservation", "-U", options.reservation)
    directives.add_given(options.dependency, "starts after other jobs", "-w", options.dependency)
    if options.time_min:
        total = heads.minutes(request)
        directives.add("wall time limit (hours:minutes)", "-W", f"{total // 60}:{total % 60:02d}")


def _easy(directives: heads.Directives, request: BatchRequest) -> None:
    if heads.constraint(request):
        raise InputError(
            "CSM's easy mode has no resource string: it cannot select nodes by a feature",
            hint="omit the constraint, or pass a complete reservation with --scheduler-arg='-csm y' and '-R …'",
        )
    if request.options.memory_gib:
        raise InputError("CSM allocates whole nodes with all their memory", hint="omit --memory")
    directives.add("number of whole compute nodes", "-nnodes", str(request.nodes))
    _flags(directives, request)


def _expert(directives: heads.Directives, request: BatchRequest) -> None:
    heads.racks(request)
    if heads.constraint(request):
        raise InputError("cannot combine racks with a node feature", hint="omit one of them")
    count, string = reservation(request.nodes, request.layout.node.cores, request.scheduler.rack_nodes)
    directives.add("expert mode: the resource string follows, and -nnodes is not allowed", "-csm", "y")
    directives.add(
        f"{count} slots: {counted(request.nodes, 'node')} with all cores, and one slot on the launch node",
        "-n",
        str(count),
    )
    directives.add(
        f"a launch node, and compute nodes from at most {counted(heads.racks(request), 'rack')}", "-R", string
    )
    _flags(directives, request)


def _flags(directives: heads.Directives, request: BatchRequest) -> None:
    flags = list(request.scheduler.alloc_flags)
    if request.node_local_disk and not any(flag.lower() == "nvme" for flag in flags):
        flags.append("nvme")
    directives.add_given(flags, "node settings; LSF accepts only one such line", "-alloc_flags", " ".join(flags))


def _plain(directives: heads.Directives, request: BatchRequest) -> None:
    layout, options = request.layout, request.options
    per_node = heads.cores(request)
    directives.add(
        f"{counted(per_node, 'slot')} per node, one per core, on {counted(request.nodes, 'node')}",
        "-n",
        str(per_node * request.nodes),
    )
    # memory is counted per host unless the site sets RESOURCE_RESERVE_PER_TASK in lsb.resources
    parts = [f"span[ptile={per_node}]"]
    says = [f"{counted(per_node, 'slot')} per node"]
    if heads.constraint(request):
        parts.insert(0, f"select[{_selection(request)}]")
        says.append("only matching nodes")
    if options.memory_gib:
        parts.append(f"rusage[mem={round(options.memory_gib * 1024)}M]")
        says.append(f"{options.memory_gib:g} GiB of memory per node")
    if heads.racks(request):
        parts.append(f"cu[type=rack:maxcus={heads.racks(request)}]")
        says.append(f"nodes from at most {counted(heads.racks(request), 'rack')}")
    directives.add("; ".join(says), "-R", " ".join(parts))
    if heads.gpus(request):
        shared = "exclusive_process" if layout.gpu_visibility == "own" else "shared"
        kind = f":gmodel={request.scheduler.gres_type}" if request.scheduler.gres_type else ""
        directives.add(
            f"{counted(heads.gpus(request), 'GPU')} per node, exclusive to this job",
            "-gpu", f"num={heads.gpus(request)}:mode={shared}:j_exclusive=yes{kind}",
        )  # fmt: skip
    directives.add_given(heads.exclusive(request), "exclusive nodes, not shared with other jobs", "-x")


def _selection(request: BatchRequest) -> str:
    """All conditions as a select string of the resource requirement, in which ``&&`` precedes ``||``."""
    every = heads.features(request)
    return " && ".join(f"({part})" if len(every) > 1 and "||" in part else part for part in every)


def _life(directives: heads.Directives, request: BatchRequest) -> None:
    options = request.options
    if heads.output(request):
        directives.add("output file of the script; appends to an existing file", "-o", heads.output(request, "%I"))
        directives.add("stderr goes to the same file", "-e", heads.output(request, "%I"))
    if options.requeue:
        directives.add("restarts after a node failure or a preemption", "-r")
    elif not request.scheduler.csm:
        directives.add("never restarts", "-rn")
    if options.signal_s:
        ahead = -(-options.signal_s // 60)
        if ahead * 60 != options.signal_s:
            directives.note(
                "signal-in-minutes",
                f"the signal is sent {ahead} min before the end, not {options.signal_s} s",
                "LSF rounds this time to minutes",
            )
        directives.add("signal sent before the end; the script forwards it to the ranks", "-wa", "USR1")
        directives.add(f"sent {ahead} min before the end", "-wt", str(ahead))
    directives.add_given("begin" in options.mail_events, "mail at the start of the job", "-B")
    directives.add_given({"end", "fail"} & set(options.mail_events), "mail at the end of the job", "-N")
    directives.add_given(options.mail, "mail recipient", "-u", options.mail)


def _row(row: Sequence[str]) -> JobState:
    stat, code, why, hosts, pending = ("" if part.strip() == "-" else part.strip() for part in row[:5])
    phase = _PHASES.get(stat, "unknown")
    word = why.split(":")[0].strip()
    if phase == "failed" and word in _REASONS:
        phase = _REASONS[word]
    ended = phase in ("done", "failed", "cancelled", "timeout", "node-fail")
    exit_code = int(code) if code.isdigit() else (0 if phase == "done" else None)
    reason = why if ended else pending or ("" if phase != "unknown" else stat)
    return JobState(phase, reason, exit_code if ended else None, _hosts(hosts))


def _hosts(text: str) -> tuple[str, ...]:
    """The compute nodes in ``batch1:42*h41n01:42*h41n02``; a launch node comes first, without a count."""
    parts = text.split(":") if text else []
    compute = [part.split("*")[1] for part in parts if "*" in part]
    if compute and len(compute) == len(parts) - 1 and "*" not in parts[0]:
        return tuple(dict.fromkeys(compute))
    return tuple(dict.fromkeys(part.split("*")[-1] for part in parts))
