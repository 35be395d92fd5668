"""The Python API on yards: `deploy`, `lock`, `list`, `show`, `verify`, `extend`, `remove`, by the doors of the rooms.

    result = stackyard.deploy("stack.yaml")
    for row in stackyard.list():
        print(row["module"], row["state"])

``stackyard.deploy`` and so on are these functions; those of jobs are in `launch.api.calls`. `site` and `yard` are as
``--site`` and ``--yard``. Errors are those of `stackyard.core.errors`; what a command prints as a note is a warning of
Python, unless `progress` takes it.
"""

from __future__ import annotations

import builtins
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from stackyard.core.errors import ChecksFailed
from stackyard.core.progress import Progress, SilentProgress
from stackyard.core.secrets import redacted
from stackyard.deploy import api as deploying
from stackyard.inputs.api import Settings, Workspace
from stackyard.launch.api.failures import hints_shown
from stackyard.lock import api as locking
from stackyard.upkeep import api as upkeep
from stackyard.verify import api as verifying
from stackyard.yard import api as yards

if TYPE_CHECKING:
    from stackyard.deploy.api import Result, Revision, Revisions
    from stackyard.lock.api import LockedVariant
    from stackyard.upkeep.api import RemovalOutcome
    from stackyard.verify.api import Report

__all__ = ["deploy", "extend", "list", "lock", "remove", "show", "verify"]

Name = str | os.PathLike[str]
"""The path of a file or a directory."""


class _WarningProgress(SilentProgress):
    """A `Progress` whose notices are warnings of Python."""

    def notice(self, text: str) -> None:
        """Warn, once for each text."""
        if text not in self.notices:
            super().notice(text)
            warnings.warn(text, stacklevel=2)


@hints_shown()
def deploy(
    *files: Name,
    name: str | None = None,
    version: str | None = None,
    variants: Sequence[str] = (),
    python: str | None = None,
    torch_backend: str | None = None,
    locked: bool = False,
    allow_unverified: bool = False,
    image: Literal["prefix", "squashfs"] | None = None,
    rebuild: bool = False,
    mirror: Name | None = None,
    accept: Sequence[str] = (),
    raises: bool = True,
    progress: Progress | None = None,
    site: Name | None = None,
    yard: Name | None = None,
) -> Result:
    """Lock files, build what is missing, verify it through its modules, and publish it, as ``stackyard deploy``.

    Args:
        files: a stack.yaml, environment.yml or requirements.txt each.
        name, version, variants, python, torch_backend, locked, allow_unverified, image, rebuild, mirror: as the options
            of the command.
        accept: names of licences that you accept.
        raises: raise an error where a variant cannot be loaded; else see `Result.ok` and the outcomes.
        progress: is told what happens.

    Raises:
        ChecksFailed: a variant was built and not published.
        StackyardError: a variant was not built, or nothing could be done.
    """
    workspace = _workspace(site, yard)
    request = deploying.deploy_request(
        _paths(files), workspace, name=name, version=version, variants=variants, python=python,
        torch_backend=torch_backend, image=image, mirror=None if mirror is None else os.fspath(mirror),
        only_locked=locked, allow_unverified=allow_unverified,
        rebuild=rebuild, accept=tuple(accept), command=_command("deploy", files),
    )  # fmt: skip
    return _usable(deploying.deploy_stacks(request, progress or _WarningProgress()), raises)


@hints_shown()
def lock(
    *files: Name,
    name: str | None = None,
    version: str | None = None,
    update: bool | Sequence[str] = (),
    locked: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
    site: Name | None = None,
    yard: Name | None = None,
) -> builtins.list[tuple[Path, tuple[LockedVariant, ...]]]:
    """Solve files for every platform of the site and write the lock beside each, as ``stackyard lock``.

    Args:
        update: names of packages that are renewed with what they need; True renews everything.
        locked: only check, and raise an error where a lock is missing or stale.
        dry_run: write nothing.

    Returns:
        By file the path of its lock and the locked variants, one for each version, variant and platform.

    Raises:
        InputError: a file is invalid, or its lock is not fresh and had to be.
        StackyardError: it cannot be solved.
    """
    workspace = _workspace(site, yard)
    stacks = locking.load_stacks(_paths(files), workspace, name, version)
    chosen = locking.Update(update is True, tuple(update) if not isinstance(update, bool) else ())
    progress = progress or _WarningProgress()
    locking.tell_notices(stacks, progress)
    done = deploying.lock_files(
        deploying.Request(workspace.site, workspace.yard, stacks, only_locked=locked, update=chosen),
        progress,
        dry_run=dry_run,
    )
    return [(written or fresh.path, fresh.lock.variants) for fresh, written in done]


@hints_shown()
def show(rev: str, *, site: Name | None = None, yard: Name | None = None) -> Revision:
    """The full description of a revision, as ``stackyard show --json``; a notebook shows it as HTML.

    Raises:
        InputError: no such revision.
        StackyardError: its record cannot be read.
    """
    place = _settings(site, yard).yard(reading=True)
    entry = yards.find_revision(place, rev)
    record = yards.read_record(yards.RevisionPaths.of(entry.folder).record)
    return deploying.Revision(deploying.revision_json(place, entry, record))


