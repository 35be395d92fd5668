"""The frozen models of a site. Separate from those of a stack, so that a command that only needs the site starts fast.

The JSON Schema for editors (`stackyard schema site`) is made from `Site`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from stackyard.host.machine.platforms import BuiltFor
from stackyard.inputs.reading.acceptance import ShortForm, keyed
from stackyard.inputs.reading.latemodel import Field, LateModel
from stackyard.inputs.reading.words import (
    Alias,
    Family,
    HostModule,
    InnerPath,
    Interface,
    LoadedVariables,
    NodePath,
    OptionalPath,
    VariableRead,
    Variables,
    Word,
)
from stackyard.inputs.sites.jobmodels import BenchPolicy, BoardPolicy, LaunchPolicy, Scheduler

TORCH_BACKEND = r"cpu|xpu|cu\d{2,3}|rocm\d+(\.\d+)*"
"""The names of PyTorch's indexes, which are also the local parts of its versions."""


class Interpreter(LateModel):
    """The source of Python: a conda channel, uv's managed Pythons, or this machine."""

    source: Literal["auto", "conda", "uv", "host"] = "auto"
    version: str = Field("", description="A version or range, for uv and host, e.g. 3.11 or >=3.10,<3.13")
    path: str = Field("", description="Absolute path of the host's interpreter; empty: from PATH")

    def completed(self, site: Interpreter, version: str = "") -> Interpreter:
        """A stack's interpreter, completed by the version named elsewhere in the stack, else by the site."""
        source = site.source if self.source == "auto" else self.source
        wished = self.version or version or site.version
        return Interpreter(source=source, version=wished, path=self.path or site.path)


class Domain(LateModel):
    """Cores and GPUs of a node that are close to each other: a socket, a NUMA domain, or the cores that share a cache.

    The order of the domains is the order in which ranks fill a node.
    """

    socket: int = Field(0, ge=0, description="The socket that contains it")
    cores: str = Field(description="Cores for jobs, as numbered by the operating system: 0-20 or 1-7,9-15")
    gpus: tuple[int, ...] = Field((), description="GPUs close to these cores, as numbered by the driver")
    nics: tuple[Interface, ...] = Field((), description="Network interfaces close to these cores, e.g. hsn0")


class Reference(LateModel):
    """The value that a healthy node or network reaches in one measurement of the preflight check."""

    name: str = Field(description="The measurement, e.g. allreduce_node, allreduce_pair, allreduce_all, memory, clock")
    value: float = Field(description="Expected value, in `unit`")
    low: float = Field(0, description="Below value x (1 - low) the measurement fails; 0.2 is 20 %; 0: no lower limit")
    high: float = Field(0, description="Above value x (1 + high) it is reported as unusual; 0: no upper limit")
    unit: str = Field("GB/s", description="For display")


class Gpu(LateModel):
    """The accelerators of a node kind."""

    count: int = 0
    vendor: Literal["nvidia", "amd", "intel", ""] = ""
    model: str = ""
    driver: str = Field("", description="Driver version, e.g. 550.54")
    cuda: str = Field(
        "", description="Highest CUDA version that the driver supports, e.g. 12.4; empty: from the driver version"
    )


class NodeKind(LateModel):
    """One kind of node. Locks are made for these kinds, not for the login node that runs the solver."""

    platform: BuiltFor = "linux-64"
    cores: int = Field(0, le=10_000, description="Cores usable by jobs")
    sockets: int = Field(1, le=1000)
    memory_gib: float = 0
    glibc: str = ""
    kernel: str = ""
    microarchitecture: str = Field("", description="archspec name, e.g. x86_64_v3 or power9")
    gpu: Gpu = Gpu()
    local_disk: NodePath = ""
    smt: int = Field(1, ge=1, description="Hardware threads per core")
    smt_numbering: Literal["adjacent", "split"] = Field(
        "split", description="Threads of core c: c*smt+t (adjacent, POWER) or c+t*all cores (split, x86)"
    )
    all_cores: int = Field(
        0, le=10_000, description="Cores of the node including those reserved for the system; 0: same as `cores`"
    )
    domains: tuple[Domain, ...] = Field(
        (), description="Which cores and GPUs are close to each other; empty: split evenly"
    )
    nics: tuple[Interface, ...] = Field((), description="Network interfaces for NCCL and Gloo, e.g. hsn0")
    gpu_peers: bool = Field(True, description="NCCL and RCCL require each rank to see the other GPUs of the node")
    queue: Word = Field("", description="The partition or queue with such nodes")
    constraint: Word = Field("", description="The feature that selects such nodes")
    local_disk_constraint: Word = Field(
        "", description="The feature that makes `local_disk` available, for --local-disk"
    )
    variables: Variables = Field({}, description="Variables for every rank on such nodes")
    references: tuple[Reference, ...] = Field((), description="Reference values of the preflight check")


