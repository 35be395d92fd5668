"""The file of an extension is changed and deployed, and stays as it was where that fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stackyard.core.progress import Progress
from stackyard.deploy.deploy import Request, Result, deploy
from stackyard.deploy.requests import Preview, deploy_request, preview_deploy
from stackyard.deploy.writing import building
from stackyard.host.files.scratch import scratch
from stackyard.inputs.workspace import Workspace
from stackyard.lock.renewal import Update
from stackyard.upkeep.extensions.extend_full import full_files
from stackyard.upkeep.extensions.file import Asked, Files, base_of, changed, made, names, on_base, with_more
from stackyard.yard.layout import Yard

Change = Callable[[Files], Files]


class _NotPublished(Exception):
    """What failed is in the result of the deploy; the file goes back to what it was."""


def extended(yard: Yard, name: str, base: str | None, asked: Asked, *, full: bool = False) -> Change:
    """How the files of an extension become those with more packages, of a new one or of one that exists.

    Args:
        base: the revision to extend; None: the one that is loaded, or the present one of an extension that exists.
        full: a full revision, so that packages of the base may change.
    """
    exists = name in names(yard)

    def change(files: Files) -> Files:
        if full:
            return full_files(name, base_of(yard, base or ""), asked, yard)
        if not exists:
            return made(name, base_of(yard, base or ""), asked)
        moved = on_base(files, base_of(yard, base)) if base else files
        return with_more(moved, asked)

    return change


def deploy_changed(workspace: Workspace, name: str, change: Change, progress: Progress, **options: Any) -> Result:
    """Change the files of an extension and deploy it; they go back to what they were where it is not published.

    Args:
        options: as `_request` has them.

    Raises:
        StackyardError: it cannot be solved, or nothing could be done; what failed later is in the result.
    """
    with building(workspace, [name], progress.notice) as held:
        try:
            with changed(workspace.yard.extension(name), change) as file:
                result = deploy(_request(workspace, file, **options), progress, held)
                if not result.ok:
                    raise _NotPublished
        except _NotPublished:
            pass
    return result


def preview_changed(workspace: Workspace, name: str, change: Change, progress: Progress, **options: Any) -> Preview:
    """What `deploy_changed` would do. Writes nothing."""
    with scratch("dry-run") as directory:
        change(Files.read(workspace.yard.extension(name))).write(directory / name)
        return preview_deploy(_request(workspace, directory / name / "stack.yaml", **options), progress)


def _request(
    workspace: Workspace, file: Path, *, accept: Sequence[str] = (), renew: bool = False, command: Sequence[str] = ()
) -> Request:
    """The deploy of an extension.

    Args:
        accept: the names of licences that are accepted with it.
        renew: solve anew what is locked.
        command: the command line, without secrets.
    """
    return deploy_request([file], workspace, accept=tuple(accept), update=Update(renew), command=tuple(command))
