"""What a stack does to a user's environment: the part common to all stacks, and all of one revision.

Pure functions of a record and a site. The result is frozen in the revision's directory when it is first published
(`stackyard.expose.published`), so a later change of the site never changes a loaded module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from stackyard.change import (
    Default,
    EnvironmentChange,
    Flags,
    Notice,
    Operation,
    Prepend,
    SaveValue,
    Set,
    SetRestorable,
    UserPath,
)
from stackyard.expose.conda import conda_operations
from stackyard.host.names import brings_conda
from stackyard.yard.layout import RevisionPaths
from stackyard.yard.record import BuildRecord

if TYPE_CHECKING:
    from stackyard.spec.models import Site


def holds_conda(record: BuildRecord) -> bool:
    """Whether the stack brings conda or mamba itself, so that users activate environments on top of it."""
    return brings_conda(record.settings.get("conda_base"), (p.name for p in record.packages if p.kind == "conda"))


def base_change(record: BuildRecord, site: Site) -> EnvironmentChange:
    """The part common to all stacks: programs, man pages, an isolated Python, and the user's directories.

    A stack that brings conda sets neither CONDA_PREFIX nor CONDA_SHLVL: unloading would remove them from an environment
    that the user activated on top. LD_LIBRARY_PATH is never changed.
    """
    prefix, payload = record.prefix, record.payload
    operations: list[Operation] = [
        *(Prepend("PATH", str(folder)) for folder in reversed(payload.program_folders)),
        Prepend("MANPATH", str(payload.manuals), keep_system=True),
        SetRestorable("PYTHONNOUSERSITE", "1"),
        SetRestorable("PYTHONHOME", None),
        SetRestorable("PYTHONPATH", None),
    ]
    if holds_conda(record):
        operations += conda_operations(record)
    else:
        operations += [SetRestorable("CONDA_PREFIX", prefix), SetRestorable("CONDA_DEFAULT_ENV", prefix)]
    operations += _user_paths(record, site)
    operations.append(Default("CONDARC", str(RevisionPaths.of(record.path).condarc)))
    return EnvironmentChange(tuple(operations))


def full_change(record: BuildRecord, site: Site) -> EnvironmentChange:
    """Everything that loading a revision does: `base_change`, its captured activation, its variables, its notice."""
    return merged(base_change(record, site) + record.activation.change + _variables(record) + _notice(record))


def merged(change: EnvironmentChange) -> EnvironmentChange:
    """The same change with one operation per variable: the last value wins, flags are joined.

    A module that set a variable twice would restore its own first value instead of the user's.
    """
    found: dict[tuple[str, str], Operation] = {}
    for number, operation in enumerate(change):
        if isinstance(operation, Set | SetRestorable | Default | UserPath | Flags | SaveValue):
            key = ("variable", operation.variable)
            found[key] = _joined(found.get(key), operation)
        else:
            found[(operation.op, f"{number:06d}")] = operation
    return EnvironmentChange(tuple(found.values()))


def _joined(old: Operation | None, new: Operation) -> Operation:
    if not isinstance(new, Flags) or old is None:
        return new
    if isinstance(old, Flags):
        return Flags(new.variable, f"{old.text} {new.text}")
    value = getattr(old, "value", None)
    return SetRestorable(new.variable, f"{value} {new.text}" if value else new.text)


def _user_paths(record: BuildRecord, site: Site) -> list[Operation]:
    paths = site.user_paths
    shared = holds_conda(record)

    def place(variable: str, inner: str, home: str, tail: str = "", separator: str = ":") -> UserPath:
        rest = (f"{record.prefix}/{tail}",) if shared and tail else ()
        return UserPath(variable, tuple(paths.bases), f"{paths.suffix}/{inner}", home, rest, separator)

    return [
        place("CONDA_ENVS_PATH", paths.envs, f"{paths.fallback}/{paths.envs}", "envs"),
        place("CONDA_PKGS_DIRS", paths.pkgs, f"{paths.fallback}/{paths.pkgs}", "pkgs", ","),
        place("PIP_CACHE_DIR", "cache/pip", ".cache/pip"),
        place("UV_CACHE_DIR", "cache/uv", ".cache/uv"),
    ]


def _variables(record: BuildRecord) -> EnvironmentChange:
    """The module's own variables, and those of accepted licences. The run-time variables of the site and of the stack
    are in the captured activation already."""
    values: Mapping[str, str] = record.settings.get("variables") or {}
    own = [SetRestorable(name, str(text).replace("{prefix}", record.prefix)) for name, text in values.items()]
    accepted = [SetRestorable(str(entry["variable"]), "yes") for entry in record.licences if entry.get("variable")]
    return EnvironmentChange((*own, *accepted))


def _notice(record: BuildRecord) -> EnvironmentChange:
    text = str(record.settings.get("notice") or "").strip()
    return EnvironmentChange((Notice(text),) if text else ())
