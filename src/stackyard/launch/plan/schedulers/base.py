"""`Batch`: the interface to a scheduler. `stackyard.launch.plan.schedulers` has the table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol

from stackyard.core.errors import InputError, MissingError, StackyardError
from stackyard.core.late import dataclass
from stackyard.host.run.command import which
from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.launch.layout.model import Node
from stackyard.launch.plan.model import Allocation, BatchHead, BatchRequest, JobState
from stackyard.launch.plan.schedulers import heads
from stackyard.launch.plan.schedulers.asking import end


@dataclass(frozen=True)
class Offer:
    """The resources of each node that a job may use.

    Attributes:
        node: the node as reported by the scheduler; None: not queried, since the site describes it.
        cpus: hardware threads of the allocation per node, on the node with the fewest; 0: unknown.
        gpus: GPUs likewise; None: unknown.
        partition: the partition, outside an allocation.
        nodes: the number of nodes of the partition.
    """

    node: Node | None = None
    cpus: int = 0
    gpus: int | None = None
    partition: str = ""
    nodes: int = 0


class NodeReports(Protocol):
    """A scheduler's reports on its nodes, for sites whose file does not describe them."""

    def of_partition(self, queue: str) -> Offer | None:
        """The nodes of a queue, before allocation; None if the scheduler does not answer."""
        ...

    def of_allocation(
        self, allocation: Allocation, environ: Mapping[str, str], *, here: str, described: bool, gpus: bool
    ) -> Offer:
        """The nodes of an allocation."""
        ...


