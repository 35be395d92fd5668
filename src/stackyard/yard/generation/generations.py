"""Numbered generations, and the symbolic link that names the current one.

A generation is a draft with a temporary name until it is complete and verified. Then it gets the next number by a
rename, and becomes current by one `os.replace` of the link ``<yard>/modules``. So a directory with a number is
complete, and nothing here removes one. Numbers only grow: a rollback is a new generation with the content of an old
one, in which later revisions stay, hidden, so that a shell that loaded one can still unload it.

No update is lost when several processes publish on any hosts, even if one is suspended: the number is chosen before the
current generation is read (`base`), and only one process gets it (`claim.claim`). The others start again from its
publication. A generation with a number but without the link still has its ``owner.json``; the next publisher moves the
link first. It leaves a mark in the generation to which it moves the link, until it has checked again. So a link to a
generation without marks is correct, or was set by a person.

A yard that ever published has the link: the first generation is preceded by an empty one, number 0. If there are
generations but no link, the link was removed; the yard never counts as new then.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

from stackyard.core.errors import InputError, StackyardError
from stackyard.core.late import dataclass
from stackyard.host.files import at
from stackyard.host.run.identity import this_process
from stackyard.yard import disk
from stackyard.yard.generation import manifestfile
from stackyard.yard.layout import Yard
from stackyard.yard.others import moved
from stackyard.yard.revision.directories import GenerationPaths
from stackyard.yard.revision.manifest import Entry, Manifest, read_manifest
from stackyard.yard.write import atomic, within
from stackyard.yard.write.claim import claim

_REMEDIES = {
    errno.EACCES: "its directory or one above it may not be entered; its owner can allow that: `chmod go+x DIRECTORY`",
    errno.ENOTDIR: "a part of this path is a file; choose another yard with --yard or $STACKYARD_HOME",
}


def current_number(yard: Yard) -> int:
    """The number of the current generation, 0 before the first publication.

    Raises:
        StackyardError: the link cannot be read, was removed, or does not lead to a generation of this yard.
    """
    target = _link(yard)
    if target is None and _newest(yard):
        target = _link(yard)  # a process that published the first one meanwhile made the link before
        if target is None:
            raise _damaged(yard, f"missing link {yard.modules}")
    if target is None:
        return 0
    name = target.parent.name
    if target.name != "modules" or not name.isdecimal() or not _is_own(yard, target):
        raise _damaged(yard, f"{yard.modules} points to {target}, which is not a generation of this yard")
    return int(name)


def _link(yard: Yard) -> Path | None:
    """The target of the link, None without one."""
    try:
        return yard.modules.readlink()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(yard, error) from error


def current(yard: Yard) -> Manifest | None:
    """The current generation's manifest, or None before the first publication. Raises as `current_number` does.

    In a moved yard its entries have the present directories of their revisions.
    """
    number = current_number(yard)
    if not number:
        return None
    if not disk.is_there(yard.generation(number).root):
        raise _damaged(yard, f"{yard.modules} points to generation {number}, which does not exist")
    manifest = read_manifest(yard.generation(number).manifest)
    return replace(manifest, entries=moved.as_it_lies(yard, manifest.entries))


def entries(yard: Yard) -> tuple[Entry, ...]:
    """All entries of the current generation. Raises as `current_number` does."""
    manifest = current(yard)
    return manifest.entries if manifest else ()


def read(yard: Yard, number: int) -> Manifest:
    """The manifest of one generation.

    Raises:
        InputError: no such generation.
        StackyardError: its manifest cannot be read.
    """
    if not _is_complete(yard, number):
        known = sorted(numbers(yard))
        choose = f"choose one of {_ranges(known)}: `stackyard history`"
        hint = choose if known else f"nothing is published in {yard.root}: `stackyard deploy FILE`"
        raise InputError(f"no such generation: {number}", hint=hint)
    return read_manifest(yard.generation(number).manifest)


def numbers(yard: Yard) -> Iterator[int]:
    """The numbers of all generations, newest first, found lazily."""
    return (number for number in reversed(_numbers(yard)) if _is_complete(yard, number))


def readable(yard: Yard) -> Iterator[Manifest]:
    """The readable manifests of all generations, newest first, read lazily."""
    for number in numbers(yard):
        try:
            manifest = read_manifest(yard.generation(number).manifest)
        except StackyardError:
            continue
        yield manifest


def complete(yard: Yard) -> Iterator[Manifest]:
    """The manifests that together list every revision ever published: the newest of each line of generations.

    A generation lists all revisions of its predecessor, whose number is read from the end of the file: a history of
    years is long.
    """
    listed: set[int | None] = set()
    for number in numbers(yard):
        file = yard.generation(number).manifest
        if number in listed:
            listed.add(_previous(file))
            continue
        with suppress(StackyardError):
            manifest = read_manifest(file)
            listed.add(_previous(file))
            yield manifest


def _previous(file: Path) -> int | None:
    """The previous generation, from the end of its manifest; None in format 1, which did not record it."""
    with suppress(OSError, ValueError):
        digits = re.findall(rb'\n  "previous": (\d+),?\n', manifestfile.end(file))
        return int(digits[-1]) if digits else None
    return None


@dataclass(frozen=True)
class Base:
    """The basis of the next generation: the current one, and the next number."""

    current: Manifest | None
    number: int

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries of the current generation."""
        return self.current.entries if self.current else ()

    @property
    def previous(self) -> int:
        """The number of the current generation, 0 before the first publication."""
        return self.current.number if self.current else 0

    @property
    def content(self) -> int:
        """The number of the generation whose content the current one repeats, or its own."""
        return self.current.content or self.current.number if self.current else 0


