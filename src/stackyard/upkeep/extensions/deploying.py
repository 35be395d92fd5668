"""Changes the file of an extension and deploys it; the file is restored if the deploy fails."""

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
from stackyard.upkeep.extensions.file import ExtensionRequest, Files, base_of, changed, made, names, on_base, with_more
from stackyard.yard.layout import Yard

Change = Callable[[Files], Files]


class _DeployFailure(Exception):
    """The deploy did not publish; its result has the failures, and the file is restored."""


def extended(yard: Yard, name: str, base: str | None, request: ExtensionRequest, *, full: bool = False) -> Change:
    """The change that adds packages to the files of a new or an existing extension.

    Args:
        base: the revision to extend; None: the loaded one, or the present base of an existing extension.
        full: make a full revision, in which packages of the base may change.
    """
    exists = name in names(yard)

    def change(files: Files) -> Files:
        if full:
            return full_files(name, base_of(yard, base or ""), request, yard)
        if not exists:
            return made(name, base_of(yard, base or ""), request)
        moved = on_base(files, base_of(yard, base)) if base else files
        return with_more(moved, request)

    return change


def deploy_changed(workspace: Workspace, name: str, change: Change, progress: Progress, **options: Any) -> Result:
    """Change the files of an extension and deploy it; the files are restored if it is not published.

    Args:
        options: those of `_request`.

    Raises:
        StackyardError: it cannot be solved, or the deploy could not start; later failures are in the result.
    """
    with building(workspace, [name], progress.notice) as leases:
        try:
            with changed(workspace.yard.extension(name), change) as file:
                result = deploy(_request(workspace, file, **options), progress, leases)
                if not result.ok:
                    raise _DeployFailure
        except _DeployFailure:
            pass
    return result


def preview_changed(workspace: Workspace, name: str, change: Change, progress: Progress, **options: Any) -> Preview:
    """The preview of `deploy_changed`. Writes nothing."""
    with scratch("dry-run") as directory:
        change(Files.read(workspace.yard.extension(name))).write(directory / name)
        return preview_deploy(_request(workspace, directory / name / "stack.yaml", **options), progress)


def _request(
    workspace: Workspace, file: Path, *, accept: Sequence[str] = (), renew: bool = False, command: Sequence[str] = ()
) -> Request:
    """The request that deploys an extension.

    Args:
        accept: the names of licences that the command accepts.
        renew: solve locked packages again.
        command: the command line, without secrets.
    """
    return deploy_request([file], workspace, accept=tuple(accept), update=Update(renew), command=tuple(command))
