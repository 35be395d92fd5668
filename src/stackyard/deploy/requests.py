"""Deploys and locks, from the names of files to the result: the steps that commands and the Python API share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from stackyard.core.errors import InputError
from stackyard.core.late import dataclass
from stackyard.core.progress import Progress
from stackyard.deploy import memo
from stackyard.deploy.deploy import Request, Result, deploy, lock_all, plan, require
from stackyard.deploy.inputs import as_read, memo_inputs, still_as_read
from stackyard.deploy.locking import FreshLock, write_lock
from stackyard.deploy.plan import Task
from stackyard.deploy.preview import Outlook, outlook
from stackyard.deploy.writing import building, solving
from stackyard.host.files.scratch import scratch
from stackyard.inputs.models import Stack
from stackyard.inputs.sites.settings import scratch_yard
from stackyard.inputs.workspace import Workspace
from stackyard.lock.stackfiles import load_stacks
from stackyard.yard.kinds.table import refusal
from stackyard.yard.layout import Yard


def deploy_request(
    files: Sequence[Path],
    workspace: Workspace,
    *,
    name: str | None = None,
    version: str | None = None,
    variants: Sequence[str] = (),
    python: str | None = None,
    torch_backend: str | None = None,
    image: Literal["prefix", "squashfs"] | None = None,
    mirror: str | None = None,
    **options: Any,
) -> Request:
    """The request for named files.

    Args:
        name, version, variants, python, torch_backend: as in `lock.stackfiles.load_stacks`.
        image: the form of the revisions, which overrides the stacks: ``prefix`` or ``squashfs``.
        mirror: a directory or a URL that replaces the site's mirror.
        options: further fields of `Request`.

    Raises:
        InputError: a file is invalid, or does not allow these options.
    """
    site = workspace.site
    if len(files) > 1 and (name or version):
        raise InputError("--name and --version require exactly one FILE", hint="deploy the files one by one")
    if mirror:
        site = site.model_copy(update={"mirror": mirror if "://" in mirror else str(Path(mirror).absolute())})
    stacks = load_stacks(
        files, Workspace(site, workspace.yard), name, version, variants, python or "", torch_backend or ""
    )
    if image:
        stacks = tuple(_in_form(stack, image) for stack in stacks)
    return Request(site, workspace.yard, stacks, read=as_read(stacks, site), **options)


def _in_form(stack: Stack, form: Literal["prefix", "squashfs"]) -> Stack:
    """The stack, with this form for its revisions."""
    if any(variant.on for variant in stack.variants) and (why := refusal(form, "built", on_base=True)):
        raise InputError(f"{stack.file}: {why}", hint="leave out --image; its base may be an image")
    return stack.in_form(form)


def deploy_stacks(request: Request, progress: Progress, *, remembered: Path | None = None) -> Result:
    """`deploy.deploy` while holding the leases to build these stacks, which it may have to wait for.

    Args:
        remembered: the path of the memo that the request changed nothing (`memo`); None: not written.

    Raises:
        StackyardError: as for `deploy`; the yard cannot be written to, or another process builds for too long.
    """
    with building(request, [stack.name for stack in request.stacks], progress.notice) as leases:
        result = deploy(request, progress, leases)
        if remembered:
            _remember(remembered, request, result)
    return result


def _remember(path: Path, request: Request, result: Result) -> None:
    """Write the memo that this deploy would do nothing now, unless an input file has changed since."""
    files = memo_inputs(request) if result.is_final else None
    now = memo.digests(files or ())
    if files is not None and still_as_read(request.read, now):
        memo.remember(path, now, [outcome.module for outcome in result.outcomes], result.manifest)


@dataclass(frozen=True)
class Preview:
    """The preview of a deploy: the new locks, the task of each variant, and the changes that users would see."""

    locks: tuple[FreshLock, ...]
    tasks: tuple[Task, ...]
    outlook: Outlook


def preview_deploy(request: Request, progress: Progress) -> Preview:
    """The preview of a deploy. Solutions are kept in a temporary directory.

    Raises:
        StackyardError: as for `deploy`, before anything is built.
    """
    require(request)
    with scratch("dry-run") as directory, solving(request, lambda: directory, dry_run=True) as apart:
        locks = lock_all(replace(request, yard=apart), progress)
        tasks = plan(request, locks)
        return Preview(tuple(locks), tuple(tasks), outlook(request, tasks))


def lock_files(request: Request, progress: Progress, *, dry_run: bool = False) -> list[tuple[FreshLock, Path | None]]:
    """The fresh locks of all stacks, each with the path it was written to; None if it was fresh, and in a dry run.

    An account that cannot write to the yard keeps the result of the solve in a yard of its own. With `only_locked`,
    nothing is solved.

    Raises:
        InputError, StackyardError: as for `lock_all`.
    """
    if request.only_locked:
        return _locked(request, request.yard, progress, dry_run)
    with solving(request, scratch_yard, dry_run=dry_run) as yard:
        return _locked(request, yard, progress, dry_run)


def _locked(request: Request, yard: Yard, progress: Progress, dry_run: bool) -> list[tuple[FreshLock, Path | None]]:
    locks = lock_all(replace(request, yard=yard), progress)
    return [(locked, None if dry_run else write_lock(locked, yard, progress)) for locked in locks]
