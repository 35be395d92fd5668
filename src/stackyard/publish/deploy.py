"""From files to a published generation: lock, build what is missing, verify through the new modules, flip one link.

Whatever happens on the way, the current generation stays as it is until the last step, and the next deploy finishes the
work: finished builds are found by the hash of their inputs, unfinished ones are removed.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from stackyard.build import builder
from stackyard.errors import InputError, StackyardError
from stackyard.expose.root import check_root, make_root
from stackyard.host.probe import machine
from stackyard.lock import solve
from stackyard.progress import Progress
from stackyard.publish import generation, licences
from stackyard.publish.entries import entries_after, present, relabelled
from stackyard.publish.labels import without_labels
from stackyard.publish.locking import Locked, fresh_lock, write_lock
from stackyard.publish.plan import Planner, Task
from stackyard.spec.models import Site, Stack
from stackyard.verify import verify
from stackyard.verify.report import Report
from stackyard.yard import atomic, disk, revisions
from stackyard.yard.audit import unfinished
from stackyard.yard.layout import RevisionPaths, Yard
from stackyard.yard.record import BuildRecord, read_record

USABLE = ("published", "unverified", "unchanged", "updated", "inherited")
"""The outcomes after which users can load the revision."""


@dataclass(frozen=True)
class Request:
    """What to deploy, where and how. `accept` names the licences that are accepted with it."""

    stacks: tuple[Stack, ...]
    site: Site
    yard: Yard
    only_locked: bool = False
    allow_unverified: bool = False
    accept: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """The result for one variant.

    `status`: published, unverified (published unverified, as allowed), unchanged, updated (only its labels changed),
    inherited, failed (a check did not pass), held (unverified and not allowed) or broken (the build itself failed;
    `error` says why). `stack` is the one whose variant it is.
    """

    module: str
    status: str
    folder: str
    report: Report | None = None
    record: BuildRecord | None = None
    error: StackyardError | None = None
    stack: Stack | None = None


@dataclass
class Result:
    """All that a deploy did. `generation` is 0 where nothing new was published."""

    outcomes: list[Outcome] = field(default_factory=list)
    generation: int = 0
    locks: list[Path] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether every variant is usable now."""
        return all(o.status in USABLE for o in self.outcomes)

    @property
    def is_final(self) -> bool:
        """Whether the same request would do nothing now, whatever happens in other yards."""
        return all(o.status in USABLE and o.status != "inherited" for o in self.outcomes)


def lock_all(request: Request, progress: Progress) -> list[Locked]:
    """The fresh locks of all stacks, for the site's platforms and this machine's."""
    return [
        fresh_lock(
            stack,
            request.site,
            request.yard,
            stack_platforms(stack, request.site),
            only_locked=request.only_locked,
            progress=progress,
        )
        for stack in request.stacks
    ]


def stack_platforms(stack: Stack, site: Site) -> tuple[str, ...]:
    """The platforms to lock for: the site's, else those of its nodes, else this machine's; a stack may name fewer."""
    platforms = solve.site_platforms(site)
    wanted = {p for variant in stack.variants for p in variant.platforms}
    return tuple(p for p in platforms if not wanted or p in wanted) or tuple(sorted(wanted))


def plan(request: Request, locks: Sequence[Locked]) -> list[Task]:
    """The task for every variant on this machine. Writes nothing."""
    platform = machine().platform
    tasks = [
        task
        for locked in locks
        for task in Planner(locked.stack, locked.lock, request.site, request.yard, platform).tasks()
    ]
    seen: dict[str, Task] = {}
    for task in tasks:
        other = seen.setdefault(task.module, task)
        if other is not task and other.input_hash != task.input_hash:
            raise InputError(
                f"{other.stack.file} and {task.stack.file} both define {task.module}",
                hint="change the name or the version of one of them",
            )
    entries_after(request.yard, request.site, [t for t in tasks if t.action != "inherited"])  # names are unique
    return tasks


