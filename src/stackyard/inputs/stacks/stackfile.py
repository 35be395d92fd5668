"""`StackFile`: the contents of a stack.yaml, with the short forms that the format allows.

These models represent the file; `models.Stack` and `models.Variant` represent its meaning. The JSON Schema for editors
comes from here, so a field's description is written once. Lists may hold conditions (`stackyard.inputs.stacks.expand`),
which are resolved before a point of the matrix is validated against these models.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

from stackyard.core.quoting import quoted
from stackyard.host.machine.platforms import BuiltFor
from stackyard.inputs.models import (
    Bind,
    BuildSpec,
    Check,
    CheckExceptions,
    HostTool,
    Interpreter,
    Licence,
    MaxNodes,
    ModuleSettings,
    Wrap,
)
from stackyard.inputs.reading.acceptance import ShortForm, ShownAs, keyed
from stackyard.inputs.reading.latemodel import Field, LateModel
from stackyard.inputs.reading.words import CollisionPath, CollisionWinner, LoadedVariables, Text
from stackyard.inputs.sites.sitemodels import TORCH_BACKEND
from stackyard.yard.kinds.payload import Packing


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _words(value: Any) -> Any:
    return shlex.split(value) if isinstance(value, str) else value


def _tool(value: Any) -> Any:
    """``nvcc >=11.0`` as name and version."""
    if not isinstance(value, str):
        return value
    name = re.split(r"[\s<>=!~]", value, maxsplit=1)[0]
    return {"name": name, "version": value[len(name) :].strip()}


def _check(value: Any) -> Any:
    """A command line as a check of the same name."""
    if isinstance(value, str):
        return {"name": value, "run": value}
    return value


StringList = Annotated[tuple[str, ...], ShortForm(_as_list, str | tuple[str, ...])]
CommandName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.+-]*[A-Za-z0-9_+-]$")]
CommandNames = Annotated[tuple[CommandName, ...], ShortForm(_as_list, str | tuple[CommandName, ...])]
CommandLine = Annotated[tuple[str, ...], ShortForm(_words, str | tuple[str, ...])]
Tool = Annotated[HostTool, ShortForm(_tool, str | HostTool)]

_MATRIX_SCHEMA = {
    "type": "object",
    "description": "One key per axis (python, accelerator, mpi ...): a list of values, or a mapping from version to"
    " such a list. `exclude` drops the points that match, `include` adds points, which may have a `variant`.",
    "properties": {
        "include": {"type": "array", "items": {"type": "object"}},
        "exclude": {"type": "array", "items": {"type": "object"}},
    },
    "additionalProperties": {"type": ["array", "object", "string", "number"]},
}
_ENVIRONMENT_KEYS = {
    "name": {"type": ["string", "null"]},
    "channels": {"type": "array", "description": "conda channels in order of priority"},
    "dependencies": {"type": "array", "description": "MatchSpecs, and `pip:` with lines of a requirements file"},
    "variables": {"type": "object", "description": "Variables set while the stack is loaded"},
    "platforms": {"type": "array"},
    "prefix": {"type": ["string", "null"]},
    "category": {"type": "string"},
}
_ENVIRONMENT_ITEM = [{"type": "string"}, {"type": "object", "properties": _ENVIRONMENT_KEYS}]
_ENVIRONMENT_SCHEMA = {
    "description": "What is installed: the keys of an environment.yml, the path of an environment.yml or of a"
    " requirements.txt, or a list of these, which are joined in order.",
    "anyOf": [*_ENVIRONMENT_ITEM, {"type": "array", "items": {"anyOf": _ENVIRONMENT_ITEM}}],
}


class Import(LateModel):
    """Another stack.yaml whose parts are joined to those of this one."""

    file: str
    version: str = Field("", description="Which of its versions, if it has several and not this stack's own")


class RunBlock(LateModel):
    """Settings of the loaded stack."""

    variables: LoadedVariables = Field(
        {}, description="Variables to set; {prefix} is the directory of the installed stack"
    )


class PipBlock(LateModel):
    """The sources of pip packages of this stack."""

    indexes: dict[str, str] = Field({}, description="package: URL of the only index that it is installed from")
    torch_backend: str = Field(
        "",
        pattern=rf"^(|off|{TORCH_BACKEND})$",
        description="The build of torch: cpu, cu128, rocm6.4 ...; empty: by the accelerator axis, else the site's; "
        "off: whichever the indexes have",
    )


class BuildBlock(BuildSpec):
    """Settings of the build."""

    tools: tuple[Tool, ...] = Field((), description="Required host programs; `nvcc >=11.0` is a short form")


class CheckBlock(Check):
    """One of a stack's own checks; exactly one of `run`, `python` and `script` is given."""

    name: str = Field("", description="Shown in reports; empty: the command or the script")
    run: CommandLine = Field((), description="The command, in one line or as a list of its words")
    script: str = Field("", description="A script next to the stack.yaml, run by the interpreter in its first line")
    python: str = Field("", description="Python source, run by the stack's interpreter")

    def checked(self) -> None:
        """Check that it has one of the three, and that expected texts are valid patterns."""
        keys = [name for name in ("run", "python", "script") if getattr(self, name)]
        if len(keys) != 1:
            present = "none" if not keys else " and ".join(keys)
            raise ValueError(f"a check must have exactly one of run, python and script; found {present}")
        try:
            re.compile(self.expect)
        except re.error as error:
            raise ValueError(f"expect: {quoted(self.expect)} is not a regular expression: {error}") from error


