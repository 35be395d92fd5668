"""Recorded runs: listed, found by name, compared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from stackyard.errors import InputError
from stackyard.launch.records import arrays
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.record import RunRecord, RunStatus, index_file, read_run, read_status


def known_runs(folder: Path, *, everywhere: bool = False) -> list[RunPaths]:
    """The runs below a directory, oldest first; with `everywhere` all of your index that still exist."""
    if not everywhere:
        return [RunPaths(p.parent.absolute()) for p in sorted(folder.glob("*/record.json"))]
    seen: dict[str, RunPaths] = {}
    with suppress(OSError):
        for line in index_file().read_text(encoding="utf-8").splitlines():
            with suppress(ValueError, KeyError):
                root = Path(json.loads(line)["run"])
                if (root / "record.json").exists():
                    seen[str(root)] = RunPaths(root)
    return list(seen.values())


def find_run(name: str, folder: Path) -> RunPaths:
    """The run called `name`: a directory, a name below `folder`, the end of a name, or ``last``; a name followed by
    ``.3`` is task 3 of an array.

    Raises:
        InputError: no run has this name, or more than one.
    """
    if (Path(name) / "record.json").exists():
        return RunPaths(Path(name).absolute())
    whole, dot, index = name.rpartition(".")
    if dot and index.isdigit():
        return _find_task(whole, index, folder)
    if name == "last":
        return _last(folder)
    for candidates in (known_runs(folder), known_runs(folder, everywhere=True)):
        fitting = [r for r in candidates if r.name == name] or [r for r in candidates if r.name.endswith(name)]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            places = ", ".join(str(r.root) for r in fitting)
            raise InputError(f"several runs match {name}: {places}", hint="give the run directory")
    raise InputError(f"no such run: {name}", hint="`stackyard runs` lists the runs of this directory, --all every run")


def _find_task(whole: str, index: str, folder: Path) -> RunPaths:
    task = arrays.task_paths(find_run(whole, folder), index)
    if not task.record.exists():
        raise InputError(f"task {index} of {whole} has not started", hint=f"`stackyard runs show {whole}` lists tasks")
    return task


def _last(folder: Path) -> RunPaths:
    runs = known_runs(folder)
    if not runs:
        raise InputError(f"no runs in {folder}", hint="`stackyard runs --all` lists those of other directories")
    return runs[-1]


def compare(a: RunPaths, b: RunPaths) -> list[tuple[str, str, str]]:
    """The differences between two runs, from the request to the end: (what, in a, in b)."""
    left, right = _facts(a), _facts(b)
    names = list(dict.fromkeys([*left, *right]))
    return [(n, left.get(n, ""), right.get(n, "")) for n in names if left.get(n, "") != right.get(n, "")]


def _facts(paths: RunPaths) -> dict[str, str]:
    record, status = read_run(paths), read_status(paths)
    facts: dict[str, str] = {}
    _flatten(
        {
            "intent": record.intent,
            "stack": record.stack,
            "site": record.site,
            "code": record.code,
            "versions": record.versions,
            "command line": str(record.plan.get("command", "")).replace(str(paths.root), "{run}"),
            "environment": record.environment,
            "state": status.state,
            "exit code": status.code,
            "hosts": " ".join(status.hosts),
            "seconds": status.seconds,
            "first failure": status.first.get("message", "") if status.first else "",
        },
        "",
        facts,
    )
    return facts


def _flatten(value: Any, name: str, into: dict[str, str]) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            _flatten(item, f"{name}.{key}" if name else str(key), into)
    elif isinstance(value, float):
        into[name] = f"{value:.3g}"
    elif isinstance(value, (list, tuple)):
        into[name] = json.dumps(value, ensure_ascii=False)
    elif value not in (None, ""):
        into[name] = str(value)


def row(paths: RunPaths, record: RunRecord, status: RunStatus) -> dict[str, Any]:
    """A run in the list of runs, as plain values."""
    intent = record.intent
    return {
        "run": paths.name,
        "folder": str(paths.root),
        "how": record.how,
        "state": status.state,
        "code": status.code,
        "phase": status.phase,
        "job": status.job,
        "nodes": intent.get("nodes", 1),
        "created": record.created,
        "seconds": status.seconds.get("total", 0),
        "program": " ".join(intent.get("program", ())),
        "message": (status.first or {}).get("message", "") or status.message,
        "tasks": status.tasks,
    }
