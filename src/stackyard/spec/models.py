"""The frozen models that every later room works from: `Environment`, `Stack`, `Variant` and `Site`.

Unknown keys are errors. Fields that hold times, sizes or counts have their unit in the name. The JSON Schema for
editors (`stackyard schema`) is made from `StackFile` and `Site`, so a field's description is written here once.
"""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator


class Model(BaseModel):
    """Closed and immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)


class Place(Model):
    """Where in a file something was written; lines and columns count from 1."""

    file: str = ""
    line: int = 0
    column: int = 0


# --------------------------------------------------------------------------- what an environment file says


class CondaRequirement(Model):
    """One conda MatchSpec, taken apart and put together again canonically.

    `spec` is what the solver is given, e.g. ``conda-forge::numpy >=1.26,<2`` or ``pytorch 2.* *cuda12*``.
    `selector` is the condition under which it holds (``linux64``, ``accelerator == 'cuda'``), or empty.
    """

    text: str
    spec: str
    name: str = ""
    version: str = ""
    build: str = ""
    channel: str = ""
    subdir: str = ""
    url: str = ""
    selector: str = ""
    place: Place = Place()


class PipRequirement(Model):
    """One requirement of a pip section or of a requirements file.

    `kind` tells which fields matter: ``name`` (name, extras, specifier), ``url`` (url; a wheel or archive), ``vcs``
    (url with ``git+``), ``path`` (path, a local file or project). `editable` was ``-e``: it becomes a wheel made from a
    snapshot.
    `line` is the requirement as uv and pip read it, without options of its own and with absolute paths.
    """

    text: str
    line: str
    kind: Literal["name", "url", "vcs", "path"] = "name"
    name: str = ""
    extras: tuple[str, ...] = ()
    specifier: str = ""
    marker: str = ""
    url: str = ""
    path: str = ""
    editable: bool = False
    hashes: tuple[str, ...] = ()
    config_settings: tuple[str, ...] = ()
    index: str = ""
    selector: str = ""
    place: Place = Place()


class PipOptions(Model):
    """The options that a requirements file can carry, in pip's own meaning. None or empty: not given."""

    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    no_binary: tuple[str, ...] = ()
    only_binary: tuple[str, ...] = ()
    pre: bool = False
    prefer_binary: bool = False
    require_hashes: bool = False
    trusted_hosts: tuple[str, ...] = ()
    use_features: tuple[str, ...] = ()
    all_releases: tuple[str, ...] = Field((), description="Packages whose pre-releases are allowed; :all: is --pre")
    only_final: tuple[str, ...] = Field((), description="Packages whose pre-releases are not allowed")


class Environment(Model):
    """What an environment.yml, a requirements.txt or the ``environment:`` of a stack.yaml says, wholly understood.

    `notices` are sentences for the user: a selector that was honoured, ``-e`` that becomes a wheel, a prefix ignored.
    `files` are all files that were read to get here (absolute paths), for the lock's staleness and the recipe.
    Channels, index URLs, find-links and URLs keep ``$VAR`` as written, so that no secret is recorded:
    `spec.environment.expand_channel` and `spec.piprequirement.expand` give the value where it is used.
    `channel_selectors` and `variable_selectors` hold the selectors of those entries that have one.
    `missing` are the requirement files that were not there; filled only where the reader was told not to refuse them.
    `channel_places` and `option_places` say where a channel, an index or a find-links place was written, for errors.
    """

    name: str | None = None
    prefix: str | None = None
    channels: tuple[str, ...] = ()
    nodefaults: bool = False
    conda: tuple[CondaRequirement, ...] = ()
    pip: tuple[PipRequirement, ...] = ()
    constraints: tuple[PipRequirement, ...] = ()
    pip_options: PipOptions = PipOptions()
    variables: dict[str, str] = {}
    platforms: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    channel_selectors: dict[str, str] = {}
    variable_selectors: dict[str, str] = {}
    category: str = ""
    missing: tuple[str, ...] = ()
    channel_places: dict[str, Place] = {}
    option_places: dict[str, Place] = {}


# --------------------------------------------------------------------------- what a stack says


class Interpreter(Model):
    """Where Python comes from: a conda channel, uv's managed Pythons, or this machine."""

    source: Literal["auto", "conda", "uv", "host"] = "auto"
    version: str = Field("", description="A version or range for uv and host, e.g. 3.11 or >=3.10,<3.13")
    path: str = Field("", description="The host's interpreter, absolute; empty: found on PATH")


class HostTool(Model):
    """A program of the machine that a build needs, such as nvcc or mpicc."""

    name: str
    version: str = Field("", description="A range the tool's own --version must satisfy, e.g. >=11.0")
    variable: str = Field("", description="A variable that is set to its path while building")


class PackageBuild(Model):
    """How one pip package is compiled."""

    no_binary: bool = Field(True, description="Compile it here even where a wheel exists")
    requires: tuple[str, ...] = Field((), description="Build requirements installed beforehand, as pip writes them")
    isolation: bool = Field(False, description="Compile in an environment of its own instead of in the stack")
    patches: tuple[str, ...] = Field((), description="Patch files (patch -p1) applied to its source, absolute")
    variables: dict[str, str] = Field({}, description="Variables for this package alone")
    config_settings: dict[str, str] = {}


