"""Profiles: the bindings that sites document for their machines, as bindings.yaml files with module variables in paths.

Some are part of this program; a site adds its own through `profiles` in site.yaml.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from stackyard.core.errors import InputError, MissingError
from stackyard.host.machine.probe import glibc
from stackyard.inputs.reading.versioned import load_versioned
from stackyard.inputs.sites.bindings import FORMAT, BoundPath, HostBindings, LastTest

_VARIABLE = re.compile(r"\$\{(\w+)\}")
B = TypeVar("B", bound=BoundPath)


def profile_names(files: Iterable[str] = ()) -> list[str]:
    """The machines with a profile. Arguments and errors as for `read_profile`."""
    return sorted(_profiles(files))


def read_profile(name: str, environ: Mapping[str, str], files: Iterable[str] = ()) -> HostBindings:
    """The bindings of a machine, with the paths of the loaded modules.

    Args:
        files: the site's own profiles; a file's name without suffix is the profile's.

    Raises:
        InputError: no such profile; it is invalid, with the place of each problem; a variable of its modules is not
            set; or two profiles have one name.
    """
    known = _profiles(files)
    if name not in known:
        raise InputError(f"no such profile: {name}", hint=f"profiles: {', '.join(sorted(known))}")
    hint = "write it as `stackyard bindings detect` writes a bindings.yaml"
    return load_versioned(
        known[name], HostBindings, FORMAT, "a profile", hint, lambda data: _filled(data, environ, name)
    )


def _profiles(files: Iterable[str]) -> dict[str, Path]:
    """The files of all profiles by name."""
    directory = Path(str(resources.files("stackyard.images.bindings").joinpath("profiles")))
    known = {path.stem: path for path in directory.glob("*.yaml")}
    for path in map(Path, files):
        other = known.setdefault(path.stem, path)
        if other is not path:
            message = f"cannot use the profile {path}: another profile has its name, {other}"
            raise InputError(message, hint="rename the file, and correct `profiles:` of site.yaml")
    return known


def of_this_machine(bindings: HostBindings) -> tuple[HostBindings, tuple[str, ...]]:
    """The bindings that exist on this machine, and the paths that were left out.

    Raises:
        MissingError: this machine lacks the MPI itself.
    """
    library = bindings.mpi.library
    if library and not Path(library).exists():
        raise MissingError(
            f"cannot use {bindings.name} here: {library} does not exist on this machine",
            hint="run this on a node of the machine, with its modules loaded",
        )
    left: list[str] = []
    lists = {
        "libraries": _existing(bindings.libraries, left),
        "binds": _existing(bindings.binds, left),
        "preload": tuple(bound for bound in bindings.preload if _outside(bindings, bound.path, left)),
    }
    return tested(bindings.model_copy(update=lists)), tuple(left)


def tested(bindings: HostBindings) -> HostBindings:
    """The bindings, marked with host and date on which their paths existed."""
    time = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%MZ")
    return bindings.model_copy(update={"tested": LastTest(host=socket.gethostname(), time=time, glibc=glibc())})


def missing_here(bindings: HostBindings) -> list[str]:
    """The bound paths that do not exist on this machine, which a runtime would refuse."""
    return [path for path in bindings.needed if not Path(path).exists()]


def expanded(bindings: HostBindings) -> HostBindings:
    """The bindings with every ``*`` replaced by the files of this machine."""
    rows = tuple(BoundPath(path=path, why=bound.why) for bound in bindings.libraries for path in files_of(bound.path))
    return bindings.model_copy(update={"libraries": rows})


def files_of(path: str) -> list[str]:
    """The files that match a path with ``*`` on this machine; other paths are returned as they are."""
    if "*" not in path:
        return [path]
    fixed = path[: path.index("*")].rpartition("/")[0] or "/"
    return sorted(str(file) for file in Path(fixed).glob(path[len(fixed) :].lstrip("/")))


def _existing(rows: Iterable[B], left: list[str]) -> tuple[B, ...]:
    result = []
    for row in rows:
        if any(Path(path).exists() for path in files_of(row.path)):
            result.append(row)
        else:
            left.append(row.path)
    return tuple(result)


def _outside(bindings: HostBindings, path: str, left: list[str]) -> bool:
    """Whether a library to preload exists on this machine, taking the binds into account."""
    for bind in bindings.binds:
        if bind.to and Path(path).is_relative_to(bind.to):
            path = f"{bind.path}/{Path(path).relative_to(bind.to)}"
    if not Path(path).exists():
        left.append(path)
        return False
    return True


def _filled(value: Any, environ: Mapping[str, str], name: str) -> Any:
    """The profile's content with its variables replaced."""
    if isinstance(value, dict):
        return {key: _filled(inner, environ, name) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, environ, name) for inner in value]
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _variable(match.group(1), environ, name), value)
    return value


def _variable(variable: str, environ: Mapping[str, str], name: str) -> str:
    if not environ.get(variable):
        raise InputError(f"profile {name}: {variable} is not set", hint="load the MPI module that sets it, then detect")
    return environ[variable]