@hints_shown()
def verify(
    rev: str | None = None,
    *,
    deep: bool = False,
    progress: Progress | None = None,
    site: Name | None = None,
    yard: Name | None = None,
) -> Mapping[str, Report]:
    """Run the checks of a revision, or of every published one, on this machine, as ``stackyard verify``.

    The results are published where the yard is writable: one that fails is listed as failed until it passes.

    Args:
        deep: read every byte of every file.

    Returns:
        The report of each revision by its module; `Report.state` is ``passed``, ``failed`` or ``unverified``.

    Raises:
        InputError: no such revision, or it is not published.
    """
    workspace = _workspace(site, yard)
    verifying.site_checks(workspace.site)
    entries = upkeep.revisions_to_verify(workspace.yard, rev)
    modules = upkeep.modules_to_verify(workspace.yard, entries)
    done = upkeep.verify_again(workspace, modules, entries, progress or _WarningProgress(), deep=deep)
    upkeep.publish_results(workspace, done, _command("verify", (rev,) if rev else ()))
    return done.reports


@hints_shown()
def extend(
    name: str,
    *,
    base: str | None = None,
    pip: Sequence[str] = (),
    conda: Sequence[str] = (),
    files: Sequence[Name] = (),
    full: bool = False,
    accept: Sequence[str] = (),
    raises: bool = True,
    progress: Progress | None = None,
    site: Name | None = None,
    yard: Name | None = None,
) -> Result:
    """Add packages to an extension of yours, a new one or one that exists, and deploy it, as ``stackyard extend``.

    Args:
        base: the revision to extend; of an extension that exists its present one.
        pip, conda, files: the packages to add.
        full: build a full revision, so that packages of the base may change.
        raises, accept, progress: as `deploy` has them.

    Raises:
        InputError: a requirement is invalid, or no such base.
        StackyardError: it cannot be solved, built or verified; its file stays as it was.
    """
    workspace = _workspace(site, yard)
    request = upkeep.checked_packages(upkeep.ExtensionRequest(tuple(pip), tuple(conda), tuple(_paths(files))))
    name = name if name in upkeep.extension_names(workspace.yard) else upkeep.new_extension_name(name, workspace.yard)
    change = upkeep.extended(workspace.yard, name, base, request, full=full)
    command = _command("extend", (name,))
    done = upkeep.deploy_changed(
        workspace, name, change, progress or _WarningProgress(), accept=accept, command=command
    )
    return _usable(done, raises)


@hints_shown()
def remove(*revs: str, site: Name | None = None, yard: Name | None = None) -> RemovalOutcome:
    """Remove unused revisions, as ``stackyard remove``: their files move to the trash, for some days.

    Raises:
        InputError: no such revision, or it is in another yard.
        StackyardError: one is in use, and kept; the others are removed.
    """
    from stackyard.launch.api.asking import is_over

    workspace = _workspace(site, yard)
    entries = [upkeep.own_revision(workspace.yard, rev) for rev in revs]
    watch = upkeep.watch_yard(workspace, is_over, tidy=True)
    outcome = upkeep.remove_unused(watch, entries, _WarningProgress().notice, command=_command("remove", revs))
    if error := upkeep.kept_error(outcome, revs):
        raise error
    return outcome


def _settings(site: Name | None, yard: Name | None) -> Settings:
    return Settings(Path(yard) if yard else None, Path(site) if site else None)


def _workspace(site: Name | None, yard: Name | None) -> Workspace:
    """The workspace for the named site and yard, or those of the environment."""
    return _settings(site, yard).workspace()


def _paths(files: Sequence[Name]) -> Sequence[Path]:
    return [Path(file) for file in files]


def _command(verb: str, words: Sequence[Name]) -> tuple[str, ...]:
    """A call as a command line without secrets, which manifests have."""
    shown = ", ".join(repr(redacted(os.fspath(word))) for word in words)
    return ("python", "-c", f"import stackyard; stackyard.{verb}({shown})")


def _usable(result: Result, raises: bool) -> Result:
    """The result, if every variant can be loaded or the caller looks at it.

    Raises:
        StackyardError: why the first one that cannot be loaded was not built.
        ChecksFailed: all were built.
    """
    for outcome in result.outcomes if raises else ():
        if outcome.error is not None:
            raise outcome.error
    if raises and not result.ok:
        bad = ", ".join(outcome.module for outcome in result.outcomes if outcome.status in ("failed", "held"))
        raise ChecksFailed(f"not published: {bad}", hint="raises=False returns the result, with the reports")
    return result


@hints_shown()
def list(  # the name of the command; what follows in this module does not use the built-in one
    *, everything: bool = False, site: Name | None = None, yard: Name | None = None
) -> Revisions:
    """The published revisions of the yard and of the site's yard, as ``stackyard list --json``, and HTML in a notebook.

    Args:
        everything: also what was withdrawn, removed or never published, and what is missing.
    """
    return deploying.Revisions(yards.listing(_settings(site, yard).yard(reading=True), everything=everything))
