"""From files to a published generation: lock, build what is missing, verify through the new modules, switch one link.

The current generation stays unchanged until the last step, and the next deploy finishes the work: finished builds are
found by the hash of their inputs, unfinished ones are removed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from stackyard.core.errors import InputError, MissingError, StackyardError
from stackyard.core.late import dataclass
from stackyard.core.progress import Progress
from stackyard.deploy import choices, generation, licences, signing
from stackyard.deploy.entries import entries_after
from stackyard.deploy.forms import in_its_form
from stackyard.deploy.generation import Step
from stackyard.deploy.inputs import files_of
from stackyard.deploy.locking import FreshLock, former_locks, fresh_lock, write_lock
from stackyard.deploy.plan import Planner, Task, take_back
from stackyard.deploy.preconditions import imageable, pathlengths, surroundings
from stackyard.deploy.preview import looked_at
from stackyard.deploy.published import share_later as sharedlater
from stackyard.deploy.published.labels import without_labels
from stackyard.deploy.wraps import pinned
from stackyard.deploy.writing import DeployLeases
from stackyard.expose.published import follow_policy, users_policy
from stackyard.expose.root import make_root
from stackyard.host.machine.probe import machine
from stackyard.inputs.models import Site, Stack
from stackyard.inputs.sites import siteyard
from stackyard.inputs.workspace import Workspace
from stackyard.lock import solve
from stackyard.lock.base import extension as onbase
from stackyard.lock.renewal import NOTHING, Update, require_known
from stackyard.make import builder
from stackyard.verify import verify
from stackyard.verify.expectations import Expectations, asked, in_force, keep
from stackyard.verify.report import Report, not_mounted
from stackyard.verify.sitechecks import site_checks
from stackyard.yard import disk
from stackyard.yard.cache import caches
from stackyard.yard.cache.audit import unfinished
from stackyard.yard.generation import generations
from stackyard.yard.generation.origin import Origin, UsedFile, origin
from stackyard.yard.kinds.extension import BaseRevision
from stackyard.yard.layout import Yard
from stackyard.yard.others import childnotes
from stackyard.yard.revision import revisions
from stackyard.yard.revision.directories import RevisionPaths
from stackyard.yard.revision.manifest import Entry, Manifest
from stackyard.yard.revision.record import BuildRecord, read_record
from stackyard.yard.write import atomic, reserve

USABLE = ("published", "unverified", "unchanged", "updated", "reinstated", "inherited")
"""The outcomes after which users can load the revision."""

REASONS = {
    "reinstated": "reinstate",
    "updated": "labels of",
    "superseded": "supersede",
    "withdrawn": "withdraw",
    "removed": "remove",
    "missing": "missing",
}
"""The reason of a generation that only changes published revisions, by `kept_status`."""


@dataclass(frozen=True)
class Request(Workspace):
    """What to deploy, where and with which options.

    `accept` names the licences that the command accepts, `update` the locked packages to solve again; `rebuild` builds
    existing revisions again and compiles wheels that a cache has. `command` is the command line without secrets, for
    the manifest. `read` has the hashes of the files that were read for it (`inputs.as_read`); other files are hashed
    when needed.
    """

    stacks: tuple[Stack, ...]
    only_locked: bool = False
    allow_unverified: bool = False
    accept: tuple[str, ...] = ()
    update: Update = NOTHING
    rebuild: bool = False
    command: tuple[str, ...] = ()
    read: Mapping[str, str] = field(default_factory=dict)

    def origin(self) -> Origin:
        """Who publishes this and from where, with the hashes of the files as read, and of the locks as they are now."""
        now = origin(self.command, files_of(self.stacks, self.site))
        return replace(now, files=tuple(UsedFile(f.path, self.read.get(f.path, f.sha256)) for f in now.files))


@dataclass(frozen=True)
class Outcome:
    """The result for one variant.

    `status`: published, unverified (published unverified, as allowed), unchanged, updated (only its labels changed),
    reinstated (a later revision had superseded it), inherited, failed (a check did not pass), held (unverified and not
    allowed) or broken (the build itself failed; `error` says why). `stack` is the stack of the variant. `is_visible`:
    it was published before and still is.
    """

    module: str
    status: str
    directory: str
    report: Report | None = None
    record: BuildRecord | None = None
    error: StackyardError | None = None
    stack: Stack | None = None
    is_visible: bool = False


@dataclass
class Result:
    """The result of a deploy.

    `generation` is 0 if nothing new was published; `manifest` is the manifest of the generation with the revisions.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    generation: int = 0
    manifest: Manifest | None = None
    locks: list[Path] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether every variant is usable now."""
        return all(o.status in USABLE for o in self.outcomes)

    @property
    def is_final(self) -> bool:
        """Whether repeating the same request now would do nothing, independent of other yards."""
        return all(o.status in USABLE and o.status != "inherited" for o in self.outcomes)


def lock_all(request: Request, progress: Progress) -> list[FreshLock]:
    """The fresh locks of all stacks, for the site's platforms and this machine's.

    Raises:
        InputError: as for `fresh_lock`; no lock has a package to be updated, or a package that the stack's file
            chooses; or the site denies the licence of a package.
    """
    if request.update.names:
        require_known(request.update, former_locks(request.stacks, request.yard))
    locks = [fresh_lock(stack, request, stack_platforms(stack, request.site), progress) for stack in pinned(request)]
    for locked in locks:
        choices.require_known(locked.stack, locked.lock, request.site)
    for locked in locks if request.site.licences.deny else ():
        from stackyard.deploy.licence_policy import require_allowed

        require_allowed(locked, request, progress)
    return locks


def stack_platforms(stack: Stack, site: Site) -> tuple[str, ...]:
    """The platforms to lock for: the site's, else those of its nodes, else this machine's; a stack may name fewer."""
    platforms = solve.site_platforms(site)
    names = {p for variant in stack.variants for p in variant.platforms}
    return tuple(p for p in platforms if not names or p in names) or tuple(sorted(names))


def require(request: Request, *, building: bool = True) -> None:
    """Raise InputError, MissingError or StackyardError where a deploy cannot succeed, before anything is solved.

    Args:
        building: whether it is built on this machine, and not only fetched.
    """
    surroundings.require(request)
    site_checks(request.site)  # mistakes in them are found before hours of building
    pathlengths.require_short(request, machine().platform)
    if building:
        imageable.require_before_lock(request)


def plan(request: Request, locks: Sequence[FreshLock], *, building: bool = True) -> list[Task]:
    """The task for every variant on this machine. Writes nothing.

    Args:
        building: as in `require`.

    Raises:
        InputError: two stacks define one module.
        MissingError: this machine cannot make an image that is to be built.
    """
    same = (request.site, request.yard, machine().platform, request.rebuild)
    tasks = [task for locked in locks for task in Planner(locked.stack, locked.lock, *same).tasks()]
    seen: dict[str, Task] = {}
    for task in tasks:
        if task.action == "build" and task.locked.conda:
            pathlengths.require_short_prefix(task.module, task.paths.prefix)
        other = seen.setdefault(task.module, task)
        if other is not task and other.input_hash != task.input_hash:
            raise InputError(
                f"{other.stack.file} and {task.stack.file} both define {task.module}",
                hint="change the name or the version of one of them",
            )
    entries_after(generations.entries(request.yard), request.site, tasks)  # names are unique
    if building:
        imageable.require_before_build(request, tasks)
    return tasks


def deploy(request: Request, progress: Progress, leases: DeployLeases) -> Result:
    """Lock, build, verify and publish.

    Args:
        leases: the held leases to build these stacks (`writing.building`), checked before anything becomes visible.

    Raises:
        StackyardError: the deploy could not start (bad input, no lock); failures of single variants are in the result.
    """
    require(request)
    users_policy(request.site)  # refused before anything is solved
    for text in siteyard.unused(request.site):
        progress.notice(text)
    result = Result()
    _clean(request.yard, leases)
    locks = lock_all(request, progress)
    leases.check()
    result.locks = [place for locked in locks if (place := write_lock(locked, request.yard, progress))]
    tasks = plan(request, locks)
    carry_out(tasks, request, request.origin(), progress, result, leases)
    return result


def carry_out(
    tasks: Sequence[Task], request: Request, made_by: Origin, progress: Progress, result: Result, leases: DeployLeases
) -> None:
    """Build, verify and publish these tasks; each outcome is added to the result."""
    policy = users_policy(request.site)
    _tell_lost(request.yard, progress)
    candidates: list[Task] = []
    key = None if all(task.is_kept for task in tasks) else signing.require_key(request)
    for task in tasks:
        if task.is_kept:
            result.outcomes.append(Outcome(task.module, task.action, str(task.paths.root), record=task.record))
            continue
        try:
            built = ensure_built(task, request, progress, leases)
            signing.sign_built(built.record or read_record(built.paths.record), request, key)
            candidates.append(built)
        except StackyardError as error:
            progress.phase(task.module, "stopped", "not built")
            result.outcomes.append(Outcome(task.module, "broken", str(task.paths.root), error=error))
    leases.check()
    _publish([task for task in tasks if task.is_kept], candidates, request, made_by, progress, result, leases)
    signing.tell_refused(request.yard, progress)
    reserve.keep(request.yard)
    _tell_pinned(request.yard, {task.stack.name for task in tasks}, progress)
    make_root(request)
    shown = (e.folder for e in generations.entries(request.yard) if e.is_visible)
    new = {outcome.module for outcome in result.outcomes if outcome.status in sharedlater.NEW}
    for text in (*follow_policy(shown, policy), *sharedlater.share_new(request, new)):
        progress.notice(text)  # the revisions are published: nothing of this undoes it


def _tell_pinned(yard: Yard, stacks: Collection[str], progress: Progress) -> None:
    """Report which of these stacks have a default set by `stackyard default`, which a deploy does not change."""
    for e in generations.entries(yard):
        if e.default and e.pinned and e.stack in stacks:
            progress.notice(f"{e.stack} loads {e.module}, which `stackyard default` set; --undo ends that")


def _clean(yard: Yard, leases: DeployLeases) -> None:
    """Remove leftovers of killed builds from the caches, unless another build may be running."""
    left = unfinished(yard)  # listed first: what a build begins after this stays
    if left and leases.is_alone:
        for path in left:
            disk.remove_tree(path, caches.trusted(yard))


def ensure_built(task: Task, request: Request, progress: Progress, leases: DeployLeases) -> Task:
    """The task with its record, written last: without it, the next deploy removes the unfinished build."""
    if task.record is not None:
        take_back(task, progress)
        disk.remove_tree(task.paths.building, task.paths.yard)
        return task
    agreed = licences.require_for_build(request, task.variant)
    register(request.yard, task.variant.base)
    try:
        record = builder.build(
            without_labels(task.variant),
            task.locked,
            request.site,
            request.yard,
            task.paths,
            task.module,
            task.revision,
            progress,
            licences=agreed,
            rebuild=request.rebuild,
        )
        record = in_its_form(task, record, request, progress)
        if record.base is not None:
            onbase.record_of(record.base)  # it may have been removed meanwhile
        leases.check()
        revisions.mark(record)
    except (OSError, disk.DiskFull) as error:
        if not disk.is_there(task.paths.record):
            for left in (task.paths.prefix, task.paths.work, task.paths.image, task.paths.launcher):
                disk.remove_tree(left, task.paths.yard)
        raise error if isinstance(error, disk.DiskFull) else disk.failure(error, f"building {task.module}") from error
    progress.phase(task.module, "built")
    return replace(task, record=record)


def register(yard: Yard, base: BaseRevision | None) -> None:
    """Before the build, note in the base's yard that this yard extends it; skipped if that yard is not writable."""
    if base is None:
        return
    parent = Yard(Path(base.yard))
    if os.path.realpath(parent.root) != os.path.realpath(yard.root):
        childnotes.register(parent, yard, base.id)


