"""The frozen models that all other packages work with: `Environment`, `Stack`, `Variant`; and `Site`, from `sites`.

Unknown keys are errors. Fields that hold times, sizes or counts have their unit in the name. The JSON Schema for
editors (`stackyard schema`) is made from `StackFile` and `Site`, so a field's description is written here once.
"""

from __future__ import annotations

from typing import Literal

from stackyard.core.errors import Where
from stackyard.inputs.reading.latemodel import Field, LateModel
from stackyard.inputs.reading.words import (
    Alias,
    Command,
    Deprecation,
    Family,
    HostModule,
    LoadedVariables,
    OptionalVariable,
    Program,
    Text,
    VariableName,
    Variables,
    WholePath,
)
from stackyard.inputs.sites.sitemodels import Interpreter as Interpreter  # noqa: PLC0414 - of the models too
from stackyard.inputs.sites.sitemodels import Site as Site  # noqa: PLC0414 - of the models too
from stackyard.yard.kinds.adopted import AdoptedPrefix
from stackyard.yard.kinds.extension import BaseRevision
from stackyard.yard.kinds.payload import Packing

# --------------------------------------------------------------------------- contents of an environment file


class CondaRequirement(LateModel):
    """One conda MatchSpec, parsed and in canonical form.

    `spec` is passed to the solver, e.g. ``conda-forge::numpy >=1.26,<2`` or ``pytorch 2.* *cuda12*``.
    `selector` is the condition under which it applies (``linux64``, ``accelerator == 'cuda'``), or empty.
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
    place: Where = Where()


class PipRequirement(LateModel):
    """One requirement of a pip section or of a requirements file.

    `kind` determines the relevant fields: ``name`` (name, extras, specifier), ``url`` (url; a wheel or archive),
    ``vcs`` (url with ``git+``), ``path`` (path, a local file or project). `editable`: given with ``-e``; it becomes a
    wheel made from a snapshot.
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
    place: Where = Where()


class PipOptions(LateModel):
    """The options of a requirements file, with pip's semantics. None or empty: not given."""

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


class Environment(LateModel):
    """The parsed content of an environment.yml, a requirements.txt or the ``environment:`` of a stack.yaml.

    `notices` are messages for the user: a selector that applies, ``-e`` that becomes a wheel, an ignored prefix.
    `files` are all files that were read (absolute paths), for the lock's staleness and the recipe. Channels, index
    URLs, find-links and URLs keep ``$VAR`` as written, so that no secret is recorded: `lock.conda.channels.Resolver`
    and `inputs.pip.requirement.expand` insert the values where they are used. `channel_selectors` and
    `variable_selectors` hold the selectors of those entries that have one. `missing` are requirement files that do not
    exist; always empty with a strict reader. `channel_places` and `option_places` are the places of channels, indexes
    and find-links entries, for errors.
    """

    name: str | None = None
    prefix: str | None = None
    channels: tuple[str, ...] = ()
    nodefaults: bool = False
    conda: tuple[CondaRequirement, ...] = ()
    pip: tuple[PipRequirement, ...] = ()
    constraints: tuple[PipRequirement, ...] = ()
    pip_options: PipOptions = PipOptions()
    variables: LoadedVariables = {}
    platforms: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    channel_selectors: dict[str, str] = {}
    variable_selectors: dict[str, str] = {}
    category: str = ""
    missing: tuple[str, ...] = ()
    channel_places: dict[str, Where] = {}
    option_places: dict[str, Where] = {}


# --------------------------------------------------------------------------- contents of a stack


class HostTool(LateModel):
    """A host program that a build requires, such as nvcc or mpicc."""

    name: Program
    version: str = Field("", description="A range the tool's own --version must satisfy, e.g. >=11.0")
    variable: OptionalVariable = Field("", description="Variable that is set to its path during the build")


