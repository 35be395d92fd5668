"""`Plan`: exactly what will be started, with the reason for every word. Types only; `make` creates them."""

from __future__ import annotations

import json
from dataclasses import field
from typing import Literal, Protocol, runtime_checkable

from stackyard.core import grammar
from stackyard.core.change import EnvironmentChange
from stackyard.core.errors import InputError
from stackyard.core.findings import Finding
from stackyard.core.late import dataclass
from stackyard.core.secrets import HIDDEN
from stackyard.inputs.sites.jobmodels import Scheduler
from stackyard.launch.layout.model import Layout
from stackyard.launch.request.intent import BatchOptions

STEP_IN_TOML = "{step!toml}"
"""In a file of a launch line: the directory of the step as a part of a string of an environment definition file."""


def in_toml(text: str) -> str:
    """A text as a part of a basic string of TOML, whose escapes are those of JSON, with each $ doubled."""
    return json.dumps(text.replace("$", "$$"), ensure_ascii=False)[1:-1]


@dataclass(frozen=True)
class Reason:
    """Why a command line has certain words: ``("-c", "7")`` because of ``7 cores for each rank``."""

    words: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class RankNames:
    """The variables from which the processes of a launcher read their ranks.

    Several names for one number are tried in order; empty: the launcher does not set it.

    Attributes:
        own: the rank's name is used by this launcher only, so that an incomplete set is always an error.
        spread: the variable that lists tasks per node, as Slurm writes it: ``2(x3),1``.
    """

    rank: tuple[str, ...]
    size: tuple[str, ...]
    local_rank: tuple[str, ...]
    local_size: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    spread: tuple[str, ...] = ()
    own: bool = True


