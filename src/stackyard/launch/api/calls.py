"""The Python API: `launch`, `submit`, `runs`, `find_run`. ``stackyard.launch`` and so on are these functions.

    run = stackyard.launch("train.py", "--lr", 0.1, ranks_per_node=2)
    job = stackyard.submit("train.py", nodes=4, time_min=60)
    job.wait()

Keyword arguments are the keys of a job file, those of ``batch:`` included (`options.OptionFields`).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from stackyard.core.progress import Listener
from stackyard.inputs.sites.settings import Settings
from stackyard.launch.api import jobs
from stackyard.launch.api.failures import hints_shown
from stackyard.launch.api.handles import Run
from stackyard.launch.api.options import OptionFields, Path, Word, as_call, intent_of
from stackyard.launch.jobs.here import LocalLaunch
from stackyard.launch.jobs.recording import Run as Recorded
from stackyard.launch.records.find import find_run as find_paths
from stackyard.launch.records.find import known_runs
from stackyard.launch.records.follow import follow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Unpack

__all__ = ["find_run", "launch", "recorded_here", "runs", "submit", "warn", "workspace_of"]


@hints_shown()
def launch(
    *program: Word,
    show: Callable[[str], object] | None = None,
    raises: bool = True,
    site: Path | None = None,
    yard: Path | None = None,
    **options: Unpack[OptionFields],
) -> Run:
    """Start a program on every rank, on this machine or on the nodes of this allocation, and wait for its end.

    The ranks end when this process ends; KeyboardInterrupt terminates them and is raised again.

    Args:
        program: the command of every rank; a ``*.py`` file is run by python.
        show: is called with the output of the first rank, e.g. ``sys.stdout.write``.
        raises: raise `RunFailed` if the run fails.
        site, yard: as ``--site`` and ``--yard``.
        options: the keys of a job file.

    Raises:
        RunFailed: the run did not succeed.
        InputError, MissingError: the job cannot be planned; nothing is written then.
    """
    place = workspace_of(site, yard)
    nodes = jobs.default_nodes(place, launcher=options.get("launcher", ""), spare=options.get("spare", 0))
    intent = intent_of(program, options, nodes=nodes)
    recorded = jobs.record_launch(jobs.launch_job(_from(place, "launch", intent), intent))
    warn(recorded)
    with recorded_here(recorded) as here:
        status = follow(recorded.paths, _FirstRankOutput(show))
        here.wait()
    run = Run(recorded.paths.root)
    run.ended(status, raises=raises)
    return run


@hints_shown()
def submit(*program: Word, site: Path | None = None, yard: Path | None = None, **options: Unpack[OptionFields]) -> Run:
    """Submit a program as a batch job, and return at once; `Run.wait` waits for its end.

    Args:
        program: the command of every rank; a ``*.py`` file is run by python.
        site, yard: as ``--site`` and ``--yard``.
        options: the keys of a job file.

    Raises:
        InputError, MissingError: the job cannot be planned; nothing is written then.
        CommandError: the scheduler rejected it.
    """
    intent = intent_of(program, options)
    recorded = jobs.record_submission(jobs.batch_job(_from(workspace_of(site, yard), "submit", intent), intent))
    warn(recorded)
    jobs.submit(recorded)
    return Run(recorded.paths.root)


@hints_shown()
def runs(directory: Path | None = None, *, everywhere: bool = False, site: Path | None = None) -> list[Run]:
    """The recorded runs of a directory, oldest first.

    Args:
        directory: the one that has the run directories; None: ``runs`` of the current one, or what the site names.
        everywhere: all of yours that still exist.
    """
    place = workspace_of(site, None).runs if directory is None else FilePath(directory).absolute()
    return [Run(paths.root) for paths in known_runs(place, everywhere=everywhere)]


@hints_shown()
def find_run(name: str, *, site: Path | None = None) -> Run:
    """The run of a name, the end of a name, a directory, or ``last``; ``NAME.3`` is task 3 of an array.

    Raises:
        InputError: no run has this name, or more than one.
    """
    return Run(find_paths(name, workspace_of(site, None).runs).root)


def workspace_of(site: Path | None, yard: Path | None) -> jobs.Workspace:
    """The workspace for jobs: the named site and yard, or those of the environment."""
    settings = Settings(FilePath(yard) if yard else None, FilePath(site) if site else None)
    chosen_site, file = settings.site(), settings.site_file()
    return jobs.Workspace(
        chosen_site, settings.yard(), file, FilePath.cwd() / chosen_site.launch.runs,
        dict(os.environ), ("python",),
    )  # fmt: skip


@contextmanager
def recorded_here(recorded: Recorded) -> Iterator[LocalLaunch]:
    """Start a recorded launch for a ``with`` block; an exception, KeyboardInterrupt too, terminates its ranks."""
    here = LocalLaunch(recorded)
    try:
        yield here
    except BaseException:
        here.interrupt()
        here.wait()
        raise


def warn(recorded: Recorded, *, stacklevel: int = 3) -> None:
    """Emit the warnings of a plan as Python warnings."""
    for finding in recorded.plan.findings if recorded.plan else ():
        if finding.severity == "warning":
            better = f"; {finding.remedy}" if finding.remedy else ""
            warnings.warn(f"{finding.message}{better}", stacklevel=stacklevel)


def _from(place: jobs.Workspace, how: str, intent: jobs.Intent) -> jobs.Workspace:
    """The workspace, with this call as its command line."""
    return replace(place, argv=as_call(how, intent))


class _FirstRankOutput(Listener):
    """A `Listener` that passes on the output of the first rank."""

    def __init__(self, show: Callable[[str], object] | None) -> None:
        self._show = show

    def output(self, task: int, text: str) -> None:
        """Pass the output on."""
        if self._show:
            self._show(text)