def _tell_lost(yard: Yard, progress: Progress) -> None:
    """Report missing or damaged parts of published revisions; the deploy continues without them."""
    for entry in (published for published in generations.entries(yard) if published.is_visible):
        paths = RevisionPaths.of(entry.folder)
        try:
            if disk.is_there(paths.record):
                read_record(paths.record)
                continue
            state, why = "is no longer published", f"{paths.record} does not exist; restore it or deploy its file again"
        except StackyardError as error:
            copied = revisions.readable(paths)
            state = "is published from the copy of its record" if copied else "keeps the modulefile that it has"
            why = f"{error.message}; {error.hint}"
        progress.notice(f"{entry.module} {state}: {why}")


def _publish(
    tasks: Sequence[Task],
    candidates: Sequence[Task],
    request: Request,
    made_by: Origin,
    progress: Progress,
    result: Result,
    leases: DeployLeases,
) -> None:
    """Publish the candidates that pass their checks, and the present labels of the revisions in `tasks`.

    The next generation is written with all candidates. They are verified through it, failed ones are left out, and the
    link is switched. If nothing new is left, the generation is discarded.
    """

    def after(before: Iterable[Entry], new: Iterable[Task], unverified: Collection[str] = ()) -> tuple[Entry, ...]:
        return entries_after(before, request.site, [*tasks, *new], unverified)

    result.manifest = generations.current(request.yard)
    now = result.manifest.entries if result.manifest else ()
    expected = looked_at(request, tasks, result.manifest)
    status, policy = expected.status, expected.policy
    if policy:
        progress.notice("the modules are written again: they differ from what this program and the site now give")
    if not candidates and not status and not policy:
        return
    # verified through the modulefiles of the draft, as users will load them
    with generation.draft(request, made_by) as draft:
        draft.texts = expected.texts
        draft.write(after(now, candidates))
        visible = {e.module for e in now if e.is_visible}
        outcomes = [_verify(task, draft.modules, request, progress) for task in candidates]
        outcomes = [replace(o, is_visible=o.module in visible) for o in outcomes]
        result.outcomes += outcomes
        new = [o.module for o in outcomes if o.status in USABLE]
        unverified = {o.module for o in outcomes if o.status == "unverified"}
        failed = {o.module for o in outcomes if o.status == "failed" and o.is_visible}
        if not new and not status and not policy and not failed:
            return
        # written a second time, without what failed, on the generation that is current by then
        good = [task for task in candidates if task.module in new]
        reason = _reason(new, status, failed)
        result.manifest = draft.publish(
            lambda base: Step(_failed(after(base.entries, good, unverified), failed), reason), leases.check
        )
        result.generation = result.manifest.number
    result.outcomes = [
        replace(o, status=status.get(o.module, o.status)) if o.status == "unchanged" else o for o in result.outcomes
    ]


