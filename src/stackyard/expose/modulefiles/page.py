"""The content of a modulefile without a format: `Page`. Lua and Tcl are renderings of it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

from stackyard.core.change import EnvironmentChange
from stackyard.core.late import dataclass
from stackyard.core.names import canonical
from stackyard.expose.base import holds_conda, licence_lines
from stackyard.expose.published import change_of
from stackyard.yard.revision.manifest import Entry
from stackyard.yard.revision.record import BuildRecord, PackageRecord

if TYPE_CHECKING:
    from stackyard.inputs.models import Site

_LISTED = 40
_CONSTANT = "This revision never changes."


@dataclass(frozen=True)
class Page:
    """One modulefile's content.

    Attributes:
        module: the full name that users load.
        stack: the name without its version; loading this module replaces a loaded one of that name.
        family: at most one module of a family is loaded; empty: none.
        extensions: ``name/version`` of every package, for ``module spider``.
        deprecated: a date and a message, shown on load; empty: none.
        notice: another message shown on load; empty: none.
        removed: why it can no longer be loaded; empty: it can. Unloading still works.
        needs: a directory that must exist on load: the yard or the adopted prefix may have been moved. Empty: none.
        retired: the day (20270301) from which the retirement message is shown on load; empty: never.
    """

    module: str
    stack: str
    help: str
    whatis: tuple[tuple[str, str], ...]
    family: str
    conflict: tuple[str, ...]
    depends_on: tuple[str, ...]
    extensions: tuple[str, ...]
    deprecated: str
    notice: str
    change: EnvironmentChange
    removed: str = ""
    needs: str = ""
    retired: tuple[str, str] = ("", "")


def page(
    record: BuildRecord, site: Site, *, entry: Entry | None = None, change: EnvironmentChange | None = None
) -> Page:
    """The page of one revision. `entry` has the state and labels, which can differ between generations.

    Without `change` the frozen operations of the revision are read, or computed if there are none yet.
    """
    settings = record.settings
    family = settings.get("family", site.modules.family)
    change = change_of(record, site) if change is None else change
    top = roots(record.packages)
    text = _help(record, top, entry.state if entry else "published", entry.help if entry else "")
    deprecated = entry.deprecated if entry else str(settings.get("deprecated") or "")
    return Page(
        module=record.module,
        stack=record.stack,
        help="\n\n".join([text, *licence_lines(record, change)]),
        whatis=_whatis(record, top, entry),
        family=str(family or ""),
        conflict=tuple(settings.get("conflict") or ()),
        depends_on=tuple(settings.get("depends_on") or ()),
        extensions=tuple(sorted({f"{p.name}/{p.version}" for p in record.packages}, key=str.lower)),
        deprecated=deprecated.strip(),
        notice=entry.notice.strip() if entry else "",
        change=change,
        removed=_removed(entry) if entry and entry.state == "removed" else "",
        needs=record.origin.needs,
        retired=_retired(entry) if entry and entry.retired else ("", ""),
    )


def _removed(entry: Entry) -> str:
    """The message on loading a removed revision."""
    use = entry.successor or entry.stack
    undo = f"stackyard remove {entry.module} --undo"
    return f"{entry.module} was removed: use {use}; its staff can bring it back for some days: {undo}"


def _retired(entry: Entry) -> tuple[str, str]:
    """The first day and the message of a retirement."""
    use = f": use {entry.successor}" if entry.successor else ""
    return entry.retired.replace("-", ""), f"{entry.module} is retired since {entry.retired}{use}; it will be removed"


def roots(packages: tuple[PackageRecord, ...]) -> list[PackageRecord]:
    """The packages that no other package requires: the probable purpose of the stack."""
    needed = set(map(_requirement_name, chain.from_iterable(p.requires for p in packages)))
    return sorted((p for p in packages if canonical(p.name) not in needed), key=lambda p: p.name.lower())


def _help(record: BuildRecord, shown: Sequence[PackageRecord], state: str, more: str) -> str:
    """The text of ``module help``: the contents, how to list them, how to create an environment on top.

    Args:
        shown: its `roots`.
        more: the addition from the stack's file.
    """
    names = ", ".join(f"{p.name} {p.version}" for p in shown[:_LISTED])
    rest = f", and {len(shown) - _LISTED} more" if len(shown) > _LISTED else ""
    parts = [record.summary.strip() or f"The software stack {record.stack}, version {record.version}."]
    if shown:
        parts.append(f"Contains {len(record.packages)} packages; top-level packages: {names}{rest}.")
    parts = [textwrap.fill(part, 96) for part in parts]
    parts.append(_commands(record))
    own = (more or str(record.settings.get("help") or "")).strip()
    if own:
        parts.append(own)
    if state == "unverified":
        parts.append(
            "Some checks of this revision could not be run; run them with `stackyard verify " + record.module + "`."
        )
    if state == "withdrawn":
        parts.append("This revision is withdrawn: load the stack's name without a version to get the current one.")
    return "\n\n".join(parts)


def _commands(record: BuildRecord) -> str:
    meaning = "list every package with its build and origin" if record.packages else "how it was made"
    lines = {f"stackyard show {record.module}": meaning}
    if holds_conda(record):
        lines["conda create -n mine python"] = "create an environment of your own in $CONDA_ENVS_PATH"
        lines["conda activate mine"] = "activate it; unloading this module deactivates it"
    elif record.base:
        lines["pip install NAME"] = "add packages to it; `stackyard status` lists them, `stackyard update` records them"
        lines[f"stackyard show {record.base.id}"] = "the base that it is a layer on"
    elif _has_python(record) and record.packages and not _is_python_2(record):
        if record.interpreter:
            lines["stackyard extend --name mine --pip NAME"] = "add packages in a layer of your own, a module"
        first, *others, last = record.payload.on_top(record.interpreter)
        lines[first] = "create an environment of your own on top, then"
        lines |= dict.fromkeys(others, "let it see this stack's packages, then")
        lines[f"{last} && pip install NAME"] = "add packages to it (pip install --user is disabled)"
    lines[f"module unload {record.stack}"] = "unload it, whichever of its names was loaded"
    width = max(len(line) for line in lines)
    constant = _CONSTANT if record.origin.owns_files else "Others may change its files: `stackyard verify` finds that."
    return f"{constant} Useful commands:\n\n" + "\n".join(
        f"    {command:<{width}}   {meaning}" for command, meaning in lines.items()
    )


def _has_python(record: BuildRecord) -> bool:
    return bool(record.interpreter) or any(p.kind == "pip" or p.name == "python" for p in record.packages)


def _is_python_2(record: BuildRecord) -> bool:
    """Whether its Python has no venv, and cannot be extended."""
    return str(record.interpreter.get("version", "")).startswith("2.")


def _whatis(record: BuildRecord, shown: Sequence[PackageRecord], entry: Entry | None) -> tuple[tuple[str, str], ...]:
    top = " ".join(p.name for p in shown[:_LISTED])
    fields: Mapping[str, str] = {
        "Name": record.stack,
        "Version": record.module.partition("/")[2] or record.version,
        "Category": entry.category if entry else "",
        "Description": " ".join(record.summary.split()),
        "Keywords": top,
        "Platform": record.platform,
        "URL": entry.url if entry else "",
    }
    return tuple((key, value) for key, value in fields.items() if value)


@lru_cache(maxsize=4096)  # packages of one yard name the same few hundred, in each of its revisions
def _requirement_name(text: str) -> str:
    """The canonical package name in a MatchSpec or a pip requirement."""
    head = text.rpartition("::")[2].strip()
    end = next((i for i, c in enumerate(head) if not (c.isalnum() or c in "._-")), len(head))
    return canonical(head[:end])