@dataclass(frozen=True)
class LaunchLine:
    """One launcher's rendering of a layout, without the program.

    `words` begin with the launcher's name. Files that the words refer to (rankfile, hostfile, ERF) are in `files`, by
    name; ``{step}`` in the words stands for the directory of the step. `variables` are set for the launcher itself.
    `family` says which variables identify a rank: those of `shim.identity.FAMILIES`, or of another launcher `ranks`.
    """

    words: tuple[str, ...]
    family: str
    reasons: tuple[Reason, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    ranks: RankNames | None = None


@dataclass(frozen=True)
class LaunchRequest:
    """The input of a launcher in addition to the layout.

    `mpi`: the ranks are MPI processes, and the launcher provides their PMI. `inside`: it runs inside an allocation of
    exactly these nodes (True), or the layout's hosts are part of a larger allocation and must be named (False).
    `within_step`: it runs in a task of a Slurm step, which holds the nodes' resources. `spectrum`: the MPI is IBM's.
    """

    layout: Layout
    scheduler: Scheduler
    mpi: bool = False
    gpu_aware_mpi: bool = False
    inside: bool = True
    within_step: bool = False
    spectrum: bool = False
    args: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()


@runtime_checkable
class Launcher(Protocol):
    """A row of the table in `stackyard.launch.plan.launchers`."""

    name: str

    def line(self, request: LaunchRequest) -> LaunchLine:
        """The command line. Raises InputError, naming the part of the layout that this launcher cannot express."""
        ...


@dataclass(frozen=True)
class BatchRequest:
    """The input for the head of a batch script."""

    layout: Layout
    options: BatchOptions
    scheduler: Scheduler
    queue: str = ""
    constraint: str = ""
    nodes: int = 1
    output: str = ""
    name: str = "stackyard"
    node_local_disk: bool = False
    disk_constraint: str = ""
    least_nodes: int = 0
    restarts: int = 0


@dataclass(frozen=True)
class BatchHead:
    """The directives of a batch script, each ``("-n", "85")`` or ``("--nodes=2",)``, with reasons and findings.

    `prefix` is ``#SBATCH``, ``#BSUB``, ``#PBS`` or ``#flux:``; `text()` quotes each word once, as the scheduler reads
    it.
    """

    prefix: str
    directives: tuple[tuple[str, ...], ...]
    reasons: tuple[Reason, ...] = ()
    findings: tuple[Finding, ...] = ()


JobPhase = Literal["queued", "starting", "running", "done", "failed", "cancelled", "timeout", "node-fail", "unknown"]


@dataclass(frozen=True)
class JobState:
    """The present state of a job, by its scheduler. `reason` is the scheduler's word (Priority, Resources)."""

    phase: JobPhase
    reason: str = ""
    exit_code: int | None = None
    hosts: tuple[str, ...] = ()
    restarts: int = 0


@dataclass(frozen=True)
class Allocation:
    """The nodes that this process can use now. `job` is the scheduler's id.

    Raises:
        InputError: a host is not a valid hostname, which host files and launch lines need.
    """

    scheduler: str
    job: str
    hosts: tuple[str, ...]

    def __post_init__(self) -> None:
        for host in self.hosts:
            if not grammar.HOST.accepts(host):
                message = f"{grammar.shown(host)} in the nodes of job {self.job} is not {grammar.HOST.kind}"
                raise InputError(message, hint=f"check the variables that {self.scheduler} sets: {grammar.HOST.hint}")


@dataclass(frozen=True)
class RankProgram:
    """The program as run by a backend: the command of each task, and its requirements.

    Attributes:
        layout: one slot per task that the launcher starts (`Layout.per_node()` for torchrun itself and Ray).
        argv: the command of each task. Words may hold ``${NAME}`` of the rank's own variables (below), nothing else is
            expanded; the shim writes them so that the shell replaces exactly these.
        variables: for every task; values may hold ``${NAME}`` in the same way.
        mpi: the tasks are MPI processes, and the launcher provides their PMI; or they may be, unless `certain`.
        ports: the number of ports to bind on rank 0's node and passed to all: MASTER_PORT, STACKYARD_PORT_1, ...
        task_ports: whether a port is bound for each task, on its own node: the addresses of all tasks are passed to
            each as a JSON list in STACKYARD_PEERS, in a job with roles STACKYARD_PEERS_WORKER for the role `worker`.
        sidecar: a program that the agent of rank 0's node runs beside the ranks (Horovod's rendezvous server), which
            ends with them; its output goes to logs/sidecar.log.
        ranks_per_task: the number of ranks of each task (torchrun: ranks per node).
        backend: the name of the backend; empty for another program than the job's, such as the preflight.
    """

    layout: Layout
    argv: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)
    mpi: bool = False
    certain: bool = True
    ports: int = 1
    task_ports: bool = False
    sidecar: tuple[str, ...] = ()
    ranks_per_task: int = 1
    backend: str = ""
    reasons: tuple[Reason, ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Wrapper:
    """Words put before the program of some tasks: a container's exec, a profiler. `tasks` None means all.

    Words may hold ``${NAME}`` of the rank's variables, as in `RankProgram.argv`. The first wrapper is the outermost.
    `lists` are variables with names of files, joined by commas; a ``*`` in one is expanded on the node. `needed`: files
    of each node that the site's configuration names; `shared`: those of the job. `linked`: files that are added to an
    image, by options before the last two words, the image and ``--`` (`images.bindings.charliecloud`).
    `host_mpi`: the library of the MPI that the ranks are to load, outside of the image. `directories`: of the run
    directory, which must exist before a rank starts. `launcher`: words for the launcher in place of words before the
    program, with reasons; ``{step}`` in them is the directory of the step. `inside`: with them each task starts in an
    image already, and goes to `workdir`, if that is not empty. `pulled`: the nodes pull the image, which may take long.
    `files`: those of the step that these words name.
    """

    argv: tuple[str, ...]
    tasks: tuple[int, ...] | None = None
    variables: dict[str, str] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()
    findings: tuple[Finding, ...] = ()
    lists: dict[str, tuple[str, ...]] = field(default_factory=dict)
    needed: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    linked: tuple[str, ...] = ()
    host_mpi: str = ""
    directories: tuple[str, ...] = ()
    launcher: tuple[Reason, ...] = ()
    inside: bool = False
    workdir: str = ""
    pulled: bool = False
    files: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Stage:
    """The files to copy to every node before the ranks start: (name, path) of each, read from the path.

    `base`: the site's staging directory on the nodes; empty: chosen on the node.
    """

    items: tuple[tuple[str, str], ...] = ()
    base: str = ""
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class PlannedRole:
    """One of several programs of a job: its separate plan, with its own layout and program.

    `first`: its first node in the job. `serves`: it is terminated when all ranks of the other roles have ended.
    """

    name: str
    first: int
    serves: bool
    plan: Plan


@dataclass(frozen=True)
class Plan:
    """The complete plan of a start.

    `line` is the launch line; the complete command is ``line.words + (shim,) + nothing``: the shim holds the program.
    `change` is the stack's environment, `variables` come after it. `private` are variables of every rank too, whose
    values may be secret: they are written only to a file that no other account can read (`StepPaths.private`).
    `shared`: paths of the stack that every node must have. `agents`: the command of the agents' step, where ranks start
    inside an image (`plan.runtimes.entering`); the shim of agents follows.

    With several `roles`, layout and line are those of all ranks, and the rest is in the roles' own plans.
    """

    layout: Layout
    program: RankProgram
    line: LaunchLine
    wrappers: tuple[Wrapper, ...] = ()
    change: EnvironmentChange = field(default_factory=EnvironmentChange)
    variables: dict[str, str] = field(default_factory=dict)
    private: dict[str, str] = field(default_factory=dict, repr=False)
    cwd: str = ""
    head: BatchHead | None = None
    reasons: tuple[Reason, ...] = ()
    findings: tuple[Finding, ...] = ()
    roles: tuple[PlannedRole, ...] = ()
    stage: Stage = Stage()
    shared: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()

    @property
    def shown(self) -> dict[str, str]:
        """The variables of every rank for display and records, without values that may be secret."""
        return {**self.variables, **dict.fromkeys(self.private, HIDDEN), **self.program.variables}
