"""What the next trial is: drawn at random, a point of the grid, or asked of Optuna.

Each is a function of the seed of the study, the number of the trial and what is known, so that it can be asked again
(`verify`).
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from stackyard.core.errors import MissingError
from stackyard.host.run import command
from stackyard.host.run.dialogue import Dialogue
from stackyard.launch.api import jobs
from stackyard.study.tune.programs import asker
from stackyard.study.tune.progress import SearchProgress, TrialProgress
from stackyard.study.tune.request import SearchRequest
from stackyard.study.tune.sampling import Params, drawn, grid_point, key_of, seed_of, within
from stackyard.study.tune.store import StoredSearch

START_S, ASK_S = 120.0, 60.0
ASKER = Path(asker.__file__)


class Sampler(Protocol):
    """Gives parameters."""

    def ask(self, number: int, progress: SearchProgress) -> Params:
        """The parameters of a trial, by what is known."""

    def close(self) -> None:
        """End what it has started."""


def sampler_of(study: StoredSearch) -> Sampler:
    """The sampler of a search.

    Raises:
        MissingError: Optuna is not there.
        StackyardError: it does not start.
    """
    if study.request.search == "tpe":
        return _Tpe(study)
    return _Drawn(study.request, study.about.seed)


class _Drawn:
    """Random and grid."""

    def __init__(self, request: SearchRequest, seed: int) -> None:
        self._request, self._seed = request, seed

    def ask(self, number: int, progress: SearchProgress) -> Params:
        if self._request.search == "grid":
            return grid_point(self._request, number)
        return drawn(self._request, number, self._seed, map(key_of, progress.asked))

    def close(self) -> None:
        pass


class _Tpe:
    """Optuna's TPE sampler."""

    def __init__(self, study: StoredSearch) -> None:
        self._request, self._seed = study.request, study.about.seed
        argv, environ = optuna_python(study)
        self._asker = Dialogue(argv, environ)
        self._asker.ask({"space": space_json(study.request), "better": study.request.better}, START_S)
        self._told: dict[int, int] = {}

    def ask(self, number: int, progress: SearchProgress) -> Params:
        """Optuna's answer; where a trial before has the same parameters, random ones that none has."""
        known = {one.number: len(one.results) for one in progress.finished}
        anew = any(known.get(trial) != count for trial, count in self._told.items())
        fresh = [one for one in progress.finished if anew or one.number not in self._told]
        self._told = known
        question = {"anew": anew, "seed": seed_of(self._seed, number),
                    "trials": [trial_json(self._request, one) for one in fresh]}  # fmt: skip
        params = within(self._request, self._asker.ask(question, ASK_S))
        taken = set(map(key_of, progress.asked))
        return drawn(self._request, number, self._seed, taken) if key_of(params) in taken else params

    def close(self) -> None:
        self._asker.close()


def optuna_python(study: StoredSearch, module: str = "optuna") -> tuple[list[str], Mapping[str, str]]:
    """The words that start `asker`, and their environment: by this Python if it has Optuna, else by the stack's.

    Raises:
        MissingError: neither has it.
    """
    if importlib.util.find_spec(module):
        return [sys.executable, str(ASKER)], os.environ
    job = jobs.launch_job(study.workspace, study.request.job.model_copy(update={"nodes": 1}))
    environ = job.context.stack.change.apply(study.workspace.environ)
    python = command.which("python", environ) or command.which("python3", environ)
    if python:
        finds = [str(python), "-c", f"import importlib.util as u, sys; sys.exit(not u.find_spec({module!r}))"]
        if command.run(finds, env=environ, timeout_s=START_S, check=False).returncode == 0:
            return [str(python), str(ASKER)], environ
    where = f"{python} and not in {sys.executable}" if python else sys.executable
    raise MissingError(
        f"{module} not found in {where}",
        hint="add the package optuna to your stack, install stackyard[tune], or use --search random",
    )


def space_json(request: SearchRequest) -> dict[str, Any]:
    """The space as `asker` reads it."""
    return {name: {"kind": one.kind, "values": list(one.choice or one.int or one.uniform or one.loguniform or ())}
            for name, one in request.parameters.items()}  # fmt: skip


def trial_json(request: SearchRequest, one: TrialProgress) -> dict[str, Any]:
    """A trial with a result as `asker` reads it: one that was stopped at a rung is pruned there."""
    rung = max(one.results)
    is_whole = rung == len(request.budgets) - 1
    state = "FAIL" if one.is_bad or one.value is None else "COMPLETE" if is_whole else "PRUNED"
    return {"trial": one.number, "params": one.params, "value": one.value, "state": state,
            "resource": request.budgets[rung]}  # fmt: skip
