"""Lists recorded runs, finds them by name, and compares them."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from stackyard.core.errors import InputError
from stackyard.launch.records import arrays, naming
from stackyard.launch.records.paths import RunPaths
from stackyard.launch.records.profiled import profiled
from stackyard.launch.records.record import RunRecord, RunStatus, index_file, read_run, read_status


def known_runs(directory: Path, *, everywhere: bool = False) -> list[RunPaths]:
    """The readable runs below a directory, oldest first; with `everywhere` the existing ones of your index."""
    if everywhere:
        return _existing(_indexed())
    records = [path for path in directory.glob("*/record.json") if os.access(path, os.R_OK)]
    return sorted((RunPaths(path.parent.absolute()) for path in records), key=naming.order)


def _existing(roots: Iterable[Path]) -> list[RunPaths]:
    return [RunPaths(root) for root in roots if (root / "record.json").exists()]


def _indexed(name: str = "") -> list[Path]:
    """The directories in your index without duplicates, including deleted ones; for one `name`, or all."""
    places: dict[Path, None] = {}
    with suppress(OSError):
        for line in index_file().read_text(encoding="utf-8").splitlines():
            with suppress(ValueError, KeyError, TypeError):
                places[Path(json.loads(line)["run"])] = None
    return [root for root in places if not name or root.name == name]


def find_run(name: str, directory: Path) -> RunPaths:
    """The run of a name: a directory, a name, the end of a name, or ``last``; with ``.3`` task 3 of an array.

    A complete name is unique; for the end of a name, runs in `directory` come first.

    Raises:
        InputError: no run has this name, or more than one.
    """
    if (Path(name) / "record.json").exists():
        return RunPaths(Path(name).absolute())
    whole, dot, index = name.rpartition(".")
    if dot and index.isdigit():
        return _find_task(whole, index, directory)
    if name == "last":
        return _last(directory)
    here = known_runs(directory)
    fitting = _distinct([*(run for run in here if run.name == name), *_existing(_indexed(name))])
    for everywhere in (False, True):
        runs = known_runs(directory, everywhere=everywhere) if not fitting else []
        fitting = fitting or _distinct(run for run in runs if naming.fits(run, name))
    if not fitting:
        hint = "`stackyard runs` lists the runs of this directory, --all every run"
        raise InputError(f"no such run: {name}", hint=hint)
    if len(fitting) > 1:
        places = ", ".join(str(run.root) for run in fitting)
        raise InputError(f"several runs match {name}: {places}", hint="give the run directory")
    return fitting[0]


def handle(paths: RunPaths) -> str:
    """The shortest argument that identifies a run from any directory: its name, or if needed its directory.

    The directory is needed if the index lacks the run (your home was not writable) or has two runs of that name.
    """
    whole = paths.array or paths
    known = _distinct(_existing(_indexed(whole.name)))
    only = len(known) == 1 and known[0].root.resolve() == whole.root.resolve()
    return paths.name if only else shlex.quote(str(paths.root))


def _distinct(runs: Iterable[RunPaths]) -> list[RunPaths]:
    """The runs without duplicates, however their directories are written."""
    return list({run.root.resolve(): run for run in runs}.values())


def _find_task(whole: str, index: str, directory: Path) -> RunPaths:
    run = find_run(whole, directory)
    task = arrays.task_paths(run, index)
    if not task.record.exists():
        hint = f"`stackyard runs show {handle(run)}` lists tasks"
        raise InputError(f"task {index} of {whole} has not started", hint=hint)
    return task


def _last(directory: Path) -> RunPaths:
    runs = known_runs(directory)
    if not runs:
        raise InputError(f"no runs in {directory}", hint="`stackyard runs --all` lists those of other directories")
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
    """A row of the list of runs, as plain values."""
    intent = record.intent
    return {
        "profiled": list(profiled(paths, record)),
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
        "program": " : ".join(" ".join(words) for words in record.programs),
        "message": (status.first or {}).get("message", "") or status.message,
        "tasks": status.tasks,
    }