class ChannelPolicy(LateModel):
    """Which conda channels are allowed, and their URLs."""

    default: tuple[str, ...] = Field(("conda-forge",), description="Used if a file has no channels")
    alias: str = Field("https://conda.anaconda.org", description="Base URL of bare channel names")
    mirrors: dict[str, str] = Field({}, description="Channel name or URL: the URL to use instead")
    prepend: tuple[str, ...] = Field((), description="Channels put before those of every file")
    allowed: tuple[str, ...] = Field((), description="Globs; empty: all")
    denied: tuple[str, ...] = ()
    priority: Literal["strict", "flexible", "disabled"] = "strict"
    exclude_newer: str = Field("", description="A date; packages newer than this are excluded")
    defaults: tuple[str, ...] = Field(("main", "r"), description="The channels of the name `defaults`")


class PipPolicy(LateModel):
    """The sources of pip packages; in addition to pip.conf and PIP_*."""

    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    read_pip_conf: bool = True
    mirrors: dict[str, str] = Field(
        {},
        description="URL of an index, or its beginning: the URL to use instead, e.g. of https://download.pytorch.org",
    )
    torch_backend: str = Field(
        "",
        pattern=rf"^(|off|{TORCH_BACKEND})$",
        description="The build of torch: cpu, cu128, rocm6.4 ...; empty: by the accelerator axis or the node kinds; "
        "off: whichever the indexes have",
    )


class UserPaths(LateModel):
    """Paths of users' own environments, packages and caches."""

    bases: tuple[VariableRead, ...] = Field(
        ("SCRATCH",), description="Variables with the path of a user's large file system, in order"
    )
    suffix: InnerPath = "stackyard"
    fallback: InnerPath = Field(".local/share/stackyard", description="Under $HOME, used if none of the bases is set")
    envs: InnerPath = Field("conda/envs", description="Below that directory: users' conda environments")
    pkgs: InnerPath = Field("conda/pkgs", description="Below that directory: packages downloaded by users' conda")


class ModulePolicy(LateModel):
    """The names and the format of modules at this site."""

    root: OptionalPath = Field("", description="Directory of modulefiles; empty: <yard>/modules")
    naming: str = Field("{version}-{variant}-{revision}", description="Module version of a revision")
    first_revision: int = Field(1, ge=0)
    formats: tuple[Literal["lua", "tcl"], ...] = ("lua", "tcl")
    aliases: dict[str, Alias] = Field({}, description="package: module name, e.g. tensorflow: tensorflow-py{python}")
    family: Family = "python"
    default: Literal["newest", "first"] = "newest"
    depends_on: tuple[HostModule, ...] = ()
    prompt: bool = Field(False, description="Loaded stacks show their name in the shell's prompt, as conda does")


class Permissions(LateModel):
    """Group and umask of everything in the site's yard."""

    group: str = ""
    umask: str = Field("0022", pattern=r"^0?[0-7]{3}$")


class LicencePolicy(LateModel):
    """Who accepts licences, and which ones are denied."""

    on_behalf_of_users: tuple[str, ...] = Field(
        (), description="Licences that the site accepts for everyone who loads a module: their variable is set in it"
    )
    deny: tuple[str, ...] = Field(
        (),
        description="SPDX identifiers that no package may have, e.g. AGPL-*: a stack with one is not locked",
    )
    allow: tuple[str, ...] = Field((), description="Packages that may have any licence, since they were reviewed")
    unknown: Literal["allow", "deny"] = Field("allow", description="With `deny`: packages whose licence is not known")


