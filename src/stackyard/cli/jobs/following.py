"""Follows a run on the terminal, for `submit`, `deploy --on` and `runs attach`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stackyard.cli.output import show_json, show_notice

if TYPE_CHECKING:
    from stackyard.launch.api.runs import RunPaths, RunStatus


def follow_run(paths: RunPaths, *, as_json: bool = False, logs: tuple[Path, ...] = (), stream: str = "first") -> None:
    """`followed`; shows the status as JSON if asked for, and exits with that of the run."""
    status = followed(paths, quiet=as_json, logs=logs, stream=stream)
    if as_json:
        show_json({"run": str(paths.root), **status.__dict__})
    if not status.ended_well:
        raise click.exceptions.Exit(status.code or 1)


def followed(paths: RunPaths, *, quiet: bool, logs: tuple[Path, ...] = (), stream: str = "first") -> RunStatus:
    """Follow a run to its end, show its output and its end unless `quiet`, and return its status.

    Args:
        logs: the files to show; empty: the logs of ranks.
        stream: the ranks, one of `intents.STREAMS`. The first is that of each role.
    """
    from stackyard.cli.jobs.launchview import LaunchView
    from stackyard.launch.api.runs import follow, followed_logs, handle, read_status

    view, ranks = LaunchView(quiet=quiet), {} if logs else followed_logs(paths, stream)
    if len(ranks) > 1:
        view.show_names(dict(enumerate(ranks.values())))
    try:
        status = follow(paths, view, logs=logs or tuple(ranks), late_s=1.0 if logs else 0.0)
    except KeyboardInterrupt:
        show_notice(f"stopped following; the job is {read_status(paths).state}. "
                    f"`stackyard runs attach {handle(paths)}` follows it, "
                    f"`stackyard runs cancel {handle(paths)}` cancels it")  # fmt: skip
        raise click.exceptions.Exit(130) from None
    if not quiet:
        _show_end(paths, status, shown=bool(logs))
    return status


def _show_end(paths: RunPaths, status: RunStatus, *, shown: bool) -> None:
    """Print one line for success; else the failure, with the batch log if the cause is not shown otherwise.

    Args:
        shown: whether the batch log was shown already.
    """
    from stackyard.cli.jobs.launchview import show_done, show_failure

    if status.ended_well:
        show_done(paths.root)
        return
    why = f" ({status.message})" if status.message else ""
    known = bool(status.first) or shown or status.state in ("cancelled", "timeout")
    log = "" if known or not paths.batch_log.exists() else paths.batch_log.read_text(errors="replace")[-3000:]
    first = status.first or {"message": f"job {status.job}: {status.state}{why}"}
    show_failure(status.state, first, 1, log, paths.root)
