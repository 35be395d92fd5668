"""Plans a move: which revisions to build, in which order, and whether the new place is free."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from stackyard.core.errors import InputError, StackyardError
from stackyard.core.quoting import LONG, plain
from stackyard.deploy import signing
from stackyard.deploy.preconditions import surroundings
from stackyard.deploy.preconditions.pathlengths import require_short_prefix
from stackyard.inputs.models import Site
from stackyard.inputs.sites.siteyard import site_root
from stackyard.inputs.workspace import Workspace
from stackyard.upkeep.extensions.drift import drifted
from stackyard.upkeep.transfer.rebuilding import LocatedRevision, Ways
from stackyard.yard import disk
from stackyard.yard.generation import generations
from stackyard.yard.layout import Yard, own_part
from stackyard.yard.others import children, moved
from stackyard.yard.others.moved import Note
from stackyard.yard.revision import revisions
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry, Manifest

FROM = "move from "
"""How the reason of the generation begins by which a move publishes."""
_MAY_BE_THERE = {"lost+found", "cache", "leases", "uses", "children", "registered", "usage", "signatures.json",
                 "bases-in-use.json"}  # fmt: skip
"""What a new place may hold: a cache that was carried there before, and what a killed move made before its note."""


@dataclass(frozen=True)
class Request(Workspace):
    """The request to move a yard.

    Attributes:
        yard: the yard at its present place.
        root: the new place; the present root to rebuild it in place.
        without: full names of revisions that are left out.
    """

    root: Path
    without: tuple[str, ...] = ()
    allow_unverified: bool = False
    accept: tuple[str, ...] = ()
    command: tuple[str, ...] = ()

    @property
    def is_here(self) -> bool:
        """Whether the yard is rebuilt in place."""
        return self.root == self.yard.root


@dataclass(frozen=True)
class Plan:
    """The plan of a move.

    Attributes:
        kept: the revisions to build again, bases before their extensions.
        rest: the entries of revisions without files or left out: their names stay reserved.
        notices: sentences about what is not carried over.
    """

    ways: Ways
    kept: tuple[LocatedRevision, ...]
    rest: tuple[Entry, ...]
    number: int = 0
    notices: tuple[str, ...] = ()


def plan(request: Request) -> Plan:
    """The plan for a request. Writes nothing.

    Raises:
        InputError: nothing is published, the new place cannot be used, a name to leave out is unknown, or signatures
            are demanded but no key is given.
        StackyardError: a record cannot be read, or the key cannot be used.
    """
    surroundings.require(Workspace(site_after(request, request.yard.root), Yard(request.root)))
    moved.tell_apart(request.yard)
    begun = Note.read(Yard(request.root))
    require_place(request, begun)
    if request.is_here and begun and not begun.is_aside:
        raise StackyardError(
            f"the move of {request.root} has hardly begun", hint=f"continue: {begun.command(request.root)}"
        )
    source = request.yard.former() if request.is_here and begun else request.yard
    manifest = generations.current(source)
    if manifest is None:
        raise InputError(f"nothing is published in {source.root}", hint="name the yard to move with --yard")
    built_in = Path(begun.built_in) if begun else _built_in(source, manifest)
    if built_in == request.root:
        line = f"mv {shlex.quote(str(request.yard.root))} {shlex.quote(str(request.root))}"
        raise InputError(f"nothing has to be built: the files of {source.root} name {built_in}", hint=f"type {line}")
    ways = Ways(source, built_in, new_yard(request))
    if not begun:
        signing.require_key(Workspace(site_after(request, built_in), ways.target), noted=source)
    return _planned(request, ways, manifest)


def _built_in(source: Yard, manifest: Manifest) -> Path:
    problem = moved.look(source)
    return problem.built_in if problem else Path(manifest.entries[0].folder).parents[2]


def require_place(request: Request, begun: Note | None) -> None:
    """Raise InputError if the new place is not free for this yard."""
    old, new = request.yard.root, request.root
    if begun is not None:
        if begun.source != str(old):
            raise InputError(f"cannot move {old} to {new}: the move of {begun.source} to it was not finished",
                             hint=f"choose another place; or continue: {begun.command(new)}")  # fmt: skip
        return
    if request.is_here:
        if moved.look(request.yard) is None:
            done = _moved_by(request.yard)
            before = f", since {_when(done)}" if done else ""
            raise InputError(f"{old} is where it was built{before}: nothing to do",
                             hint="name a new place: stackyard move DIR")  # fmt: skip
        return
    _require_not_done(request)
    real_old, real_new = old.resolve(), new.resolve()
    if real_new.is_relative_to(real_old) or real_old.is_relative_to(real_new):
        raise InputError(f"cannot move {old} to {new}: one is in the other", hint="choose a directory beside it")
    there = sorted(set(disk.names(new)) - _MAY_BE_THERE)
    if there:
        raise InputError(f"cannot move {old} to {new}: it holds {', '.join(there[:3])} already",
                         hint="choose a new directory, or an empty one")  # fmt: skip


def _require_not_done(request: Request) -> None:
    """Raise InputError if this yard was already moved to this place and nothing is left to do."""
    old, new = request.yard.root, request.root
    done = _moved_by(Yard(new))
    problem = moved.look(request.yard) if disk.is_there(old) else None
    if done is None or Path(done.reason.removeprefix(FROM)) not in (old, problem.built_in if problem else old):
        return
    hint = f"use it: stackyard --yard {shlex.quote(str(new))} list"
    if disk.is_directory(old) and old.resolve() != new.resolve():
        number = generations.current_number(request.yard)
        later = f"{old} has published generation {number} since: do the same in {new} before you remove {old}"
        hint = later if number >= done.number else f"{hint}; remove {old} once it is no longer used"
    raise InputError(f"{old} was moved to {new} already: {_when(done)}", hint=hint)


def _moved_by(yard: Yard) -> Manifest | None:
    """The generation that a move published in this yard; None: it was not moved, or that cannot be read."""
    return next((manifest for manifest in generations.readable(yard) if manifest.reason.startswith(FROM)), None)


def _when(done: Manifest) -> str:
    when, by = done.created[:16].replace("T", " "), f" by {done.origin.who}" if done.origin.user else ""
    return f"its {done.reason} on {when}{by} (generation {done.number})"


def _planned(request: Request, ways: Ways, manifest: Manifest) -> Plan:
    unknown = set(request.without) - {entry.module for entry in manifest.entries}
    if unknown:
        raise InputError(f"--without: no such revision: {', '.join(sorted(unknown))}",
                         hint="name them as `stackyard list --all` does")  # fmt: skip
    there = [e for e in manifest.entries if e.module not in request.without and e.state not in ("removed", "missing")]
    by_module = {
        e.module: LocatedRevision(e, record)
        for e in there
        if (record := revisions.readable(RevisionPaths.of(e.folder)))
    }
    rest = tuple(e for e in manifest.entries if e.module not in by_module)
    lost = [e.module for e in rest if e.is_visible and e.module not in request.without]
    if lost:
        raise StackyardError(f"cannot move {', '.join(lost)}: their records cannot be read",
                             hint=f"repair them in the old place, or leave them out: --without {lost[0]}")  # fmt: skip
    for revision in by_module.values():
        if any(package.kind == "conda" for package in revision.record.packages):
            require_short_prefix(revision.entry.module, Path(ways.there(revision.record.prefix)))
    return Plan(ways, tuple(_bases_first(by_module)), rest, manifest.number, tuple(_not_moved(by_module, ways)))


def _bases_first(by_module: dict[str, LocatedRevision]) -> Iterator[LocatedRevision]:
    done: set[str] = set()

    def visit(located: LocatedRevision) -> Iterator[LocatedRevision]:
        if located.entry.module in done:
            return
        done.add(located.entry.module)
        base = located.record.base
        if base is not None and base.id in by_module:
            yield from visit(by_module[base.id])
        yield located

    for revision in by_module.values():
        yield from visit(revision)


def _not_moved(by_module: dict[str, LocatedRevision], ways: Ways) -> Iterator[str]:
    for item in by_module.values():
        record = replace(item.record, prefix=str(item.paths.prefix)) if item.record.base else None
        if record is not None and (drift := drifted(record)):
            what = ", ".join(f"{one.name} {one.version}" for one in drift)
            yield f"{what}: installed in {item.entry.module} and not recorded: `stackyard update {item.entry.stack}` is"
    below = children.known(ways.source, "")
    blind = (spot.place for spot in below.blind if spot.uid is not None)
    for root in sorted({*(str(child.root) for child in below.seen), *blind}):
        yield f"{plain(root, LONG)} extends revisions of this yard: its owner types `stackyard rebase NAME` for each"


def new_yard(request: Request) -> Yard:
    """The yard at its new place, with its parent."""
    return own_part(replace(request.yard, root=request.root, account=""))


def site_after(request: Request, built_in: Path) -> Site:
    """The site's settings after the move of its own yard; the link `modules: root` is changed later."""
    site, named = request.site, site_root(request.site)
    policy = site.modules.model_copy(update={"root": ""})
    is_its = named is not None and named.absolute() in (request.yard.root, built_in, request.root)
    return site.model_copy(update={"modules": policy, **({"yard": str(request.root)} if is_its else {})})
