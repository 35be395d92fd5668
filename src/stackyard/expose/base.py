"""The environment change of a stack: the part common to all stacks, and the complete one of a revision.

Pure functions of a record and a site. The result is frozen in the revision's directory when it is first published
(`stackyard.expose.published`), so a later change of the site never changes a loaded module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stackyard.core import change as ops
from stackyard.core.names import brings_conda
from stackyard.expose.asking import asked_of_users, asking_change
from stackyard.expose.commands import commands_change, completion_change, runs_beside
from stackyard.expose.conda import conda_operations
from stackyard.yard.kinds.extension import Layer
from stackyard.yard.kinds.payload import IMAGES
from stackyard.yard.layout import Yard
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord

if TYPE_CHECKING:
    from stackyard.inputs.models import Site


_OF_A_VARIABLE = (ops.Set, ops.SetRestorable, ops.Default, ops.UserPath, ops.Flags, ops.Join, ops.SaveValue)


def holds_conda(record: BuildRecord) -> bool:
    """Whether the stack has its own conda or mamba, so that users activate environments on top of it."""
    return brings_conda(record.settings.get("conda_base"), (p.name for p in record.packages if p.kind == "conda"))


def base_change(record: BuildRecord, site: Site) -> ops.EnvironmentChange:
    """The part common to all stacks: programs, man pages, an isolated Python, and the user's directories.

    A stack that brings conda sets neither CONDA_PREFIX nor CONDA_SHLVL: unloading would remove them from an environment
    that the user activated on top. LD_LIBRARY_PATH is never changed.
    """
    prefix, payload = record.prefix, record.payload
    if payload.is_system:  # the rest of its environment is set in the container
        return ops.EnvironmentChange(
            tuple(ops.Prepend("PATH", str(directory)) for directory in payload.program_directories)
        )
    operations: list[ops.Operation] = [
        *(ops.Prepend("PATH", str(directory)) for directory in reversed(payload.program_directories)),
        *(ops.Prepend(IMAGES, str(revision)) for revision in payload.listed),
        ops.Prepend("MANPATH", str(payload.manuals), keep_system=True),
        ops.SetRestorable("PYTHONNOUSERSITE", "1"),
        ops.SetRestorable("PYTHONHOME", None),
        ops.SetRestorable("PYTHONPATH", None),
    ]
    if holds_conda(record):
        operations += conda_operations(record)
    else:
        operations += [ops.SetRestorable("CONDA_PREFIX", prefix), ops.SetRestorable("CONDA_DEFAULT_ENV", prefix)]
    operations += _user_paths(record, site)
    operations.append(ops.Default("CONDARC", str(RevisionPaths.of(record.path).condarc)))
    return ops.EnvironmentChange(tuple(operations))


def layer_change(record: BuildRecord, of_base: ops.EnvironmentChange) -> ops.EnvironmentChange:
    """The change of an extension: that of its base, then its own programs and its activation.

    One module contains both, so that loading it requires no other module.

    Args:
        of_base: the environment change of the base.
    """
    payload = record.payload
    assert isinstance(payload, Layer)
    own = (
        *(
            ops.Prepend("PATH", str(directory))
            for directory in (*reversed(payload.program_directories), payload.drift.bin)
        ),
        ops.Prepend("MANPATH", str(payload.manuals), keep_system=True),
    )
    return merged(of_base + ops.EnvironmentChange(own) + record.activation.change)


def full_change(record: BuildRecord, site: Site, of_base: ops.EnvironmentChange | None = None) -> ops.EnvironmentChange:
    """The complete change of a revision: `stack_change`, or only its commands; its variables, its notice.

    Args:
        of_base: for an extension, the change of its base.
    """
    if of_base is not None:
        offered = layer_change(record, of_base)
    else:
        offered = commands_change(record) if runs_beside(record) else stack_change(record, site)
    change = offered + _variables(record, site) + asking_change(record, site)
    change += completion_change(record) + _prompt(record)
    return merged(change + _notice(record, change))


def stack_change(record: BuildRecord, site: Site) -> ops.EnvironmentChange:
    """The change for the whole stack: `base_change` and its captured activation."""
    return merged(base_change(record, site) + record.activation.change)


def merged(change: ops.EnvironmentChange) -> ops.EnvironmentChange:
    """The change with one operation per variable, or per directory of a list: the last wins, flags are combined.

    A module that set a variable twice would restore its own first value instead of the user's.
    """
    by_name: dict[tuple[str, str], ops.Operation] = {}
    for number, operation in enumerate(change):
        if isinstance(operation, ops.Prepend | ops.Append):
            key = (operation.op, f"{operation.variable}={operation.directory}")
            by_name.pop(key, None)  # the later one decides the place in the list
            by_name[key] = operation
        elif isinstance(operation, _OF_A_VARIABLE):
            key = ("variable", operation.variable)
            by_name[key] = _joined(by_name.get(key), operation)
        elif isinstance(operation, ops.Prompt):  # an extension's replaces that of its base
            by_name[(operation.op, "")] = operation
        else:
            by_name[(operation.op, f"{number:06d}")] = operation
    return ops.EnvironmentChange(tuple(by_name.values()))


def _joined(old: ops.Operation | None, new: ops.Operation) -> ops.Operation:
    if not isinstance(new, ops.Flags | ops.Join) or old is None:
        return new
    if isinstance(old, ops.Flags) and isinstance(new, ops.Flags):
        return ops.Flags(new.variable, f"{old.text} {new.text}")
    after = ops.Join(new.variable, "", new.text, " ") if isinstance(new, ops.Flags) else new
    if isinstance(old, ops.Flags | ops.Join):
        before = ops.Join(old.variable, "", old.text, " ") if isinstance(old, ops.Flags) else old
        bare = replace(after, otherwise="")  # the first one gives it a text
        front, back = replace(bare, back="").joined(before.front), replace(bare, front="").joined(before.back)
        return replace(before, front=front, back=back)
    return ops.SetRestorable(new.variable, after.joined(getattr(old, "value", None) or ""))


def _user_paths(record: BuildRecord, site: Site) -> list[ops.Operation]:
    """The user's own directories; with conda, then those of the yard, in which conda finds what the site has."""
    paths, yard = site.user_paths, Yard(RevisionPaths.of(record.path).yard)
    shared = holds_conda(record)

    def place(variable: str, inner: str, home: str, ours: Path | None = None, separator: str = ":") -> ops.UserPath:
        rest = (str(ours),) if shared and ours else ()
        return ops.UserPath(variable, tuple(paths.bases), f"{paths.suffix}/{inner}", home, rest, separator)

    return [
        place("CONDA_ENVS_PATH", paths.envs, f"{paths.fallback}/{paths.envs}", yard.envs),
        place("CONDA_PKGS_DIRS", paths.pkgs, f"{paths.fallback}/{paths.pkgs}", yard.conda, ","),
        place("PIP_CACHE_DIR", "cache/pip", ".cache/pip"),
        place("UV_CACHE_DIR", "cache/uv", ".cache/uv"),
    ]


