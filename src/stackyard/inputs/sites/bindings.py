"""bindings.yaml: the host's files that an image gets at run time, each path with its reason.

`stackyard bindings detect` writes it, you review it, and `launch.container.bindings` of site.yaml names it.

    format: 1
    name: openmpi-4.1.4
    mpi: {family: openmpi, version: 4.1.4, library: /usr/lib64/libmpi.so.40, pmi: [pmix]}
    libraries:
      - {path: /usr/lib64/libmpi.so.40, why: the MPI}
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from stackyard.inputs.reading.base import Model
from stackyard.inputs.reading.versioned import load_versioned
from stackyard.inputs.reading.words import Text, VariableName, VariableValue
from stackyard.inputs.sites.jobmodels import ContainerPolicy
from stackyard.inputs.sites.library_directories import APPTAINER, Place

FORMAT = 1

Family = Literal["openmpi", "mpich", "cray-mpich", "intel-mpi", "mvapich", "spectrum-mpi", "none"]


def _bindable(text: str) -> str:
    """A path that is valid in ``--bind``, in a comma-separated list, and in a shell's glob."""
    if not text.startswith("/") or "**" in text or any(c in text for c in ":,\n\0 '\"\\$`"):
        raise ValueError(f"{text!r} is not an absolute path without blanks, colons, commas, quotes, $ and **")
    return text


BindPath = Annotated[str, AfterValidator(_bindable)]
OptionalBindPath = Annotated[str, AfterValidator(lambda text: text and _bindable(text))]


class BoundPath(Model):
    """One file or directory of the host. In `libraries`, ``*`` stands for any name and is expanded on the node."""

    path: BindPath
    why: Text = Field("", description="Why the image needs it")


class Bind(BoundPath):
    """One file or directory, and its path in the image."""

    to: OptionalBindPath = Field("", description="Empty: the same path")


class BoundVariable(Model):
    """One variable in the image."""

    name: VariableName
    value: VariableValue
    why: Text = ""


class BoundOption(Model):
    """One additional option of the runtime's exec command."""

    option: Text
    why: Text = ""


class HostMpi(Model):
    """The MPI for the image's programs."""

    family: Family = "none"
    version: str = ""
    library: str = Field("", description="Its library: the one that every rank must have loaded")
    pmi: tuple[str, ...] = Field((), description="Kinds of PMI that it can use, as srun --mpi names them")


class LastTest(Model):
    """Host and date at which the paths were last seen to exist."""

    host: str = ""
    time: str = ""
    glibc: str = ""


class HostBindings(Model):
    """The host's files and settings that an image gets at run time."""

    name: str = Field("", description="A word for it, e.g. openmpi-4.1.4")
    summary: Text = ""
    mpi: HostMpi = HostMpi()
    libraries: tuple[BoundPath, ...] = Field((), description="Files added to the library path, by their own names")
    binds: tuple[Bind, ...] = Field((), description="Files and directories, at their own path or another one")
    preload: tuple[BoundPath, ...] = Field((), description="Libraries for LD_PRELOAD: below a bind, else of the host")
    library_path: tuple[BoundPath, ...] = Field(
        (), description="Directories in the image, searched for libraries first"
    )
    variables: tuple[BoundVariable, ...] = ()
    options: tuple[BoundOption, ...] = ()
    sources: tuple[str, ...] = Field((), description="Where this is documented")
    tested: LastTest = LastTest()

    @property
    def needed(self) -> tuple[str, ...]:
        """The paths that must exist: a runtime refuses to bind missing ones."""
        every = (*self.binds, *self.libraries, *(bound for bound in self.preload if not self._is_bound(bound.path)))
        return tuple(dict.fromkeys(bound.path for bound in every if "*" not in bound.path))

    def applied(self, policy: ContainerPolicy, place: Place = APPTAINER) -> ContainerPolicy:
        """The site's container policy with these bindings added to its own binds, variables and options."""
        extra = [entry.path for entry in self.preload if not self._is_bound(entry.path)]
        preload = [
            f"{place.libraries}/{Path(p).name}" if p in extra else p for p in (entry.path for entry in self.preload)
        ]
        libraries = (*(library.path for library in self.libraries), *extra)
        variables = {variable.name: variable.value for variable in self.variables}
        path = [entry.path for entry in self.library_path] + ([place.libraries] if libraries else [])
        if path:
            variables["LD_LIBRARY_PATH"] = ":".join(path) + place.rest
        if preload:
            variables["LD_PRELOAD"] = ":".join(preload)
        binds = tuple(f"{bind.path}:{bind.to}" if bind.to else bind.path for bind in self.binds)
        return policy.model_copy(
            update={
                "binds": tuple(dict.fromkeys((*policy.binds, *binds))),
                "libraries": tuple(dict.fromkeys((*policy.libraries, *libraries))),
                "variables": {**variables, **policy.variables},
                "options": (*policy.options, *(option.option for option in self.options)),
                "bindings": "",
            }
        )

    def _is_bound(self, path: str) -> bool:
        return any(Path(path).is_relative_to(bind.to or bind.path) for bind in self.binds)


def load_bindings(file: Path) -> HostBindings:
    """Read a bindings.yaml.

    Raises:
        InputError: it cannot be read, or has unknown keys or wrong values: all problems at once, each with its place.
    """
    hint = "write one with `stackyard bindings detect`"
    return load_versioned(file, HostBindings, FORMAT, "a file of bindings", hint)
