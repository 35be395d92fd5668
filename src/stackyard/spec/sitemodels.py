"""The frozen models of a site. Apart from those of a stack, so that what only needs the site starts quickly.

The JSON Schema for editors (`stackyard schema site`) is made from `Site`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from stackyard.host.platforms import BuiltFor
from stackyard.spec.base import Model


class Interpreter(Model):
    """Where Python comes from: a conda channel, uv's managed Pythons, or this machine."""

    source: Literal["auto", "conda", "uv", "host"] = "auto"
    version: str = Field("", description="A version or range for uv and host, e.g. 3.11 or >=3.10,<3.13")
    path: str = Field("", description="The host's interpreter, absolute; empty: found on PATH")


class Domain(Model):
    """Cores and GPUs of a node that are closest to each other: a socket, a NUMA domain, or the cores sharing a cache.

    The order of the domains is the order in which ranks fill a node.
    """

    socket: int = Field(0, ge=0, description="The socket that it is part of")
    cores: str = Field(description="Cores for jobs, in the operating system's numbers of cores: 0-20 or 1-7,9-15")
    gpus: tuple[int, ...] = Field((), description="GPUs next to these cores, as the driver numbers them")
    nics: tuple[str, ...] = Field((), description="Network interfaces next to these cores, e.g. hsn0")


class Reference(Model):
    """What a healthy node or network reaches in one measurement of the preflight."""

    name: str = Field(description="The measurement, e.g. allreduce_node, allreduce_pair, allreduce_all, memory, clock")
    value: float = Field(description="What is expected, in `unit`")
    low: float = Field(0, description="Below value x (1 - low) the measurement fails; 0.2 is 20 %; 0: not judged")
    high: float = Field(0, description="Above value x (1 + high) it is reported as odd; 0: no upper limit")
    unit: str = Field("GB/s", description="For the reader")


class Gpu(Model):
    """The accelerators of a node kind."""

    count: int = 0
    vendor: Literal["nvidia", "amd", "intel", ""] = ""
    model: str = ""
    driver: str = Field("", description="Driver version, e.g. 550.54")
    cuda: str = Field("", description="Highest CUDA version the driver runs, e.g. 12.4; empty: from the driver")


class NodeKind(Model):
    """One kind of node. Locks are made for the kinds, not for the login node that runs the solver."""

    platform: BuiltFor = "linux-64"
    cores: int = Field(0, description="Cores usable by jobs")
    sockets: int = 1
    memory_gib: float = 0
    glibc: str = ""
    kernel: str = ""
    microarchitecture: str = Field("", description="archspec name, e.g. x86_64_v3 or power9")
    gpu: Gpu = Gpu()
    local_disk: str = ""
    smt: int = Field(1, ge=1, description="Hardware threads per core")
    smt_numbering: Literal["adjacent", "split"] = Field(
        "split", description="Threads of core c: c*smt+t (adjacent, POWER) or c+t*all cores (split, x86)"
    )
    all_cores: int = Field(
        0, description="Cores of the node, those kept for the system included; 0: as many as `cores`"
    )
    domains: tuple[Domain, ...] = Field((), description="Which cores and GPUs are near each other; empty: split evenly")
    nics: tuple[str, ...] = Field((), description="Interfaces for the job's traffic, e.g. hsn0; for NCCL and Gloo")
    gpu_peers: bool = Field(
        True, description="NCCL and RCCL need the other GPUs of the node to be visible to each rank"
    )
    queue: str = Field("", description="The partition or queue that has such nodes")
    constraint: str = Field("", description="The feature that selects such nodes")
    variables: dict[str, str] = Field({}, description="Variables for every rank on such nodes")
    references: tuple[Reference, ...] = Field((), description="Values that the preflight expects")


class ChannelPolicy(Model):
    """Which conda channels may be used and where they are."""

    default: tuple[str, ...] = Field(("conda-forge",), description="Used where a file names no channel")
    alias: str = Field("https://conda.anaconda.org", description="What a bare channel name is appended to")
    mirrors: dict[str, str] = Field({}, description="Channel name or URL: the URL to use instead")
    prepend: tuple[str, ...] = Field((), description="Channels put before those of every file")
    allowed: tuple[str, ...] = Field((), description="Globs; empty: all")
    denied: tuple[str, ...] = ()
    priority: Literal["strict", "flexible", "disabled"] = "strict"
    exclude_newer: str = Field("", description="A date; newer packages are not used")
    defaults: tuple[str, ...] = Field(("main", "r"), description="What the channel name `defaults` stands for")


class PipPolicy(Model):
    """Where pip packages come from; added to what pip.conf and PIP_* say."""

    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    read_pip_conf: bool = True


class UserPaths(Model):
    """Where users' own environments, packages and caches go."""

    bases: tuple[str, ...] = Field(("SCRATCH",), description="Variables that name a user's large file system, in order")
    suffix: str = "stackyard"
    fallback: str = Field(".local/share/stackyard", description="Under $HOME where none of the bases is set")
    envs: str = Field("conda/envs", description="Below that: users' conda environments")
    pkgs: str = Field("conda/pkgs", description="Below that: the packages that their conda has downloaded")


class ModulePolicy(Model):
    """How modules are named and written for this site."""

    root: str = Field("", description="Where modulefiles go; empty: <yard>/modules")
    naming: str = Field("{version}-{variant}-{revision}", description="A revision's module version")
    first_revision: int = Field(1, ge=0)
    formats: tuple[Literal["lua", "tcl"], ...] = ("lua", "tcl")
    aliases: dict[str, str] = Field({}, description="package: module name, e.g. tensorflow: tensorflow-py{python}")
    family: str = "python"
    default: Literal["newest", "first"] = "newest"
    depends_on: tuple[str, ...] = ()