class Batch:
    """A scheduler: the head of its scripts, its client programs, and the properties of its jobs.

    Each scheduler is a subclass, also in plug-ins, most easily of `directives.DirectiveScheduler`; it has to set every
    attribute without a default. The programs on the nodes are Stackyard's own, so differences there are data.

    Attributes:
        job_variable: a variable that is set exactly in its jobs.
        submit_program: the submit program, by which the scheduler of a machine is detected.
        arrays: whether it has job arrays.
        job_id_pattern: matches the id, as its first group, in a line of the submit program's output.
        task_pattern: the id of one task of an array, with ``{job}`` and ``{index}``.
        cancel_words: the cancel command, before the id.
        cancelled_words: its message for a job that has already ended.
        requeue_words: the command that restarts a running job, before the id. Empty: none.
        after_end: the dependency of a job that waits for the end of another one, however that ends, with ``{job}``.
            Empty: not known.
        index_variable: the variable with the index of a task of an array.
        no_index: the value of that variable in a job without an array.
        submit_stdin: whether the submit program reads the script from standard input.
        carries_environment: whether a job gets the variables of the submitting shell; else the script exports them.
        inherited: the variables that a submission from within a job keeps, as a regular expression: those that are not
            the job's own, and those that configure the client programs.
        queue_option: the field of `BatchOptions` that ``-q`` sets.
        disk_on_request: whether the local disk is available only in jobs that request it.
        finds_nodes: MPI launchers that find the nodes of its jobs by themselves, without a host file.
        cpus_variable: the variable with the CPUs per task, which programs read.
        hosts_variable: the variable with the path of the host file of the allocation; the first word of each line is a
            host.
        submit_host_variable: the variable with the host that the job was submitted from.
        makes_allocation: whether its launcher, outside of a job, creates one with the options of a batch script.
        reports: its reports on nodes; None: the site describes them.
    """

    name: str
    job_variable: str
    submit_program: str
    job_id_pattern: str
    task_pattern: str = ""
    cancel_words: tuple[str, ...]
    cancelled_words: tuple[str, ...] = ()
    requeue_words: tuple[str, ...] = ()
    arrays: bool = True
    after_end: str = ""
    index_variable: str = ""
    no_index: str = ""
    submit_stdin: bool = False
    carries_environment: bool = True
    inherited: str = ".*"
    queue_option: str = "queue"
    disk_on_request: bool = False
    finds_nodes: tuple[str, ...] = ("mpirun", "mpich")
    cpus_variable: str = ""
    hosts_variable: str = ""
    submit_host_variable: str = ""
    makes_allocation: bool = False
    reports: NodeReports | None = None

    def for_site(self, scheduler: Scheduler) -> Batch:
        """The scheduler with the site's settings, if they change its client programs."""
        return self

    def default_launcher(self, scheduler: Scheduler) -> str:
        """The launcher for its jobs; empty: the mpiexec on PATH decides."""
        return ""

    def is_here(self, environ: Mapping[str, str]) -> bool:
        """Whether this machine can submit to it: its submit program is on PATH."""
        return which(self.submit_program, environ) is not None

    def head(self, request: BatchRequest) -> BatchHead:
        """The directives. Raises InputError for a request that the scheduler cannot express."""
        raise NotImplementedError

    def quoted(self, word: str) -> str:
        """A word of a directive, quoted by this scheduler's rules. Raises InputError if impossible."""
        return heads.quoted_once(word)

    def head_text(self, head: BatchHead) -> str:
        """The directives as lines of a script."""
        return "".join(f"{head.prefix} {' '.join(map(self.quoted, directive))}\n" for directive in head.directives)

    def submit_argv(self, script: str) -> tuple[str, ...]:
        """The command that submits a script file (bsub reads it from standard input: `submit_stdin`)."""
        return (self.submit_program, script)

    def job_id(self, output: str) -> str:
        """The job's id from the output of the submit command: in the last line that has one. Raises StackyardError."""
        numbers = [match[1] for match in re.finditer(self.job_id_pattern, output, re.MULTILINE)]
        if not numbers:
            raise StackyardError(f"{self.submit_program} printed no job ID", detail=output)
        return numbers[-1]

    def task_id(self, job: str, index: str) -> str:
        """The id of one task of an array. Raises InputError without arrays."""
        if not self.task_pattern:
            raise InputError(f"{self.name.upper()} has no ids for the tasks of an array: task {index} of {job}")
        return self.task_pattern.format(job=job, index=index)

    def own_id(self, job: str, index: str, environ: Mapping[str, str]) -> str:
        """The id of the array task that this process runs in; `job` is the allocation's id.

        LSF's variable has the id of the whole array, as does Slurm's in the last task; PBS has one id per task.
        """
        return job

    def state(self, job: str) -> JobState:
        """Query the scheduler. Raises MissingError, CommandError."""
        raise NotImplementedError

    def task_states(self, job: str) -> dict[str, JobState] | None:
        """The state of each task of an array, by its index; None if this scheduler reports only the array."""
        return None

    def preempted(self, job: str) -> bool:
        """Whether a running job is in the grace time of a preemption; False if the scheduler does not report it."""
        return False

    def cancel(self, job: str) -> None:
        """Cancel a job; not an error if it has already ended. Raises CommandError."""
        end((*self.cancel_words, job), self.cancelled_words)

    def requeue_argv(self, job: str) -> tuple[str, ...]:
        """The command that restarts a running job under the same id; empty without one."""
        return (*self.requeue_words, job) if self.requeue_words else ()

    def variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables of a job under the names that `allocation` and a plan read."""
        return dict(environ)

    def allocation(self, environ: dict[str, str]) -> Allocation | None:
        """The nodes of the allocation that `environ` describes, or None outside of one.

        By default those in the host file. Raises StackyardError if it cannot be read.
        """
        job, name = environ.get(self.job_variable, ""), environ.get(self.hosts_variable, "")
        if not job or not name:
            return None
        lines = heads.hosts_file(name).splitlines()
        return Allocation(self.name, job, tuple(dict.fromkeys(line.split()[0] for line in lines if line.strip())))


class NoScheduler(Batch):
    """A machine without a scheduler: ranks start here."""

    name = "none"
    job_variable = submit_program = ""
    arrays = False
    finds_nodes = ()

    def default_launcher(self, scheduler: Scheduler) -> str:
        """The launcher for this machine's own processes."""
        return "local"

    def head(self, request: BatchRequest) -> BatchHead:
        """Raises MissingError: a batch script needs a scheduler."""
        raise MissingError(
            f"no scheduler found: cannot write a batch script for {request.name}",
            hint="name the scheduler in `scheduler: kind:` of site.yaml, or leave out --launcher to run here",
        )

    def allocation(self, environ: dict[str, str]) -> Allocation | None:
        """None: there is never an allocation."""
        return None
