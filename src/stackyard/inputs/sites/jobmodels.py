"""The frozen models of a site that are about its jobs: the scheduler, containers, launches, studies and boards."""

from __future__ import annotations

from typing import Literal

from stackyard.inputs.reading.latemodel import Field, LateModel
from stackyard.inputs.reading.words import OptionalInterface, OptionalPath, Variables, Word
from stackyard.inputs.sites.references import StudyReference


class QueueLimit(LateModel):
    """A size of job that a queue accepts. A queue whose time limit depends on the size has several rows."""

    name: Word = Field(description="The partition or queue, or with `qos` the quality of service")
    qos: bool = Field(False, description="A quality of service of Slurm")
    min_nodes: int = Field(1, ge=1)
    max_nodes: int = Field(0, ge=0, description="0: no limit")
    time_min: float = Field(0, ge=0, description="The longest wall time in minutes; 0: no limit")


class Scheduler(LateModel):
    """The batch system, and the syntax of its options."""

    kind: Word = Field("", description="slurm, lsf, pbs, flux, none, or that of a plug-in; empty: detected")
    version: str = Field("", description="e.g. 23.11; options differ between versions; empty: detected")
    launcher: Word = Field(
        "",
        description="What starts ranks: srun, jsrun, mpirun, mpich, pals, flux, local, or that of a plug-in; "
        "empty: srun, jsrun or mpirun, flux, local by kind; PBS: by mpiexec on PATH",
    )
    mpi: Word = Field("", description="srun --mpi=..., e.g. pmix, pmi2; empty: the cluster's default")
    csm: bool = Field(False, description="LSF with CSM: -nnodes, -alloc_flags, expert mode with -csm y")
    queue: Word = Field("", description="Partition or queue if neither the user nor the node kind sets one")
    queues: tuple[QueueLimit, ...] = Field((), description="The sizes of jobs that queues take, preferred ones first")
    gpu_request: Literal["gpus-per-node", "gres", "gpus-per-task", "none"] = Field(
        "gpus-per-node", description="How GPUs are requested from Slurm"
    )
    gres_type: Word = Field("", description="The type in --gres=gpu:TYPE:N, e.g. v100")
    linear: bool = Field(False, description="SelectType is select/linear: whole nodes, no per-task GRES")
    exclusive: bool = Field(True, description="Jobs get exclusive nodes")
    rack_nodes: int = Field(0, ge=0, description="Number of nodes in a rack or at a leaf switch, for --pack racks")
    rack: Literal["switches", "segment", "exclusive-topo", "group"] = Field(
        "switches", description="How contiguous racks are requested: Slurm --switches, --segment; PBS place=group"
    )
    rack_group: Word = Field("", description="Resource for PBS place=group=..., e.g. tier0")
    rack_wait_min: int = Field(0, description="How long Slurm may wait for few switches, --switches=N@time")
    core_spec: int = Field(-1, description="Slurm -S: cores per node reserved for the system; -1: not set")
    options: tuple[str, ...] = Field((), description="Options of every batch script, as on the command line")
    launcher_options: tuple[str, ...] = Field((), description="Options of every launcher command")
    alloc_flags: tuple[Word, ...] = Field((), description="LSF -alloc_flags, e.g. smt4, gpumps, nvme")


_CLEANING = ("--cleanenv", "-e", "--containall", "-C", "--unset-env=*")
"""Options of Apptainer, Singularity and Charliecloud."""


class ContainerPolicy(LateModel):
    """The settings for programs in an image."""

    runtime: Word = Field(
        "",
        description="apptainer, singularity, charliecloud, pyxis, podman-hpc, edf, uenv, shifter, or a plug-in's; "
        "empty: one of the first three, detected",
    )
    binds: tuple[str, ...] = Field((), description="Directories and files of the host: src[:dst[:opts]], for --bind")
    options: tuple[str, ...] = Field((), description="More options of its exec command")
    variables: Variables = Field({}, description="Variables set in the container, e.g. LD_LIBRARY_PATH, LD_PRELOAD")
    libraries: tuple[str, ...] = Field(
        (), description="Host files added to the container's library path (CONTAINLIBS); * is expanded on the node"
    )
    bindings: OptionalPath = Field(
        "",
        description="A bindings.yaml (stackyard bindings detect), relative to site.yaml: what images get from the host",
    )

    @property
    def cleaning(self) -> str:
        """The first option that removes the variables of the ranks and of their launcher, or empty."""
        return next((option for option in self.options if option in _CLEANING), "")


class LaunchPolicy(LateModel):
    """Settings of every distributed job."""

    variables: Variables = Field({}, description="For every rank; {local_rank}, {node}, {run}, {user} are replaced")
    container: ContainerPolicy = ContainerPolicy()
    interface: OptionalInterface = Field("", description="Network interface between nodes; empty: the one of the route")
    start_s: float = Field(60, ge=1, description="Seconds within which all nodes, and then all ranks, must report")
    lost_s: float = Field(60, ge=2, description="Seconds of silence after which a node is lost")
    grace_s: float = Field(5, ge=0, description="Seconds from SIGTERM to SIGKILL")
    probe: bool = Field(True, description="Ranks have the probe on PYTHONPATH, for `profile RUN`, --profile and --hang")
    probe_signal: int = Field(
        43, ge=35, le=64, description="With --hang: the real-time signal for stacks; 43 is SIGRTMIN+9 (kill -l)"
    )
    world_check: bool = Field(
        True, description="A run whose ranks were never connected to each other, as their framework does, has failed"
    )
    offline: bool = Field(
        False,
        description="Compute nodes have no internet: Weights & Biases and MLflow write into the run directory, unless "
        "their variables are set",
    )
    runs: OptionalPath = Field("runs", description="Where runs are recorded, relative to the working directory")
    prologue: tuple[str, ...] = Field((), description="Lines at the start of every batch script, e.g. module purge")


class BenchPolicy(LateModel):
    """Settings of studies."""

    confirm_node_hours: float = Field(
        100, ge=0, description="`stackyard bench` asks before it submits jobs that may take more; 0: never"
    )
    references: tuple[StudyReference, ...] = Field(
        (), description="Medians that studies have to reach on this machine: else exit status 3"
    )


class BoardPolicy(LateModel):
    """Settings of `stackyard board`."""

    login: Word = Field(
        "", description="The login node as it is called outside, for ssh -J; empty: the host that submitted the job"
    )