class PackageBuild(LateModel):
    """The settings for compiling one pip package."""

    no_binary: bool = Field(True, description="Compile it even if a wheel exists")
    requires: tuple[str, ...] = Field(
        (), description="Build requirements besides those that it declares, as pip writes them"
    )
    isolation: bool = Field(False, description="Compile in a separate environment instead of in the stack")
    incomplete: bool = Field(False, description="Accept a wheel that lacks extensions of its source")
    patches: tuple[str, ...] = Field((), description="Patch files (patch -p1) applied to its source, absolute")
    variables: Variables = Field({}, description="Variables for this package alone")
    config_settings: dict[str, str] = {}


class BuildSpec(LateModel):
    """Settings of the build; all are part of the cache key of every compiled wheel."""

    variables: Variables = Field({}, description="{prefix}, {python}, {ncores} and {env:NAME} are replaced")
    tools: tuple[HostTool, ...] = Field((), description="Required host programs")
    modules: tuple[HostModule, ...] = Field((), description="Environment modules of the site, loaded during the build")
    packages: dict[str, PackageBuild] = Field({}, description="Per pip package")
    keep: tuple[VariableName, ...] = Field(
        (), description="Build variables (CC, CFLAGS ...) to export to users nevertheless"
    )


class NodeNeed(LateModel):
    """The kind of node that a check requires; every given field must match."""

    gpu: bool = False
    arch: str = ""
    node_kind: str = ""


class Check(LateModel):
    """One of a stack's own checks, run in the loaded module before publication.

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
    timeout_min: float = 10.0


class CheckExceptions(LateModel):
    """The exceptions from verification, each declared by the stack's author."""

    imports: tuple[str, ...] = Field((), description="Modules that may fail to import, e.g. because they require a GPU")
    commands: tuple[str, ...] = Field((), description="Entry points that may fail to import")
    libraries: tuple[str, ...] = Field((), description="Shared libraries that come from the host, globs")
    distributions: tuple[str, ...] = Field((), description="Distributions whose requirements may be unmet")
    broken_commands: Literal["", "warn", "fail"] = Field(
        "",
        description="A console script that does not import fails the verification, or is a warning; "
        "empty: it fails in a stack.yaml, and is a warning in an environment.yml or a requirements.txt",
    )


class Licence(LateModel):
    """A licence that the builder must accept; `text` is the absolute path of its text."""

    name: str
    text: str = ""
    variable: OptionalVariable = Field("", description="Variable that the software reads as acceptance")


class MaxNodes(LateModel):
    """The number of nodes on which a stack may run at once, where e.g. a licence ends there."""

    count: int = Field(ge=1, description="The largest number of nodes of a job")
    reason: Text = Field("", description="Why, in a few words; shown where a job with more nodes is refused")


class ModuleSettings(LateModel):
    """Settings of a stack's modulefiles."""

    family: Family | None = Field(None, description="Not set: the site's; empty: none")
    conflict: tuple[HostModule, ...] = ()
    depends_on: tuple[HostModule, ...] = Field((), description="Host modules that are loaded with it")
    aliases: tuple[Alias, ...] = Field((), description="Packages with an alias module, e.g. horovod")
    commands: tuple[Command, ...] = Field(
        (), description="Loading puts only these commands on PATH, and man pages on MANPATH; empty: the whole stack"
    )
    completions: tuple[Command, ...] = Field(
        (), description="Commands that TAB completes while it is loaded, by the scripts that their packages install"
    )
    variables: LoadedVariables = Field({}, description="Extra variables, {prefix} replaced")
    notice: Text = ""
    prompt: bool | None = Field(None, description="The stack's name in the shell's prompt; not set: the site's")
    hidden: bool = False
    deprecated: Deprecation = Field("", description="YYYY-MM-DD and a message, shown at load")
    conda_base: bool | None = Field(None, description="The stack contains conda; not set: determined from its packages")
    help: Text = ""
    category: Text = Field("", description="Shown by `module whatis`, e.g. machine learning")
    url: Text = Field("", description="Where its documentation is; shown by `module whatis`")


class Bind(LateModel):
    """A file or directory of the host in a container; `target` is its path there."""

    source: WholePath
    target: WholePath
    read_only: bool = False