def named_check(block: CheckBlock) -> Check:
    """The check, with its name in reports."""
    values = {key: getattr(block, key) for key in Check.model_fields}
    named = block.name or " ".join(block.run) or Path(block.script).name or "python"
    return Check(**{**values, "name": named})


CheckItem = Annotated[CheckBlock, ShortForm(_check, str | CheckBlock)]
ImportItem = Annotated[Import, ShortForm(keyed("file"), str | Import)]
LicenceItem = Annotated[Licence, ShortForm(keyed("name"), str | Licence)]
InterpreterBlock = Annotated[
    Interpreter,
    ShortForm(keyed("source"), Literal["auto", "conda", "uv", "host"] | Interpreter),
]


def _bind(value: Any) -> Any:
    """``/data:/mnt/data:ro`` as source, target and write permission."""
    if not isinstance(value, str):
        return value
    source, *rest = value.split(":")
    if len(rest) > 2 or (rest[1:] and rest[1] not in ("ro", "rw")):
        raise ValueError(f"{quoted(value)} is not SOURCE[:TARGET[:ro]]")
    return {"source": source, "target": rest[0] if rest else source, "read_only": rest[1:] == ["ro"]}


BindItem = Annotated[Bind, ShortForm(_bind, str | Bind)]


class WrapBlock(Wrap):
    """Commands of a third-party image; the stack then has no packages."""

    commands: StringList
    bind: tuple[BindItem, ...] = ()


class StackFile(LateModel):
    """A stack.yaml: a named software collection, its versions, and the matrix of its variants."""

    name: str = Field("", description="The module's name; empty: the name of the directory")
    summary: Text = Field("", description="One line, shown by `module whatis` and in the catalogue")
    version: str = Field("", description="The version, if there is only one; {version} in strings")
    versions: StringList = Field((), description="The versions, oldest first")
    matrix: Annotated[dict[str, Any], ShownAs(_MATRIX_SCHEMA)] = Field({})
    variant: str = Field(
        "", description="How variants are named, e.g. {python}-{mpi}; empty: all axes in order; none: no name"
    )
    default: str = Field("", description="The default variant; empty: the site's rule")
    environment: Annotated[Any, ShownAs(_ENVIRONMENT_SCHEMA)] = None
    imports: tuple[ImportItem, ...] = Field((), description="Other stack.yaml files whose parts are joined to this one")
    pip: PipBlock = PipBlock()
    base: str = Field(
        "",
        description="A published revision that this one is a layer on, e.g. pytorch/2.13-py311: it has what the base"
        " has and installs only what is new; without `version` it has that of its base",
    )
    python: str = Field("", description="The version of Python, if it is not an axis of the matrix")
    interpreter: InterpreterBlock = Interpreter()
    variables: LoadedVariables = Field({}, description="The same as run: variables:")
    run: RunBlock = RunBlock()
    build: BuildBlock = BuildBlock()
    image: Packing = Field("prefix", description="squashfs: all files in one image, mounted when it is used")
    wrap: WrapBlock | None = Field(None, description="Commands of a third-party image, in place of packages")
    on_host: CommandNames = Field(
        (), description="Commands that run on the host, as found on PATH behind the stack: ssh, mpicc, sbatch ..."
    )
    collisions: dict[CollisionPath, CollisionWinner] = Field(
        {},
        description="path: package, whose file is taken where several packages install one; relative to the prefix or"
        " to site-packages, * stands for any text",
    )
    post: str = Field("", description="A script run in the activated prefix at the end of the build")
    checks: tuple[CheckItem, ...] = Field((), description="The stack's own checks, run before publication")
    exceptions: CheckExceptions = CheckExceptions()
    licences: tuple[LicenceItem, ...] = Field((), description="Licences that the builder must accept")
    max_nodes: MaxNodes | None = Field(
        None, description="The nodes that a job may have, e.g. by a licence; not set: any"
    )
    modules: ModuleSettings = ModuleSettings()
    platforms: tuple[BuiltFor, ...] = Field((), description="Platforms that the stack can be built for; empty: all")

    def checked(self) -> None:
        """Check that its version is given only once."""
        if self.version and self.versions:
            raise ValueError("`version` and `versions` are mutually exclusive: keep one of them")
