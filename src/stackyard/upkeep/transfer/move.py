"""Moves a yard: every revision is built at the new place from its lock and the caches, verified, and published at once.

The old yard is only read. Until the new yard is published, a note in it (`yard.others.moved.Note`) makes all other
verbs refuse it; after a kill, the same command continues and keeps finished builds. If a revision cannot be built,
nothing is published unless it is left out by name: a second try is better than jobs that do not find their module.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from stackyard.core.errors import ChecksFailed, StackyardError
from stackyard.core.findings import counted
from stackyard.core.progress import Progress
from stackyard.deploy import deploy, generation, licences, signing
from stackyard.deploy.generation import Step
from stackyard.deploy.published import names
from stackyard.deploy.writing import DeployLeases, building, writing
from stackyard.expose.published import follow_policy, users_policy
from stackyard.host.files import at
from stackyard.host.files.scratch import scratch
from stackyard.inputs.models import Site
from stackyard.inputs.workspace import Workspace
from stackyard.upkeep.transfer import carry as carrying
from stackyard.upkeep.transfer import rebuilding as remaking
from stackyard.upkeep.transfer.moveplan import FROM, Plan, Request, new_yard, plan, require_place, site_after
from stackyard.upkeep.transfer.rebuilding import LocatedRevision, Ways
from stackyard.verify.expectations import in_force, keep
from stackyard.yard import disk
from stackyard.yard.generation import generations
from stackyard.yard.generation.origin import origin
from stackyard.yard.layout import Yard
from stackyard.yard.others import childnotes, moved
from stackyard.yard.others.moved import Note
from stackyard.yard.others.same import require_other
from stackyard.yard.revision import revisions
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry, Manifest, State
from stackyard.yard.revision.record import BuildRecord
from stackyard.yard.write import atomic, lease, reserve, within


@dataclass
class MoveResult:
    """The generation that a move published, and messages about it."""

    manifest: Manifest
    notices: list[str] = field(default_factory=list)
    rebuilt: int = 0


# --------------------------------------------------------------------------- doing it


def move(request: Request, progress: Progress, on_wait: Callable[[str], None]) -> MoveResult:
    """Build, verify and publish a yard at its new place; the old one is not changed.

    Raises:
        InputError: as for `plan`.
        ChecksFailed: a check of a revision does not pass there; nothing is published.
        StackyardError: revisions cannot be built there, the disk is full, or another process moves the yard too.
    """
    note = Note.read(Yard(request.root)) or _note(request)
    require_place(request, note)
    built_in, target = Path(note.built_in), new_yard(request)
    site = site_after(request, built_in)
    _create(target.root, like=request.yard.root)
    with writing(Workspace(site, target)), _alone(request), _kept_from_gc(request):
        begun = Note.read(target)  # again: another move to this place may have begun, or ended, meanwhile
        require_place(request, begun)
        _begin(begun or note, target, is_here=request.is_here)
        if request.is_here and generations.current(target) is not None:  # killed while what was there is thrown away
            return _finish(Ways(target.former(), built_in, target), request, site)
        move_plan = plan(request)
        while generations.current(target) is None:
            stacks = {revision.entry.stack for revision in move_plan.kept}
            with building(Workspace(site, target), stacks, on_wait) as leases:
                _carry_out(move_plan, replace(request, site=site), progress, leases)
            move_plan = plan(request)
        return _finish(move_plan.ways, request, site, move_plan.notices)


def _note(request: Request) -> Note:
    return Note(str(request.yard.root), str(plan(request).ways.built_in))


def _begin(note: Note, target: Yard, *, is_here: bool) -> None:
    """Write the note of the move at the new place; for a rebuild in place, put the present parts aside."""
    if is_here and not note.is_aside:
        carrying.require_free(target)
        require_other(target.root, Path(note.built_in))
    note.write(target)
    atomic.fault_point("move-noted")
    if is_here and not note.is_aside:
        carrying.put_aside(target)
        replace(note, is_aside=True).write(target)


def _finish(ways: Ways, request: Request, site: Site, notices: tuple[str, ...] = ()) -> MoveResult:
    manifest = generations.current(ways.target)
    assert manifest is not None
    shown = [entry.folder for entry in manifest.entries if entry.is_visible]
    said = [*notices, *carrying.shares(ways, site), *follow_policy(shown, users_policy(site))]
    if request.is_here:
        carrying.throw_away(ways.target)
    else:
        said += _left_behind(ways, manifest)
    reserve.keep(ways.target)
    childnotes.renew(ways.target)
    within.unlink(ways.target.root, ways.target.move_note)
    return MoveResult(manifest, said, sum(entry.state != "missing" for entry in manifest.entries))


def _left_behind(ways: Ways, manifest: Manifest) -> list[str]:
    """Sentences about later publications of the old yard; the new yard continues its numbering."""
    number = generations.current_number(ways.source)
    if number < manifest.number:
        return []
    return [f"{ways.source.root} published generation {number} meanwhile, which is not in {ways.target.root}: "
            "do the same there before you remove the old yard (`stackyard history` shows it)"]  # fmt: skip


def _create(new: Path, like: Path) -> None:
    """Create the directory of the new yard with the old one's permissions; an existing one is not changed."""
    old = like.stat()
    if disk.is_there(new):
        return
    try:
        with at.parent(new.parent, new, make=True) as (directory, name):
            os.mkdir(name, 0o700, dir_fd=directory)
            with at.opened(directory, name) as descriptor:
                with suppress(PermissionError):
                    os.fchown(descriptor, -1, old.st_gid)
                os.fchmod(descriptor, old.st_mode & 0o7777)
    except OSError as error:
        raise StackyardError(f"cannot create {new}: {error.strerror}", hint="choose another directory") from error