def base(yard: Yard) -> Base:
    """The current generation for a process that publishes the next one."""
    number = max([0, *_numbers(yard)]) + 1  # asked first: `commit` fails if anything was published after this line
    shown = _settled(yard)
    return Base(read_manifest(yard.generation(shown).manifest) if shown else None, number)


def begin(yard: Yard) -> GenerationPaths:
    """An empty directory for a draft. Leftovers of dead processes are removed."""
    from stackyard.yard.write.lease import is_abandoned  # late, as below: no command that only reads needs it

    current(yard)  # a yard whose history cannot be read gets no further generation
    for left in yard.generations.glob(yard.draft("*").root.name):
        if is_abandoned(GenerationPaths(left).owner, left):
            with suppress(OSError):
                disk.delete_tree(left, yard.root)
    me = this_process()
    draft = yard.draft(f"{me.host}-{me.pid}-{me.token}")
    within.make(yard.root, draft.root)
    try:
        _sign(yard, draft.owner)
    except OSError:
        with suppress(OSError):  # its owner would be unknown for a day
            disk.delete_tree(draft.root, yard.root)
        raise
    return draft


def commit(yard: Yard, draft: GenerationPaths, manifest: Manifest) -> Manifest | None:
    """Give a written draft the number of its manifest and make it the current generation.

    Nothing changes until the number is given. After that, the next publisher completes the work of a killed one.

    Returns:
        The manifest with the hashes of its files; None if another process took the number and published something that
            this manifest lacks.
    """
    if not disk.is_there(draft.modules):
        raise StackyardError(f"the draft {draft.root} was removed by another process", hint="deploy again")
    _link_of_a_new_yard(yard)
    complete = replace(manifest, files=_hashes(draft.modules))
    atomic.write_json(draft.manifest, complete.to_json(), checked=True, top=yard.root)
    atomic.fault_point("before-flip")
    numbered = yard.generation(manifest.number)
    if not claim(draft.root, numbered.root):
        return None
    _settled(yard)
    within.unlink(yard.root, numbered.owner)
    atomic.fault_point("after-flip")
    return complete


def _settled(yard: Yard) -> int:
    """The number of the current generation, after moving the link to the newest committed one.

    The link is moved only between generations with marks, and the target gets a mark first: a suspended process may set
    the link back at any time, and then moves it again. Any other link to an older generation was set by a person: it is
    unchanged after both generations were found to have no marks.
    """
    mine: set[Path] = set()
    while True:
        shown, newest = current_number(yard), _newest(yard)
        if shown < newest and (not shown or _marks(yard, shown) or _marks(yard, newest)):
            mine.add(_sign(yard, yard.generation(newest).mark(f"-{this_process().token}")))
            atomic.replace_symlink(yard.modules, _target(newest), top=yard.root)
        elif shown >= newest or current_number(yard) == shown:
            _forget(yard, mine, [*_marks(yard, shown), *_marks(yard, newest)])
            return shown