def _failed(entries: Iterable[Entry], modules: Collection[str]) -> tuple[Entry, ...]:
    """The entries, marked as failed for these published modules: users keep them, staff see the result."""
    return tuple(replace(e, state="failed") if e.module in modules else e for e in entries)


def _reason(new: Collection[str], status: Mapping[str, str], failed: Collection[str]) -> str:
    """A short reason for the new generation: the most important of its changes."""
    if new:
        return f"deploy {', '.join(new)}"
    if failed:
        return f"failed: {', '.join(sorted(failed))}"
    for word, reason in REASONS.items():
        modules = sorted(module for module, state in status.items() if state == word)
        if modules:
            return f"{reason} {', '.join(modules)}"
    return "policy of the site"


def _verify(task: Task, modules: Path, request: Request, progress: Progress) -> Outcome:
    record = task.record or read_record(task.paths.record)
    expectations = asked(task.variant)
    outcome = verified(record, modules, request, progress, expectations)
    if outcome.status in USABLE and not in_force(record).cover(expectations):
        keep(record, expectations)
    return replace(outcome, stack=task.stack)


def verified(
    record: BuildRecord, modules: Path, request: Request, progress: Progress,
    expectations: Expectations | None = None, *, deep: bool = False,
) -> Outcome:  # fmt: skip
    """Verify a revision through its modules and keep the report beside it; the outcome's status decides on publication.

    Args:
        expectations, deep: as in `verify.verify`.
    """
    progress.phase(record.module, "verify")
    agreed = licences.variables(request, record)
    try:
        report = verify.verify(record, modules, request.site, variables=agreed, progress=progress, deep=deep,
                               expectations=expectations, yards=request.yard.lineage())  # fmt: skip
    except MissingError as error:
        if not (request.allow_unverified and record.payload.image and imageable.cannot_mount()):
            raise
        report = not_mounted(record, error)
    write_report(RevisionPaths.of(record.path), report)
    progress.phase(record.module, report.state, report.tally())
    unverified = "unverified" if request.allow_unverified else "held"
    status = {"passed": "published", "failed": "failed"}.get(report.state, unverified)
    return Outcome(record.module, status, record.path, report, record)


def write_report(paths: RevisionPaths, report: Report) -> None:
    """Keep a verification report beside the revision, as JSON and as JUnit XML."""
    atomic.write_json(paths.report, report.to_json(), checked=True, top=paths.yard)
    atomic.write_text(paths.junit, report.junit(), top=paths.yard)
