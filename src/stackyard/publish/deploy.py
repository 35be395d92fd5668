"""From files to a published generation: lock, build what is missing, verify through the new modules, flip one link.

Whatever happens on the way, the current generation stays as it is until the last step, and the next deploy finishes the
work: finished builds are found by the hash of their inputs, unfinished ones are removed.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from stackyard.build import builder
from stackyard.build.audit import unfinished
from stackyard.errors import StackyardError
from stackyard.expose.generation import write_modules
from stackyard.host.probe import machine
from stackyard.progress import Progress
from stackyard.publish import licences, names
from stackyard.publish.locking import Locked, fresh_lock, write_lock
from stackyard.publish.plan import Planner, Task
from stackyard.spec.models import Site, Stack
from stackyard.verify import verify
from stackyard.verify.report import Report
from stackyard.yard import atomic, disk, generations, revisions
from stackyard.yard.layout import RevisionPaths, Yard
from stackyard.yard.record import BuildRecord, Entry, read_record


@dataclass(frozen=True)
class Request:
    """What a person asked for. `accept` names licences that he accepts now."""

    stacks: tuple[Stack, ...]
    site: Site
    yard: Yard
    only_locked: bool = False
    allow_unverified: bool = False
    accept: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What became of one variant.

    `status`: published, unverified (published unverified, as allowed), unchanged, inherited, failed (a check did not
    pass), held (unverified and not allowed) or broken (the build itself failed; `error` says why).
    """

    module: str
    status: str
    folder: str
    report: Report | None = None
    record: BuildRecord | None = None
    error: StackyardError | None = None


@dataclass
class Result:
    """Everything a deploy did. `generation` is 0 where nothing new was published."""

    outcomes: list[Outcome] = field(default_factory=list)
    generation: int = 0
    locks: list[Path] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether every variant is usable now."""
        return all(o.status in ("published", "unverified", "unchanged", "inherited") for o in self.outcomes)

    @property
    def is_final(self) -> bool:
        """Whether the same request would do nothing now, whatever happens in other yards."""
        return all(o.status in ("published", "unverified", "unchanged") for o in self.outcomes)


def lock_all(request: Request, progress: Progress) -> list[Locked]:
    """The fresh locks of all stacks, for the site's platforms and this machine's."""
    return [
        fresh_lock(
            stack,
            request.site,
            request.yard,
            platforms_of(stack, request.site),
            only_locked=request.only_locked,
            progress=progress,
        )
        for stack in request.stacks
    ]


def platforms_of(stack: Stack, site: Site) -> tuple[str, ...]:
    """The platforms to lock for: the site's, else those of its nodes, else this machine's; a stack may name fewer."""
    named = site.platforms or tuple(dict.fromkeys(kind.platform for kind in site.nodes.values()))
    platforms: tuple[str, ...] = named or (machine().platform,)
    wanted = {p for variant in stack.variants for p in variant.platforms}
    return tuple(p for p in platforms if not wanted or p in wanted) or tuple(sorted(wanted))


def plan(request: Request, locks: Sequence[Locked]) -> list[Task]:
    """What is to be done for every variant on this machine. Writes nothing."""
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
            raise StackyardError(f"{other.stack.file} and {task.stack.file} both make {task.module}")
    names.check_unique(_entries_after(request, [t for t in tasks if t.action != "inherited"]))
    return tasks


def deploy(request: Request, progress: Progress) -> Result:
    """Lock, build, verify and publish. The caller holds the yard's lease.

    Raises:
        StackyardError: nothing could be done (bad input, no lock); failures of single variants are in the result.
    """
    result = Result()
    for path in unfinished(request.yard, older_than_s=0):  # the lease is ours, so nobody is writing there
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
            result.outcomes.append(Outcome(task.module, "broken", str(task.paths.root), error=error))
    if candidates:
        _publish(candidates, request, progress, result)
    return result


def _ensure_built(task: Task, request: Request, progress: Progress) -> Task:
    if task.record is not None:
        return task
    agreed = licences.require(request.yard, task.variant.licences, request.accept)
    try:
        record = builder.build(
            task.variant,
            task.locked,
            request.site,
            request.yard,
            task.paths,
            task.module,
            task.revision,
            progress,
            licences=agreed,
        )
    except OSError as error:
        with suppress(OSError):
            shutil.rmtree(task.paths.prefix, ignore_errors=True)
        raise _system_error(error, task.module) from error
    return replace(task, record=record)


def _system_error(error: OSError, module: str) -> StackyardError:
    """An error of the file system in words, with what to do; nothing that is published was touched."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StackyardError(
            f"no space left while building {module} ({error.filename or error.strerror})",
            hint="free some space and deploy again: what is published is untouched, finished work is in the cache",
        )
    return StackyardError(f"building {module} failed: {error}", hint="what is published is untouched")