def _marks(yard: Yard, number: int) -> list[Path]:
    """The files of processes that may still move the link to a generation."""
    paths = yard.generation(number)
    return [paths.root / name for name in disk.names(paths.root) if fnmatch(name, paths.mark("*").name)]


def _sign(yard: Yard, mark: Path) -> Path:
    """Write this process's identity into a mark."""
    with suppress(FileExistsError), at.parent(yard.root, mark) as place, at.open_new(*place, 0o666) as stream:
        stream.write(json.dumps(this_process().to_json()).encode())
    return mark


def _forget(yard: Yard, mine: Iterable[Path], others: Iterable[Path]) -> None:
    """Remove these marks, and those of dead processes among the others."""
    from stackyard.yard.write.lease import is_abandoned

    for mark in mine:
        within.unlink(yard.root, mark)
    for mark in others:
        if is_abandoned(mark, mark):
            with suppress(OSError):
                within.unlink(yard.root, mark)


def _hashes(directory: Path) -> dict[str, str]:
    """sha256 of every file below a directory, by its path there."""
    from stackyard.host.files.hashing import sha256_file
    from stackyard.yard.revision import contents

    tree = contents.scan(directory)
    return {name: sha256_file(directory / name) for name in sorted(tree) if stat.S_ISREG(tree[name].st_mode)}


def _link_of_a_new_yard(yard: Yard) -> None:
    """Create the link to an empty generation, unless it exists: another process may publish first."""
    if not os.path.lexists(yard.modules):
        within.make(yard.root, yard.generation(0).modules)
        with suppress(FileExistsError):
            within.symlink(yard.root, yard.modules, _target(0))


def _target(number: int) -> str:
    """The target for the link: relative, so that a yard can be used at another path."""
    return f"generations/{number}/modules"


def _is_own(yard: Yard, target: Path) -> bool:
    """Whether the target of the link is in this yard's directory of generations."""
    if not target.is_absolute():
        return target.parts[:-2] == ("generations",)
    return target.parent.parent.resolve() == yard.generations.resolve()


def _numbers(yard: Yard) -> list[int]:
    """All used numbers, sorted; including directories that a former version did not complete."""
    return sorted(int(name) for name in disk.names(yard.generations) if name.isdecimal())


def _ranges(numbers: list[int]) -> str:
    """``1-3, 5``: the numbers in order, consecutive ones as ranges."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ", ".join("-".join(map(str, part)) for part in parts)


def _is_complete(yard: Yard, number: int) -> bool:
    """Whether a number belongs to a complete generation, which is not the empty one."""
    return number > 0 and manifestfile.is_there(yard.generation(number).manifest)


def _newest(yard: Yard) -> int:
    """The highest number of a complete generation, 0 without one."""
    return next((n for n in numbers(yard) if disk.is_there(yard.generation(n).modules)), 0)


def _damaged(yard: Yard, what: str, before: str = "") -> StackyardError:
    """The error for an unexpected link. It is not repaired, since it may be intentional."""
    newest = _newest(yard)
    if not newest:
        return StackyardError(what, hint=f"{before}remove {yard.modules} and deploy again")
    return StackyardError(
        what,
        detail=f"generation {newest} is the newest complete one{_published(yard, newest)}",
        hint=f"{before}restore it with `ln -sfn {_target(newest)} {yard.modules}`",
    )


def _published(yard: Yard, number: int) -> str:
    try:
        manifest = read_manifest(yard.generation(number).manifest)
    except StackyardError:
        return ""
    by = f" by {manifest.origin.who} on {manifest.origin.host}" if manifest.origin.user else ""
    return f": {manifest.reason}, {manifest.created}{by}"


def _unreadable(yard: Yard, error: OSError) -> StackyardError:
    if error.errno == errno.EINVAL:
        kind = "a directory" if yard.modules.is_dir() else "a file"
        message = f"{yard.modules} is {kind}, not a link to a generation"
        if not _newest(yard):
            return StackyardError(message, hint=f"move {yard.modules} away and deploy again")
        return _damaged(yard, message, f"move {yard.modules} away and ")
    return StackyardError(
        f"cannot read the link {yard.modules}: {error.strerror}",
        hint=_REMEDIES.get(error.errno or 0, "nothing was changed; try again once the file system answers"),
    )