@contextmanager
def _alone(request: Request) -> Iterator[None]:
    """Hold the lock on the target of a move; refused if another process holds it."""
    place = Yard(request.root).lease("move")
    if lease.is_occupied(place):
        raise StackyardError(f"cannot move {request.yard.root} to {request.root}: {lease.latest(place)} does so now",
                             hint="wait for it; `stackyard list` shows the yard once it is published")  # fmt: skip
    with lease.lease(place, f"the move to {request.root}", wait_s=5):
        yield


@contextmanager
def _kept_from_gc(request: Request) -> Iterator[None]:
    """Block collections of the old yard's caches during the move, if this account may write there."""
    old = request.yard
    if request.is_here or not os.access(old.leases, os.W_OK):
        yield
        return
    with lease.lease(old.lease(f"move to {request.root}"), f"the move of {old.root}"):
        yield


def _carry_out(move_plan: Plan, request: Request, progress: Progress, leases: DeployLeases) -> None:
    ways = move_plan.ways
    with disk.during(f"moving {ways.source.root}"):
        if not request.is_here:
            for text in carrying.beside(ways):
                progress.notice(text)
        carrying.history(ways)
        _build_all(move_plan, request, progress, leases)
    with suppress(_OutdatedPlan):  # then once more
        _require_latest(move_plan)
        _publish(move_plan, request, progress, leases)


class _OutdatedPlan(Exception):
    """The old yard was published to after the plan was made."""


def _require_latest(move_plan: Plan) -> None:
    if generations.current_number(move_plan.ways.source) != move_plan.number:
        raise _OutdatedPlan


def _build_all(move_plan: Plan, request: Request, progress: Progress, leases: DeployLeases) -> None:
    """Build every revision; failures are collected and reported together.

    Raises:
        StackyardError: a revision cannot be built.
    """
    failed: dict[str, StackyardError] = {}
    key = signing.require_key(Workspace(request.site, move_plan.ways.target))
    for revision in move_plan.kept:
        base = revision.record.base
        try:
            if base is not None and base.id in failed and move_plan.ways.there(base.yard) != base.yard:
                raise StackyardError(f"its base {base.id} cannot be built")
            record = _build(revision, move_plan.ways, request, progress, leases)
            signing.sign_built(record, Workspace(request.site, move_plan.ways.target), key)
        except disk.DiskFull:
            raise
        except StackyardError as error:
            progress.phase(revision.entry.module, "stopped", "not built")
            failed[revision.entry.module] = error
    if failed:
        raise _cannot(failed, request)


def _cannot(failed: dict[str, StackyardError], request: Request) -> StackyardError:
    reasons = [f"{name}: {error}" + (f"\n  hint: {error.hint}" if error.hint else "") for name, error in failed.items()]
    options = " ".join(f"--without {name}" for name in failed)
    return StackyardError(
        f"nothing was published in {request.root}: {counted(len(failed), 'revision')} cannot be built there",
        detail="\n".join(reasons),
        hint=f"remove the cause and move again, which continues; or leave out what is not needed: {options}",
    )