def _publish(candidates: list[Task], request: Request, progress: Progress, result: Result) -> None:
    """Write the next generation with all candidates, verify them through it, drop those that fail, flip."""
    folder = generations.begin(request.yard)
    try:
        records = {record.module: record for record in revisions.built(request.yard)}
        _write(folder, request, candidates, records)
        passed: list[Task] = []
        unverified: set[str] = set()
        for task in candidates:
            outcome = _verify(task, folder / "modules", request, progress)
            result.outcomes.append(outcome)
            if outcome.status in ("published", "unverified"):
                passed.append(task)
            if outcome.status == "unverified":
                unverified.add(task.module)
        if not passed:
            shutil.rmtree(folder)
            return
        if len(passed) < len(candidates) or unverified:
            shutil.rmtree(folder / "modules")
            _write(folder, request, passed, records, unverified)
        entries = _entries_after(request, passed, unverified)
        reason = "deploy " + ", ".join(task.module for task in passed)
        result.generation = generations.flip(request.yard, folder, now(), reason, entries).number
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise _system_error(error, "the modules") from error


def _write(
    folder: Path,
    request: Request,
    tasks: Sequence[Task],
    records: dict[str, BuildRecord],
    unverified: frozenset[str] | set[str] = frozenset(),
) -> None:
    entries = _entries_after(request, tasks, unverified)
    write_modules(folder / "modules", entries, records, request.site, request.yard)


def _verify(task: Task, modules: Path, request: Request, progress: Progress) -> Outcome:
    record = task.record or read_record(task.paths.record)
    progress.phase(task.module, "verify")
    started = time.monotonic()
    report = verify.verify(record, modules, request.site, progress=progress)
    write_report(task.paths, report)
    progress.phase(task.module, report.state, f"{time.monotonic() - started:.1f} s")
    status = {"passed": "published", "failed": "failed"}.get(report.state)
    if status is None:
        status = "unverified" if request.allow_unverified else "held"
    return Outcome(task.module, status, str(task.paths.root), report, record)


def write_report(paths: RevisionPaths, report: Report) -> None:
    """Keep a verification beside the revision, as JSON and as JUnit XML."""
    atomic.write_json(paths.report, report.to_json())
    atomic.write_text(paths.junit, report.junit())


def _entries_after(
    request: Request, tasks: Sequence[Task], unverified: frozenset[str] | set[str] = frozenset()
) -> tuple[Entry, ...]:
    """All entries of the generation that would follow the current one with these revisions in it."""
    manifest = generations.current(request.yard)
    new = {task.module: _entry(task, request, task.module in unverified) for task in tasks}
    kept = [e for e in manifest.entries if e.module not in new and Path(e.folder).exists()] if manifest else []
    return names.claim([*kept, *new.values()])


def _entry(task: Task, request: Request, unverified: bool) -> Entry:
    settings = task.variant.modules
    return Entry(
        stack=task.stack.name,
        version=task.record.version if task.record else task.variant.version,
        variant=task.variant.name,
        revision=task.revision,
        module=task.module,
        folder=str(task.paths.root),
        created=task.record.created if task.record else now(),
        state="unverified" if unverified else "published",
        rank=len(task.stack.variants) if task.stack.default == task.variant.name else task.rank,
        hidden=settings.hidden,
        deprecated=settings.deprecated,
    )


@contextmanager
def umask(site: Site) -> Iterator[None]:
    """Write with the site's umask, so that a yard is as readable as the site wants whoever deploys."""
    before = os.umask(int(site.permissions.umask, 8))
    try:
        yield
    finally:
        os.umask(before)


def now() -> str:
    """The present time as records hold it: UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