class SignaturePolicy(LateModel):
    """Who signs revisions, and which uses require a signature by an allowed signer."""

    key: OptionalPath = Field(
        "", description="Signs what is published: a private SSH key, or a public one of an ssh-agent or a security key"
    )
    allowed_signers: OptionalPath = Field(
        "", description="Who may sign, as ssh-keygen(1) has it: NAME [OPTIONS] KEY-TYPE KEY; relative to site.yaml"
    )
    revoked: OptionalPath = Field("", description="Revoked keys: a KRL of ssh-keygen -k, or public keys")
    require: tuple[Literal["load", "extend", "pull", "launch"], ...] = Field(
        (), description="What needs a valid signature; load: modules, run and shell; launch: submit too"
    )
    users: bool = Field(False, description="Also in users' yards: their revisions need one of an allowed signer")


class CondaRc(LateModel):
    """The conda policy for users' own environments, written as CONDARC into every revision."""

    threads: int = 4
    channels: tuple[str, ...] = ()
    auto_update: bool = False
    extra: dict[str, Any] = {}


class Overrides(LateModel):
    """Values for every stack: force replaces, defaults are overridden, append and prepend join lists."""

    defaults: dict[str, Any] = {}
    force: dict[str, Any] = {}
    append: dict[str, Any] = {}
    prepend: dict[str, Any] = {}


class FileSystem(LateModel):
    """Limits of the yard's file system."""

    max_inodes: int = Field(
        0, ge=0, description="Files and directories of a revision, above which it is kept in an image; 0: no limit"
    )


class RemovalPolicy(LateModel):
    """When unused revisions and files are removed."""

    keep: int = Field(3, ge=0, description="What the last N generations showed is kept by `stackyard gc`")
    grace_days: float = Field(7, ge=0, description="Days for which a removal can be undone; then its files are deleted")
    hide_days: float = Field(30, ge=0, description="Days from the date of a retirement until it is hidden")
    remove_days: float = Field(90, ge=0, description="Days from the date of a retirement until it may be removed")
    failed_days: float = Field(14, ge=0, description="Days for which a build that was never published is kept")
    unseen_days: float = Field(
        30,
        ge=0,
        description="Days for which a use counts that cannot be asked from here, as a process of another host, and "
        "what the last collection found in closed yards",
    )


class UsagePolicy(LateModel):
    """Whether uses of revisions are counted, and what is displayed."""

    count: bool = Field(False, description="Count what `run`, `shell`, `launch` and module loads use, by user and day")
    keep_days: int = Field(730, ge=31, description="Days for which `gc` keeps the counts, by whole months")
    anonymous: bool = Field(False, description="`stackyard usage` shows how many users, and no names")


CATALOGUE_FORMATS = ("site", "markdown", "json")


class CataloguePolicy(LateModel):
    """The catalogues that are written again after each publication in the site's yard, by its owner."""

    directories: dict[str, OptionalPath] = Field(
        {}, description="By format (site, markdown, json): the directory, e.g. site: /srv/www/software"
    )
    url: str = Field("", description="Where the site is published, for its feed and for search engines: https://...")

    def checked(self) -> None:
        """Raise ValueError for an unknown format."""
        for form in self.directories:
            if form not in CATALOGUE_FORMATS:
                raise ValueError(f"{form!r} is not a format; choose {', '.join(CATALOGUE_FORMATS)}")


class CachePolicy(LateModel):
    """Limits for cache entries that no revision shares."""

    max_bytes: int = Field(0, ge=0, description="Entries beyond are removed, the oldest first; 0: no limit")
    max_age_days: float = Field(30, ge=0, description="Older entries are removed")


class BaseLicence(LateModel):
    """A licence of a base image: a person accepts it, and only then the image is imported."""

    name: str
    text: OptionalPath = Field("", description="Its text: a path in the image; empty: known by its name")
    file: OptionalPath = Field("", description="A file in the image that gets `line` once the licence is accepted")
    line: str = Field("", description="e.g. Status=9")