def _variables(record: BuildRecord, site: Site) -> ops.EnvironmentChange:
    """The module's own variables, and those that accept licences on load.

    The run-time variables of the site and of the stack are in the captured activation already.

    A modulefile runs no program, so it cannot look up acceptances. In a user's own yard, the builder has accepted. For
    users of the site's yard, either the site's file accepts, or each user does.
    """
    values: Mapping[str, str] = record.settings.get("variables") or {}
    own = [ops.SetRestorable(name, str(text).replace("{prefix}", record.prefix)) for name, text in values.items()]
    names = {entry["name"] for entry in asked_of_users(record, site)}
    accepted = [ops.SetRestorable(variable, "yes") for name, variable in _licences(record) if name not in names]
    return ops.EnvironmentChange((*own, *accepted))


def _prompt(record: BuildRecord) -> ops.EnvironmentChange:
    """The stack's name in the prompt, and in the variable in which conda keeps what it shows there."""
    if not record.settings.get("prompt"):
        return ops.EnvironmentChange()
    prompt = ops.Prompt(record.stack)
    return ops.EnvironmentChange((ops.SetRestorable("CONDA_PROMPT_MODIFIER", prompt.text), prompt))


def _licences(record: BuildRecord) -> list[tuple[str, str]]:
    """The licences with an acceptance variable: name and variable."""
    return [(entry["name"], str(entry["variable"])) for entry in record.licences if entry.get("variable")]


def _notice(record: BuildRecord, change: ops.EnvironmentChange) -> ops.EnvironmentChange:
    lines = [str(record.settings.get("notice") or "").strip(), *licence_lines(record, change)]
    text = "\n".join(line for line in lines if line)
    return ops.EnvironmentChange((ops.Notice(text),) if text else ())


def licence_lines(record: BuildRecord, change: ops.EnvironmentChange) -> list[str]:
    """Instructions for each licence that loading the module (`change`) does not accept."""
    texts = RevisionPaths.of(record.path).recipe
    accepted = {operation.variable for operation in change if isinstance(operation, ops.SetRestorable)}
    return [
        f"{name}: read its licence in {texts}; its first command asks for it, or set {variable}=yes"
        for name, variable in _licences(record)
        if variable not in accepted
    ]
