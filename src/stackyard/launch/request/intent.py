"""`Intent`: a requested job, independent of scheduler and launcher. Options and job files make one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from stackyard.core.errors import InputError
from stackyard.inputs.reading.latemodel import Field, LateModel
from stackyard.inputs.reading.words import (
    ArrayIndices,
    JobName,
    OptionalPath,
    RoleName,
    StagedPath,
    VariableName,
    Variables,
    Word,
)
from stackyard.launch.request.roles import MOST_NODES, OWN, Count, Role, nodes_of, problem, without_secrets

M = TypeVar("M", bound=LateModel)
OWN_DIRECTORY = "image"
"""The `workdir` of a job that starts in the directory that the image itself names."""


class BatchOptions(LateModel):
    """The options of the batch job. Empty or 0: not set."""

    time_min: float = Field(0, ge=0, le=1_000_000, allow_inf_nan=False, description="Wall time in minutes")
    account: Word = ""
    queue: Word = Field("", description="Partition or queue")
    qos: Word = ""
    constraint: Word = ""
    reservation: Word = ""
    dependency: Word = Field("", description="In the scheduler's syntax, e.g. afterok:1234 or done(1234)")
    mail: Word = Field("", description="Mail address")
    mail_events: tuple[Literal["begin", "end", "fail"], ...] = ()
    name: JobName = Field("", description="Job name; empty: the program's name")
    output: OptionalPath = Field("", description="Output file of the batch script; empty: in the run directory")
    array: ArrayIndices = Field("", description="Indices of a job array, e.g. 0-9 or 1-100%4")
    requeue: bool = Field(False, description="Start again after a preemption or a time limit")
    signal_s: int = Field(0, ge=0, description="Send SIGUSR1 to the ranks this many seconds before the end; 0: never")
    memory_gib: float = Field(0, ge=0, description="Per node; 0: all, or the scheduler's default")
    exclusive: bool | None = Field(None, description="Exclusive nodes; None: the site's default")
    local_disk: bool = Field(False, description="Request the nodes' local disks, where required")
    pack: Literal["", "racks"] = Field("", description="Use nodes of as few racks as possible")
    scheduler_args: tuple[str, ...] = Field((), description="Extra batch options; ~--flag removes a generated one")


class Intent(LateModel):
    """One distributed job. None or empty: the default of the site, the node kind or the program."""

    unanswered: tuple[str, ...] = Field(
        (), description="What `lint --fix` could not carry over: remove a line once you have dealt with it"
    )
    program: tuple[str, ...] = Field(
        (), description="The command of every rank; a *.py file and -m MODULE are run by python"
    )
    roles: dict[RoleName, Role] = Field({}, description="Several programs instead of one, by the name of their role")
    nodes: int = Field(1, ge=1, le=MOST_NODES, description="With roles, the sum of their nodes")
    least_nodes: int = Field(0, ge=0, le=MOST_NODES, description="Go on with as few nodes; 0: all that are requested")
    hosts: tuple[Word, ...] = Field((), description="Exactly these hosts of the allocation; empty: its first ones")
    ranks_per_node: Count | None = Field(None, description="None: one per GPU; without GPUs one per socket")
    cores_per_rank: Count | None = Field(None, description="None: as many as fit without straddling a socket")
    threads_per_rank: Count | None = Field(None, description="OMP_NUM_THREADS; None: one per core (or per SMT thread)")
    gpus_per_rank: int | None = Field(None, ge=0, le=1000, description="None: GPUs divided by ranks")
    smt: int = Field(1, ge=1, le=64, description="Hardware threads used per core")
    gpu_visibility: Literal["auto", "all", "own"] = Field(
        "auto", description="Each rank sees all GPUs of its node, or only its own; auto: all where GPUs are peers"
    )
    distribution: Literal["block", "cyclic"] = Field("block", description="Ranks fill each node, or go round robin")
    straddle: bool = Field(False, description="Allow a rank to span two sockets")
    oversubscribe: bool = Field(False, description="Allow more ranks or threads than cores")
    node_kind: str = Field("", description="One of the site's node kinds; empty: the only one, or this machine")
    backend: Word = "auto"
    direct: bool = Field(True, description="torchrun: set the variables of the ranks instead of starting torchrun")
    controller: Literal["auto", "mpi", "gloo"] = Field("auto", description="Horovod controller")
    mpi_abort: bool = Field(True, description="mpi4py: an exception on one rank aborts all (python -m mpi4py)")
    start_method: Literal["", "fork", "forkserver", "spawn"] = Field(
        "", description="How multiprocessing starts processes, where the program does not choose; empty: as always"
    )
    launcher: Word = ""
    launcher_args: tuple[str, ...] = Field((), description="Extra words of the launch line; ~--flag removes one")
    stack: str = Field("", description="A published revision, e.g. pytorch/2.13")
    container: OptionalPath = Field("", description="An image to run in: a file, a directory, or that of a registry")
    runtime: Word = Field("", description="The container runtime, as launch.container.runtime of site.yaml")
    mounts: tuple[Word, ...] = Field((), description="More of the host in the image: SOURCE[:TARGET[:ro]]")
    workdir: OptionalPath = Field("", description="Where the program starts in the image, or `image`; empty: in cwd")
    container_options: tuple[str, ...] = Field((), description="More words for the runtime, besides the site's")
    stage: tuple[StagedPath, ...] = Field(
        (), description="Files and directories to copy to every node before the ranks start; stack: the image"
    )
    profile: tuple[str, ...] = Field((), description="e.g. torch:steps=10-20 or nsys:ranks=0,8")
    debug_rank: int | None = Field(None, ge=0, description="The rank that gets your terminal, e.g. for pdb")
    stdin_rank: int | None = Field(None, ge=0, description="The rank that gets your standard input")
    check: bool = Field(False, description="Run the preflight before the program")
    spare: int = Field(0, ge=0, le=10_000, description="Extra nodes to replace bad ones")
    restarts: int = Field(0, ge=0, le=1000, description="Start again as often after a failure, within the allocation")
    world_check: bool | None = Field(
        None, description="A run whose ranks were never connected to each other has failed; None: the site's"
    )
    hang_min: float = Field(
        0, ge=0, description="Hang timeout: minutes without output, then stacks are dumped; 0: never"
    )
    logs: Literal["auto", "all", "node", "first"] = Field(
        "auto",
        description="A log per rank, per node, or of the first rank only; auto: node above 1000 ranks",
    )
    start_s: float | None = Field(None, ge=1, description="Seconds within which all nodes report; None: the site's")
    lost_s: float | None = Field(None, ge=2, description="Seconds of silence until a node is lost; None: the site's")
    grace_s: float | None = Field(None, ge=0, description="Seconds from SIGTERM to SIGKILL; None: the site's")
    variables: Variables = Field({}, description="Environment variables of every rank")
    passed: tuple[VariableName, ...] = Field(
        (), description="Names of variables of your shell for every rank; their values are never recorded"
    )
    prologue: tuple[str, ...] = Field(
        (), description="Lines of bash before the start, in the batch script, e.g. module load cuda"
    )
    cwd: OptionalPath = Field("", description="Working directory, absolute; empty: the current one")
    batch: BatchOptions = BatchOptions()

    def recorded(self) -> Intent:
        """The request for files: for variables that may be secret only the name, in `passed`."""
        roles = {name: role.recorded() for name, role in self.roles.items()}
        return self.model_copy(update={**without_secrets(self.variables, self.passed), "roles": roles})

    def checked(self) -> None:
        """Raise ValueError if values contradict each other; the number of nodes follows from the roles."""
        inside = next((name for name in ("mounts", "workdir", "container_options") if getattr(self, name)), "")
        if inside and not (self.container or any(role.container for role in self.roles.values())):
            raise ValueError(f"{inside} is for a job in an image: container is not set")
        if self.roles:
            self.__dict__["nodes"] = self._nodes_of_roles()
        elif self.least_nodes > self.nodes:
            raise ValueError(f"least_nodes is {self.least_nodes}, but nodes is {self.nodes}: the least is larger")
        elif self.hosts and len(self.hosts) != self.nodes:
            raise ValueError(f"hosts has {len(self.hosts)}, but nodes is {self.nodes}")

    def _nodes_of_roles(self) -> int:
        if why := problem(self.roles):
            raise ValueError(why)
        both = [name for name in ("program", "profile") if getattr(self, name)]
        if both:
            raise ValueError(f"{' and '.join(both)} belongs into a role of a job with roles")
        if self.distribution == "cyclic":
            raise ValueError("a job with roles has the block distribution")
        if self.least_nodes:
            raise ValueError("a job with roles needs all of its nodes: leave out least_nodes")
        total = sum(role.nodes or 1 for role in self.roles.values() if not role.beside)
        if "nodes" in self.model_fields_set and self.nodes != total:
            raise ValueError(f"nodes is {self.nodes}, but the roles have {total}")
        return total

    def of_role(self, name: str) -> Intent:
        """The request of one role, as a separate job."""
        role = self.roles[name]
        own = {field: value for field in OWN if (value := getattr(role, field)) not in (None, "", ())}
        own |= with_variables(self, role.variables, role.passed)
        own |= {"program": role.program, "nodes": nodes_of(self.roles)[name][1], "roles": {}}
        return self.model_copy(update=own)


def with_variables(base: Intent, variables: Mapping[str, str], passed: Iterable[str]) -> dict[str, Any]:
    """The fields `variables` and `passed` of a request on top of `base`; for each name the newer value counts."""
    passed = tuple(passed)
    newer = {*variables, *passed}
    older = {name: value for name, value in base.variables.items() if name not in newer}
    names = (*(name for name in base.passed if name not in newer), *passed)
    return {"variables": {**older, **variables}, "passed": tuple(dict.fromkeys(names))}


def made(model: type[M], values: Mapping[str, Any], named: Callable[[str], str] = str) -> M:
    """A model from values that come from options, a recorded run or a job script instead of a user's file.

    Args:
        named: the name of a key (``nodes``, ``batch.queue``) in errors, e.g. its option.

    Raises:
        InputError: a value is invalid for its key.
    """
    try:
        return model.model_validate(values)
    except ValueError as error:
        from pydantic import ValidationError  # late, as the words for it, which bring the reader of YAML

        from stackyard.inputs.reading.validate import said

        if not isinstance(error, ValidationError):
            raise
        first = error.errors(include_url=False)[0]
        key = ".".join(str(step) for step in first["loc"] if step != "[key]")
        message, hint = said(first, named(key))
        raise InputError(message, hint=hint) from error


def recorded_intent(values: Mapping[str, Any], file: Path) -> Intent:
    """The request in the record of a run. Raises InputError, naming the record `file`, for a wrong value."""
    return made(Intent, values, lambda key: f"{file}: intent.{key}")