def deploy(request: Request, progress: Progress) -> Result:
    """Lock, build, verify and publish. The caller holds the yard's lease (`writing.writing`).

    Raises:
        StackyardError: nothing could be done (bad input, no lock); failures of single variants are in the result.
    """
    check_root(request.yard, request.site)
    result = Result()
    for path in unfinished(request.yard, older_than_s=0):  # we hold the lease: no other process writes there
        disk.remove_tree(path)
    locks = lock_all(request, progress)
    result.locks = [locked.path for locked in locks if write_lock(locked, progress)]
    tasks = plan(request, locks)
    candidates: list[Task] = []
    for task in tasks:
        if task.action in ("unchanged", "inherited"):
            result.outcomes.append(Outcome(task.module, task.action, str(task.paths.root), record=task.record))
            continue
        try:
            candidates.append(_ensure_built(task, request, progress))
        except StackyardError as error:
            progress.phase(task.module, "stopped", "not built")
            result.outcomes.append(Outcome(task.module, "broken", str(task.paths.root), error=error))
    _publish([t for t in tasks if t.action == "unchanged"], candidates, request, progress, result)
    make_root(request.yard, request.site)
    return result


def _ensure_built(task: Task, request: Request, progress: Progress) -> Task:
    """The task with its record. The marker is written here, last: until then the next deploy removes what was built."""
    if task.record is not None:
        task.paths.building.unlink(missing_ok=True)
        return task
    agreed = licences.require(request.yard, task.variant.licences, request.accept)
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
        )
        revisions.mark(record)
    except OSError as error:
        if not task.paths.record.exists():
            shutil.rmtree(task.paths.prefix, ignore_errors=True)
        raise disk.failure(error, f"building {task.module}") from error
    progress.phase(task.module, "built")
    return replace(task, record=record)


def _publish(
    kept: Sequence[Task], candidates: Sequence[Task], request: Request, progress: Progress, result: Result
) -> None:
    """Publish the candidates that pass their checks, and the present labels of the published revisions in `kept`.

    The next generation is written with all candidates. They are verified through it, those that fail are left out, and
    the link flips. Where nothing new is left the generation is discarded.
    """
    labelled = relabelled(present(request.yard), entries_after(request.yard, request.site, kept))
    if not candidates and not labelled:
        return
    with generation.draft(request.yard, request.site) as draft:
        draft.write(entries_after(request.yard, request.site, [*kept, *candidates]))
        outcomes = [_verify(task, draft.modules, request, progress) for task in candidates]
        result.outcomes += outcomes
        new = [o.module for o in outcomes if o.status in USABLE]
        unverified = {o.module for o in outcomes if o.status == "unverified"}
        if not new and not labelled:
            return
        if len(new) < len(candidates) or unverified:
            good = [task for task in candidates if task.module in new]
            draft.write(entries_after(request.yard, request.site, [*kept, *good], unverified))
        reason = f"deploy {', '.join(new)}" if new else f"labels of {', '.join(sorted(labelled))}"
        result.generation = draft.flip(reason).number
    result.outcomes = [replace(o, status="updated") if o.module in labelled else o for o in result.outcomes]


def _verify(task: Task, modules: Path, request: Request, progress: Progress) -> Outcome:
    record = task.record or read_record(task.paths.record)
    progress.phase(task.module, "verify")
    report = verify.verify(record, modules, request.site, progress=progress)
    write_report(task.paths, report)
    progress.phase(task.module, report.state, f"{len(report.checks)} checks")
    status = {"passed": "published", "failed": "failed"}.get(report.state)
    if status is None:
        status = "unverified" if request.allow_unverified else "held"
    return Outcome(task.module, status, str(task.paths.root), report, record, stack=task.stack)


def write_report(paths: RevisionPaths, report: Report) -> None:
    """Keep a verification beside the revision, as JSON and as JUnit XML."""
    atomic.write_json(paths.report, report.to_json())
    atomic.write_text(paths.junit, report.junit())
