"""A search as Optuna has it: for its dashboard, from memory, and as a file of its journal storage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stackyard.host.files.scratch import scratch
from stackyard.host.run import command
from stackyard.launch.api.jobs import Workspace
from stackyard.study.tune.journal import read_journal
from stackyard.study.tune.optimizer import START_S, optuna_python, space_json, trial_json
from stackyard.study.tune.progress import SearchProgress
from stackyard.study.tune.request import load_space
from stackyard.study.tune.sampling import require_parameters
from stackyard.study.tune.store import SearchPaths, StoredSearch, read_about
from stackyard.yard.write import atomic


def optuna_study(root: Path) -> dict[str, Any]:
    """The trials with a result, as ``programs/asker.py`` makes a study of them.

    Raises:
        InputError: the directory is not a search, or a file of it is damaged.
    """
    paths = SearchPaths(root.absolute())
    read_about(paths)
    request, progress = load_space(paths.request), SearchProgress(read_journal(paths.journal).events)
    require_parameters(request, progress.asked)
    trials = [
        {**trial_json(request, one), "reports": {str(step): value for step, value in one.reports.items()},
         "attributes": {"seconds": round(one.seconds, 3), "host": one.host, "seed": one.seed}}
        for one in sorted(progress.finished, key=lambda one: one.number)
    ]  # fmt: skip
    return {"name": paths.root.resolve().name, "better": request.better, "space": space_json(request), "trials": trials}


def export_journal(root: Path, workspace: Workspace) -> Path:
    """Write ``optuna.journal`` into a search, for `optuna.storages.JournalStorage`; returns its path.

    Raises:
        InputError: the directory is not a search, or a file of it is damaged.
        MissingError: Optuna is not there.
        StackyardError: it cannot be written.
    """
    paths = SearchPaths(root.absolute())
    study = StoredSearch(paths, load_space(paths.request), read_about(paths), workspace)
    argv, environ = optuna_python(study)
    with scratch("optuna") as directory:
        file = directory / "optuna.journal"
        question = json.dumps(optuna_study(root))
        command.run([*argv, "export", str(file)], env=environ, stdin=question, timeout_s=START_S)
        atomic.write_bytes(paths.root / file.name, file.read_bytes())
    return paths.root / "optuna.journal"
