"""`Intent`: what a person wants to run, before any scheduler or launcher is thought of. A job file holds one too."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from stackyard.spec.base import Model

Backend = Literal["auto", "torchrun", "horovod", "mpi", "deepspeed", "jax", "ray", "any"]
LauncherName = Literal["", "srun", "jsrun", "mpirun", "mpich", "pals", "flux", "local"]
Count = Annotated[int, Field(ge=1)]


class BatchOptions(Model):
    """What the scheduler is told about the job. Empty or 0: not said."""

    time_min: float = Field(0, ge=0, description="Wall time in minutes")
    account: str = ""
    queue: str = Field("", description="Partition or queue")
    qos: str = ""
    constraint: str = ""
    reservation: str = ""
    dependency: str = Field("", description="As the scheduler writes it, e.g. afterok:1234 or done(1234)")
    mail: str = Field("", description="The address")
    mail_events: tuple[Literal["begin", "end", "fail"], ...] = ()
    name: str = Field("", description="Job name; empty: the program's name")
    output: str = Field("", description="Where the batch script's own output goes; empty: into the run's folder")
    array: str = Field("", description="Indices of a job array, e.g. 0-9 or 1-100%4")
    requeue: bool = Field(False, description="Start again after a preemption or a time-out")
    signal_s: int = Field(0, ge=0, description="Seconds before the end at which the ranks get SIGUSR1; 0: none")
    memory_gib: float = Field(0, ge=0, description="Per node; 0: all, or the scheduler's default")
    exclusive: bool | None = Field(None, description="Whole nodes; None: as the site says")
    local_disk: bool = Field(False, description="Ask for the nodes' own disks, where these must be asked for")
    pack: Literal["", "racks"] = Field("", description="Nodes from as few racks as possible")
    scheduler_args: tuple[str, ...] = Field((), description="Passed through as they are")


class Intent(Model):
    """One distributed job. None and empty mean: the site, the node kind or the program decides."""

    program: tuple[str, ...] = Field((), description="The command of every rank; a *.py file is run by python")
    nodes: Count = 1
    ranks_per_node: Count | None = Field(None, description="None: one per GPU; without GPUs one per socket")
    cores_per_rank: Count | None = Field(None, description="None: as many as fit without straddling a socket")
    threads_per_rank: Count | None = Field(None, description="OMP_NUM_THREADS; None: one per core (or per SMT thread)")
    gpus_per_rank: int | None = Field(None, ge=0, description="None: GPUs divided by ranks")
    smt: int = Field(1, ge=1, description="Hardware threads used per core")
    gpu_visibility: Literal["auto", "all", "own"] = Field(
        "auto", description="Each rank sees all GPUs of its node, or only its own; auto: all where GPUs talk to peers"
    )
    distribution: Literal["block", "cyclic"] = Field("block", description="Ranks fill a node, or are dealt over nodes")
    straddle: bool = Field(False, description="Allow a rank on two sockets")
    oversubscribe: bool = Field(False, description="Allow more ranks or threads than cores")
    node_kind: str = Field("", description="One of the site's; empty: the only one, or this machine")
    backend: Backend = "auto"
    direct: bool = Field(True, description="torchrun: set the ranks' variables directly instead of starting torchrun")
    controller: Literal["auto", "mpi", "gloo"] = Field("auto", description="How Horovod's ranks find each other")
    launcher: LauncherName = ""
    launcher_args: tuple[str, ...] = Field((), description="Words added to the launch line as they are")
    stack: str = Field("", description="A published revision, e.g. pytorch/2.13")
    container: str = Field("", description="An image file or folder to run in")
    profile: tuple[str, ...] = Field((), description="e.g. nsys:ranks=0 or py-spy:ranks=0,8")
    check: bool = Field(False, description="Run the preflight before the program")
    spare: int = Field(0, ge=0, description="Nodes asked for beyond `nodes`, to leave bad ones out")
    hang_min: float = Field(
        0, ge=0, description="Minutes without any output after which the stacks are collected; 0: never"
    )
    variables: dict[str, str] = Field({}, description="For every rank")
    prologue: tuple[str, ...] = Field(
        (), description="Lines of bash before the start, in the batch script, e.g. module load cuda"
    )
    cwd: str = Field("", description="Where the program runs, absolute; empty: where it is launched")
    batch: BatchOptions = BatchOptions()