def _build(
    revision: LocatedRevision, ways: Ways, request: Request, progress: Progress, leases: DeployLeases
) -> BuildRecord:
    if revision.record.origin.again == "copy":
        progress.phase(revision.entry.module, "image")
        licences.require_of_record(Workspace(request.site, ways.target), revision.record, request.accept)
        return carrying.image(revision, ways, request.site)
    yard = ways.target if request.is_here else replace(ways.target, parent=ways.source)
    with scratch("move") as work:
        task = remaking.task(revision, ways, request.site, work)
        if task.record is None and not remaking.is_same_build(task, revision, request.site):
            progress.notice(
                f"{revision.entry.module}: the site's policy changed since it was built; it gets the present one"
            )
        deploy_request = deploy.Request(
            request.site, yard, (task.stack,), accept=request.accept, command=request.command
        )
        built = deploy.ensure_built(task, deploy_request, progress, leases).record
        carrying.lock_of_extension(revision, task, ways)
    assert built is not None
    return built


# --------------------------------------------------------------------------- publishing


def _publish(move_plan: Plan, request: Request, progress: Progress, leases: DeployLeases) -> None:
    """Verify every revision through its future modules, and publish all of them in one step."""
    ways, target, site = move_plan.ways, move_plan.ways.target, request.site

    def may() -> None:
        leases.check()
        _require_latest(move_plan)

    gone = tuple(replace(entry, state="missing", pinned=False) for entry in move_plan.rest)
    made_by = origin(request.command, [site.file] if site.file else [])
    with generation.draft(Workspace(site, target), made_by) as draft:
        draft.write(_entries([*(revision.entry for revision in move_plan.kept), *gone], ways))
        verified = [_verified(revision, draft.modules, ways, request, progress) for revision in move_plan.kept]
        wrong = [entry.module for entry, is_good in verified if not is_good]
        if wrong:
            raise ChecksFailed(
                f"nothing was published in {target.root}: a check failed or was skipped of {', '.join(wrong)}",
                hint="see report.json of each; --allow-unverified takes what was skipped, --without leaves one out",
            )
        final = _entries([*(entry for entry, _ in verified), *gone], ways)
        atomic.fault_point("move-verified")
        draft.publish(lambda _: Step(final, f"{FROM}{ways.built_in}"), may)


def _entries(entries: list[Entry], ways: Ways) -> tuple[Entry, ...]:
    """The entries at the new place, with the hashes of the new builds."""
    there = [replace(entry, file=ways.there(entry.file)) for entry in moved.at(ways.target, entries)]
    records = {entry.module: revisions.readable(RevisionPaths.of(entry.folder)) for entry in there}
    updated = [replace(e, input_hash=r.input_hash) if e.input_hash and (r := records[e.module]) else e for e in there]
    return names.claim(updated)


def _verified(
    revision: LocatedRevision, modules: Path, ways: Ways, request: Request, progress: Progress
) -> tuple[Entry, bool]:
    """The entry with the state from its verification, and whether that is as good as before."""
    paths = ways.target.revision(revision.entry.stack, Path(revision.entry.folder).name)
    record, expectations = revisions.readable(paths), in_force(revision.located)
    assert record is not None
    deploy_request = deploy.Request(request.site, ways.target, ())
    report = deploy.verified(
        record, modules, deploy_request, progress, expectations, deep=record.payload.image is not None
    ).report
    assert report is not None
    if not in_force(record).cover(expectations):
        keep(record, expectations)
    state = _state(revision.entry.state, report.state)
    allowed = request.allow_unverified or revision.entry.state in ("unverified", "withdrawn")
    good = state not in ("failed", "unverified") or state == revision.entry.state or (state == "unverified" and allowed)
    return replace(revision.entry, state=state), good


def _state(before: State, report: str) -> State:
    """The state of a revision after its verification; a withdrawn revision stays withdrawn if it passes."""
    if report == "failed":
        return "failed"
    if before == "withdrawn":
        return "withdrawn"
    return "published" if report == "passed" else "unverified"
