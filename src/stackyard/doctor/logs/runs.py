"""The logs of a recorded run, and what its record already tells of its failure."""

from __future__ import annotations

from dataclasses import replace

from stackyard.doctor.logs.diagnose import Diagnosis, diagnose
from stackyard.doctor.logs.sources import LogSource
from stackyard.launch.api.causes import rules, shown
from stackyard.launch.api.runs import RunPaths, rank_log, rank_logs, report


def diagnose_run(paths: RunPaths, causes: tuple[str, ...] = ()) -> Diagnosis:
    """The first cause of the failure of a run: with the facts that its launch knew at the end, placed in its logs.

    Args:
        causes: the site's files of causes.

    Raises:
        InputError: a record or a log cannot be read.
    """
    status = report(paths).status
    first = status.first or {}
    task = int(first.get("task", -1))
    files = [rank_log(paths, task)] if task >= 0 else list(rank_logs(paths).values())
    files += [paths.main.launcher_log, paths.batch_log]
    sources = [LogSource(str(file), file, str(task) if task >= 0 else "") for file in files if file.is_file()]
    if status.state == "done":
        return Diagnosis(False, logs=len(sources))
    found = diagnose(sources, code=status.code if status.over else None, causes=causes)
    known = first.get("cause") or {}
    if not known or known.get("rule") == found.rule:
        return found if found.text or not first else replace(found, failed=True, text=_last(first))
    source = next((rule.source for rule in rules() if rule.name == known["rule"]), "")
    return replace(
        found, failed=True, log=found.log or str(files[0]), text=found.text or _last(first), source=source,
        rank=str(task) if task >= 0 else "", rule=known["rule"], cause=known["cause"], hint=known["remedy"],
    )  # fmt: skip


def _last(first: dict[str, object]) -> str:
    """The last line of the rank that failed first, or the message about its end."""
    tail = first.get("tail")
    return shown(str(tail[-1] if isinstance(tail, list | tuple) and tail else first.get("message", "")))