class BaseImage(LateModel):
    """A third-party image, copied into the yard, as a base of SIF and OCI images."""

    source: str = Field("", description="docker-archive:FILE, oci:DIR:TAG, docker://REGISTRY/NAME:TAG, sif:, folder:")
    digest: str = Field(
        "",
        pattern=r"^(|sha256:[0-9a-f]{64})$",
        description="Its manifest's, its image ID or its archive's",
    )
    platform: BuiltFor | Literal[""] = Field("", description="Empty: that of this machine")
    licences: tuple[BaseLicence, ...] = ()
    activate: str = Field("", description="Lines of shell that prepare it; `image extend` makes what they set its own")
    successor: str = Field("", description="The base to use instead: this one is retired")


class SiteCheck(LateModel):
    """Checks that run for every stack of a site, from a file or a plug-in."""

    file: OptionalPath = Field("", description="A list of checks, as in a stack.yaml; its path relative to site.yaml")
    plugin: str = Field("", description="The name of a check of an installed plug-in")

    def checked(self) -> None:
        """Raise ValueError unless exactly one of file and plug-in is given."""
        if bool(self.file) == bool(self.plugin):
            raise ValueError("write the path of a file of checks, or {plugin: NAME}")


SiteCheckItem = Annotated[SiteCheck, ShortForm(keyed("file"), str | SiteCheck)]


class Site(LateModel):
    """One cluster. Every field has a default, so a machine without a site.yaml is a site too."""

    name: str = ""
    summary: str = ""
    yard: OptionalPath = Field("", description="The site's yard, the parent of users' yards")
    user_yard: OptionalPath = Field(
        "", description="Path of users' own yards, e.g. $SCRATCH/stackyard; empty: the XDG data directory"
    )
    platforms: tuple[BuiltFor, ...] = ()
    nodes: dict[str, NodeKind] = {}
    channels: ChannelPolicy = ChannelPolicy()
    pip: PipPolicy = PipPolicy()
    mirror: str = Field(
        "", description="A mirror (stackyard mirror), directory or URL: locked files come from it and nowhere else"
    )
    pins: tuple[str, ...] = Field((), description="MatchSpecs for every solve, also of pip, e.g. cudatoolkit <10.3")
    interpreter: Interpreter = Interpreter()
    user_paths: UserPaths = UserPaths()
    modules: ModulePolicy = ModulePolicy()
    permissions: Permissions = Permissions()
    fs: FileSystem = FileSystem()
    removal: RemovalPolicy = RemovalPolicy()
    cache: CachePolicy = CachePolicy()
    usage: UsagePolicy = UsagePolicy()
    catalogue: CataloguePolicy = CataloguePolicy()
    licences: LicencePolicy = LicencePolicy()
    signatures: SignaturePolicy = SignaturePolicy()
    bases: dict[str, BaseImage] = Field({}, description="Base images by name")
    collisions: Literal["warn", "refuse"] = Field(
        "warn",
        description="Packages that install the same command, module or data file, where the stack does not choose one:"
        " refuse: nothing is built",
    )
    condarc: CondaRc = CondaRc()
    stacks: Overrides = Field(Overrides(), description="Values for every stack of this site")
    run_variables: LoadedVariables = Field({}, description="Variables that every stack sets")
    scheduler: Scheduler = Scheduler()
    launch: LaunchPolicy = LaunchPolicy()
    bench: BenchPolicy = BenchPolicy()
    board: BoardPolicy = BoardPolicy()
    checks: tuple[SiteCheckItem, ...] = Field(
        (), description="Checks of every stack: files, relative to site.yaml, and {plugin: NAME}"
    )
    causes: tuple[OptionalPath, ...] = Field(
        (), description="Files of known causes of failures, relative to site.yaml, tried before the program's own"
    )
    profiles: tuple[OptionalPath, ...] = Field(
        (), description="Bindings of machines, for `bindings detect --profile`: files, relative to site.yaml"
    )
    file: str = Field("", exclude=True)