class Permissions(Model):
    """Owner group and umask of what is written."""

    group: str = ""
    umask: str = Field("0022", pattern=r"^0?[0-7]{3}$")


class CondaRc(Model):
    """The policy for what users solve themselves, written as CONDARC into every revision."""

    threads: int = 4
    channels: tuple[str, ...] = ()
    auto_update: bool = False
    extra: dict[str, Any] = {}


class Overrides(Model):
    """How a site's value meets a stack's: force replaces, defaults give way, append and prepend join lists."""

    defaults: dict[str, Any] = {}
    force: dict[str, Any] = {}
    append: dict[str, Any] = {}
    prepend: dict[str, Any] = {}


class Scheduler(Model):
    """Who gives out nodes here, and how its options are to be written."""

    kind: Literal["", "slurm", "lsf", "pbs", "flux", "none"] = Field("", description="Empty: the one found here")
    version: str = Field("", description="e.g. 23.11; options differ; empty: asked where it is needed")
    launcher: Literal["", "srun", "jsrun", "mpirun", "mpich", "pals", "flux", "local"] = Field(
        "", description="What starts ranks; empty: srun, jsrun or mpirun, pals, flux, local by kind"
    )
    mpi: str = Field("", description="srun --mpi=..., e.g. pmix, pmi2, cray_shasta")
    csm: bool = Field(False, description="LSF with CSM: -nnodes, -alloc_flags, expert mode with -csm y")
    queue: str = Field("", description="Partition or queue where neither the user nor the node kind names one")
    gpu_request: Literal["gpus-per-node", "gres", "gpus-per-task", "none"] = Field(
        "gpus-per-node", description="How GPUs are asked for under Slurm"
    )
    gres_type: str = Field("", description="The type in --gres=gpu:TYPE:N, e.g. v100")
    linear: bool = Field(False, description="SelectType is select/linear: whole nodes, no per-task GRES")
    exclusive: bool = Field(True, description="A job gets whole nodes")
    rack_nodes: int = Field(0, ge=0, description="Nodes of one rack or leaf switch, for --pack racks")
    rack: Literal["switches", "segment", "exclusive-topo", "group"] = Field(
        "switches", description="How contiguous racks are asked for: Slurm --switches, --segment; PBS place=group"
    )
    rack_group: str = Field("", description="The resource of PBS place=group=..., e.g. tier0")
    rack_wait_min: int = Field(0, description="How long Slurm may hold out for few switches, --switches=N@time")
    core_spec: int = Field(-1, description="Slurm -S: cores per node kept for the system; -1: not said")
    options: tuple[str, ...] = Field((), description="Options of every batch script here, as one would write them")
    launcher_options: tuple[str, ...] = Field((), description="Options of every launch line here")
    alloc_flags: tuple[str, ...] = Field((), description="LSF -alloc_flags, e.g. smt4, gpumps, nvme")


class ContainerPolicy(Model):
    """How programs run inside an image here."""

    runtime: Literal["", "apptainer", "singularity", "charliecloud"] = Field("", description="Empty: the one found")
    binds: tuple[str, ...] = Field((), description="Folders and files of the host: src[:dst[:opts]], for --bind")
    options: tuple[str, ...] = Field((), description="Further options of its exec command")
    variables: dict[str, str] = Field({}, description="Variables set inside, e.g. LD_LIBRARY_PATH, LD_PRELOAD")
    libraries: tuple[str, ...] = Field((), description="Files of the host put on the library path inside (CONTAINLIBS)")


class LaunchPolicy(Model):
    """What holds for every distributed job here."""

    variables: dict[str, str] = Field(
        {}, description="For every rank; {local_rank}, {node}, {run}, {user} are replaced"
    )
    container: ContainerPolicy = ContainerPolicy()
    interface: str = Field(
        "", description="The interface on which nodes reach each other; empty: the one with the route"
    )
    runs: str = Field("runs", description="Where runs are recorded, below the folder that one works in")
    prologue: tuple[str, ...] = Field((), description="Lines at the start of every batch script, e.g. module purge")


class Site(Model):
    """One cluster. Every field has a good default, so a machine without any site.yaml is a site too."""

    name: str = ""
    summary: str = ""
    yard: str = Field("", description="The site's yard; a user's yard has it as its parent")
    user_yard: str = Field("", description="Where users' own yards go, e.g. $SCRATCH/stackyard; empty: the XDG folder")
    platforms: tuple[BuiltFor, ...] = ()
    nodes: dict[str, NodeKind] = {}
    channels: ChannelPolicy = ChannelPolicy()
    pip: PipPolicy = PipPolicy()
    pins: tuple[str, ...] = Field((), description="MatchSpecs that hold for everybody, e.g. cudatoolkit <10.3")
    interpreter: Interpreter = Interpreter()
    user_paths: UserPaths = UserPaths()
    modules: ModulePolicy = ModulePolicy()
    permissions: Permissions = Permissions()
    condarc: CondaRc = CondaRc()
    stacks: Overrides = Field(Overrides(), description="Values for every stack of this site")
    run_variables: dict[str, str] = Field({}, description="Variables that every stack sets")
    scheduler: Scheduler = Scheduler()
    launch: LaunchPolicy = LaunchPolicy()
    file: Annotated[str, Field(exclude=True)] = ""
