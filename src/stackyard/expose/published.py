"""The operations of a revision, frozen when its modulefile is first written.

A site may change its paths or variables at any time. A shell that loaded a module before such a change must still
unload it cleanly, so ``module.json`` in the revision's directory is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from stackyard.core.change import EnvironmentChange
from stackyard.core.errors import StackyardError
from stackyard.core.late import dataclass
from stackyard.expose.asking import write_asking
from stackyard.expose.base import full_change, stack_change
from stackyard.expose.commands import runs_beside, write_commands
from stackyard.yard import checksum, disk, formats, members
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.record import BuildRecord, read_record
from stackyard.yard.write import atomic

if TYPE_CHECKING:
    from stackyard.inputs.models import Site


@dataclass(frozen=True)
class _FrozenChange:
    change: tuple[dict[str, Any], ...]


MODULE = formats.Kind(
    6,
    lambda value: EnvironmentChange.from_json(members.make(_FrozenChange, value).change),
    hint=lambda _path: (
        "restore it: `stackyard verify --repair`; or remove it: a deploy writes it from the record and the present site"
    ),
    checked_since=3,
)
"""``module.json``: the operations of a revision."""


def change_of(
    record: BuildRecord, site: Site | Callable[[], Site], paths: RevisionPaths | None = None
) -> EnvironmentChange:
    """The change of a revision: its frozen operations, or those that would be frozen now. Writes nothing.

    Args:
        site: the site, or a function that reads it, which is called only if the operations are not frozen yet.
        paths: the present paths of the revision's files, if they are not at their recorded place.

    Raises:
        StackyardError: ``module.json`` is damaged or of a newer format.
    """
    place = paths or RevisionPaths.of(record.path)
    if not disk.is_there(place.module):
        return present_change(record, site() if callable(site) else site)
    return formats.load(place.module, MODULE, place.top())


def present_change(record: BuildRecord, site: Site) -> EnvironmentChange:
    """The operations that would be frozen now; for an extension, on top of its base's frozen ones.

    Raises:
        StackyardError: its base was removed, or cannot be read.
    """
    if record.base is None:
        return full_change(record, site)
    base = read_record(record.base.paths.record)
    return full_change(record, site, stack_change(base, site) if runs_beside(base) else change_of(base, site))


def is_frozen(record: BuildRecord) -> bool:
    """Whether the operations of this revision are frozen, and can be read."""
    try:
        formats.load(RevisionPaths.of(record.path).module, MODULE)
    except StackyardError:
        return False
    return True


def freeze(record: BuildRecord, site: Site) -> None:
    """Freeze the operations from `change_of`, once; the revision's condarc and commands are written before."""
    if not disk.is_there(RevisionPaths.of(record.path).module):
        write_beside(record, site)
        write_change(record, present_change(record, site))


def write_change(record: BuildRecord, change: EnvironmentChange) -> None:
    """Freeze these operations."""
    value = {"format": MODULE.version, "change": change.to_json()}
    atomic.write_json(RevisionPaths.of(record.path).module, value, checked=True, top=RevisionPaths.of(record.path).yard)


def write_beside(record: BuildRecord, site: Site) -> None:
    """Write the files beside the prefix that the operations use: condarc, commands, licence wrappers."""
    atomic.write_text(RevisionPaths.of(record.path).condarc, users_policy(site), top=RevisionPaths.of(record.path).yard)
    write_commands(record)
    write_asking(record, site)


def users_policy(site: Site) -> str:
    """The text of every condarc: the site's present policy for environments that users create.

    Raises:
        InputError: the policy contains a login.
    """
    from stackyard.expose.condarc import condarc_text  # late: reading operations needs no channel policy

    return checksum.add(condarc_text(site))


def follow_policy(directories: Iterable[str], text: str) -> list[str]:
    """Write the policy into the condarc of these published revisions; a sentence for each that cannot be written."""
    problems = []
    for paths in map(RevisionPaths.of, directories):
        try:
            if disk.is_there(paths.module) and disk.content(paths.condarc) != text.encode():
                atomic.write_text(paths.condarc, text, top=paths.yard)
        except OSError as error:
            problems.append(f"cannot write {paths.condarc}: {error.strerror}; it keeps the site's former policy")
    return problems
