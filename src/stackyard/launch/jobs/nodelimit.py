"""Refuses a job with more nodes than its stack may run on (`max_nodes:` of its file), where e.g. a licence ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stackyard.core.errors import InputError
from stackyard.core.findings import counted
from stackyard.core.quoting import plain
from stackyard.launch.jobs.workspace import Workspace
from stackyard.launch.request.intent import Intent
from stackyard.yard.revision.record import BuildRecord


def require_few(workspace: Workspace, intent: Intent, folder: str) -> None:
    """Check the number of nodes of a job; of a range its largest, since the scheduler may allocate that.

    Args:
        folder: the directory of the job's revision; empty: those whose modules are loaded count.

    Raises:
        InputError: the job has more nodes than one of them may run on.
    """
    if intent.nodes == 1:
        return
    for record in _used(workspace, intent, folder):
        count, reason = _limit(record)
        if count and intent.nodes > count:
            why = f": {reason}" if reason else ""
            least = f"{min(intent.least_nodes, count)}:" if intent.least_nodes else ""
            raise InputError(
                f"{record.module} runs on {counted(count, 'node')} at most, {intent.nodes} are requested{why}",
                hint=f"request -N {least}{count}, or fewer" if count > 1 else "request -N 1",
            )


def _limit(record: BuildRecord) -> tuple[int, str]:
    """The largest number of nodes, 0 for any, and the reason."""
    most = record.settings.get("max_nodes")
    count = most.get("count") if isinstance(most, Mapping) else None
    if most is None or not isinstance(count, int):
        return 0, ""
    return count, plain(str(most.get("reason", "")))


def _used(workspace: Workspace, intent: Intent, folder: str) -> Iterator[BuildRecord]:
    """The records of the job's revision, or of the loaded ones, which it finds in its environment."""
    from stackyard.yard import catalogue
    from stackyard.yard.revision import revisions
    from stackyard.yard.revision.directories import RevisionPaths

    folders = [folder] if folder else []
    if not folder and not intent.container:
        folders = [entry.folder for entry in catalogue.loaded(workspace.yard, workspace.environ)]
    for path in folders:
        record = revisions.readable(RevisionPaths.of(path))
        if record is not None:
            yield record