class BuildSpec(Model):
    """What holds while building; all of it is part of the cache key of every compiled wheel."""

    variables: dict[str, str] = Field({}, description="{prefix}, {python}, {ncores} and {env:NAME} are replaced")
    tools: tuple[HostTool, ...] = Field((), description="Host programs that must be there")
    modules: tuple[str, ...] = Field((), description="Environment modules of the site, loaded while building")
    packages: dict[str, PackageBuild] = Field({}, description="Per pip package")
    keep: tuple[str, ...] = Field(
        (), description="Build-only variables (CC, CFLAGS ...) to export to users all the same"
    )


class NodeNeed(Model):
    """The kind of node that a check needs; every given field must hold."""

    gpu: bool = False
    arch: str = ""
    node_kind: str = ""


class Check(Model):
    """One check of a stack's own, run in the loaded module before anything is published.

    Exactly one of `run` (argv), `python` (source text) or `script` (a file, absolute) is given. `table` checks a
    ``[X] Name`` table such as that of ``horovodrun --check-build``: every listed name must be ticked.
    """

    name: str
    run: tuple[str, ...] = ()
    python: str = ""
    script: str = ""
    expect: str = Field("", description="A regular expression that the output must match")
    table: tuple[str, ...] = ()
    needs: NodeNeed = NodeNeed()
    required: bool = True
    timeout_min: float = 10


class CheckExceptions(Model):
    """What verification need not prove, each declared by the stack's author."""

    imports: tuple[str, ...] = Field((), description="Modules that need not import, e.g. ones that need a GPU")
    commands: tuple[str, ...] = Field((), description="Entry points that need not import")
    libraries: tuple[str, ...] = Field((), description="Shared libraries that come from the host, globs")
    distributions: tuple[str, ...] = Field((), description="Distributions whose requirements need not hold")


class Licence(Model):
    """A licence that a person must accept; `text` is the file with its text, absolute."""

    name: str
    text: str = ""
    variable: str = Field("", description="A variable that the software reads as acceptance")


class ModuleSettings(Model):
    """How a stack appears to module users."""

    family: str | None = Field(None, description="Absent: the site's; empty: none")
    conflict: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = Field((), description="Host modules loaded with it")
    aliases: tuple[str, ...] = Field((), description="Packages that get an alias module, e.g. horovod")
    variables: dict[str, str] = Field({}, description="Extra variables, {prefix} replaced")
    notice: str = ""
    hidden: bool = False
    deprecated: str = Field("", description="YYYY-MM-DD and a message, shown at load")
    conda_base: bool | None = Field(None, description="The stack brings conda itself; None: seen from its packages")
    help: str = ""

    @field_validator("deprecated")
    @classmethod
    def _begins_with_a_date(cls, text: str) -> str:
        if text and not _is_date(text.split(maxsplit=1)[0]):
            raise ValueError(f"{text!r} does not begin with a date: write e.g. 2026-12-31 use the module open-ce")
        return text


def _is_date(text: str) -> bool:
    try:
        return len(text) == 10 and bool(date.fromisoformat(text))
    except ValueError:
        return False


class Variant(Model):
    """One point of a stack's matrix: all that lock and build need to know, selectors for its axes resolved.

    `environment` still carries platform selectors; `lock` resolves them per platform.
    """

    stack: str
    version: str
    name: str
    axes: dict[str, str] = {}
    summary: str = ""
    environment: Environment = Environment()
    interpreter: Interpreter = Interpreter()
    run_variables: dict[str, str] = {}
    build: BuildSpec = BuildSpec()
    post: str = Field("", description="The post-build script, absolute path")
    checks: tuple[Check, ...] = ()
    exceptions: CheckExceptions = CheckExceptions()
    licences: tuple[Licence, ...] = ()
    modules: ModuleSettings = ModuleSettings()
    platforms: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    place: Place = Place()


class Stack(Model):
    """One file, understood: a name and its variants in the order of the matrix. The last variant is the newest."""

    name: str
    summary: str = ""
    variants: tuple[Variant, ...]
    default: str = Field("", description="The variant that the bare name means; empty: the site's rule")
    kind: Literal["stack", "environment", "requirements"] = "stack"
    file: str = ""
    dated: bool = Field(False, description="The version is a date because nobody gave one")


# --------------------------------------------------------------------------- what a site says

Platform = Literal["linux-64", "linux-aarch64", "linux-ppc64le"]


class Domain(Model):
    """Cores and GPUs of a node that are closest to each other: a socket, a NUMA domain, or the cores sharing a cache.

    The order of the domains is the order in which ranks fill a node.
    """

    socket: int = Field(0, ge=0, description="The socket that it is part of")
    cores: str = Field(description="Cores for jobs, in the operating system's numbers of cores: 0-20 or 1-7,9-15")
    gpus: tuple[int, ...] = Field((), description="GPUs next to these cores, as the driver numbers them")
    nics: tuple[str, ...] = Field((), description="Network interfaces next to these cores, e.g. hsn0")


class Reference(Model):
    """What a healthy node or network reaches in one measurement of the gate."""

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

    platform: Platform = "linux-64"
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
    references: tuple[Reference, ...] = Field((), description="What the gate expects")


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
    platforms: tuple[Platform, ...] = ()
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