class Wrap(LateModel):
    """Commands of a third-party image as a module."""

    image: str = Field(
        description="A base of the yard, or sif:FILE, oci:DIR[:TAG], docker-archive:FILE[:TAG], docker://NAME:TAG"
    )
    digest: str = Field("", pattern=r"^(sha256:[0-9a-f]{64})?$", description="What the image must be; empty: as it is")
    commands: tuple[str, ...] = Field(
        description="Names on the image's PATH, paths in it, NAME=PATH, patterns (/opt/conda/bin/*), or all of its PATH"
    )
    mode: Literal["host", "isolated"] = Field(
        "host", description="host: the host's directories of users, and those that the image lacks; isolated: none"
    )
    bind: tuple[Bind, ...] = Field((), description="Further ones of the host: SOURCE[:TARGET[:ro]]")
    environment: LoadedVariables = Field({}, description="Variables in the container; they win over the image's")
    nv: bool = Field(False, description="The host's NVIDIA driver libraries in it")
    libraries: tuple[WholePath, ...] = Field(
        (), description="Host files added to its library path; * is expanded on the node"
    )
    before: str = Field("", description="A file of shell that is read in the container before each command")
    host_bindings: bool = Field(False, description="What the site gives images: its launch: container:")

    def checked(self) -> None:
        """Raise ValueError without commands."""
        if not self.commands:
            raise ValueError("`commands` is empty: name at least one")


class Variant(LateModel):
    """One point of a stack's matrix: everything that lock and build use, with selectors on its axes resolved.

    `environment` still carries platform selectors; `lock` resolves them per platform.
    """

    stack: str
    version: str
    name: str
    on: str = Field("", description="The name of the revision that it is a layer on, as its file has it")
    base: BaseRevision | None = Field(None, description="That revision, once it is looked up")
    adopted: AdoptedPrefix | None = Field(None, description="The prefix that it is, where others made it")
    axes: dict[str, str] = {}
    summary: str = ""
    environment: Environment = Environment()
    interpreter: Interpreter = Interpreter()
    torch_backend: str = Field("", description="The build of torch, as its file or the command names it: cpu, cu128")
    run_variables: LoadedVariables = {}
    build: BuildSpec = BuildSpec()
    post: str = Field("", description="The post-build script, absolute path")
    checks: tuple[Check, ...] = ()
    exceptions: CheckExceptions = CheckExceptions()
    licences: tuple[Licence, ...] = ()
    max_nodes: MaxNodes | None = None
    modules: ModuleSettings = ModuleSettings()
    image: Packing = Field("prefix", description="How its files are kept: each for itself, or in one SquashFS image")
    wrap: Wrap | None = None
    on_host: tuple[str, ...] = Field((), description="Commands that are the host's, whatever a package has")
    collisions: dict[str, str] = Field({}, description="Whose file is taken where several packages install one path")
    collision_places: dict[str, Where] = Field({}, description="The places of these lines, for errors")
    platforms: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    place: Where = Where()


class Stack(LateModel):
    """One parsed file: a name and its variants in the order of the matrix. The last variant is the newest."""

    name: str
    summary: str = ""
    variants: tuple[Variant, ...]
    default: str = Field("", description="The default variant; empty: the site's rule")
    kind: Literal["stack", "environment", "requirements", "adopted"] = "stack"
    file: str = ""
    dated: bool = Field(False, description="The version is a date because none was given")
    chosen: tuple[int, ...] = Field((), description="The positions of the variants that are asked for; empty: all")

    @property
    def wanted(self) -> tuple[Variant, ...]:
        """The requested variants; the others are not changed, in the lock and in the yard."""
        return tuple(self.variants[n] for n in self.chosen) if self.chosen else self.variants

    def in_form(self, image: Packing) -> Stack:
        """The stack with another form for the files of each variant."""
        variants = tuple(variant.model_copy(update={"image": image}) for variant in self.variants)
        return self.model_copy(update={"variants": variants})
