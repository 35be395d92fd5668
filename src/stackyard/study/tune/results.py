"""What a search has found, for a report: read from its directory, which may be another account's."""

from __future__ import annotations

import shlex
from pathlib import Path

from stackyard.core.late import dataclass
from stackyard.study.command import launch_words
from stackyard.study.tune.importance import importances
from stackyard.study.tune.journal import read_journal
from stackyard.study.tune.progress import SearchProgress, TrialProgress, order
from stackyard.study.tune.request import SearchRequest, load_space, words_of
from stackyard.study.tune.sampling import require_parameters
from stackyard.study.tune.store import SearchAbout, SearchPaths, read_about


@dataclass(frozen=True)
class SearchResults:
    """A search as far as it is.

    Attributes:
        trials: all, the best first, those without a value last.
        importance: the share of each parameter in the differences between trials.
        typed: the command that runs the best trial's parameters.
    """

    name: str
    request: SearchRequest
    about: SearchAbout
    trials: tuple[TrialProgress, ...]
    importance: dict[str, float]
    typed: str
    seconds: float

    is_undecided = False

    @property
    def is_met(self) -> bool:
        """Whether all trials have a result, and one of them a value."""
        return bool(self.ended) and self.best is not None

    @property
    def ended(self) -> list[TrialProgress]:
        """The trials with a result."""
        return [trial for trial in self.trials if trial.results]

    @property
    def best(self) -> TrialProgress | None:
        """The best trial."""
        return next((trial for trial in self.trials if trial.value is not None and not trial.is_bad), None)

    @property
    def curves(self) -> list[TrialProgress]:
        """The trials that reported more than once."""
        return [trial for trial in self.trials if len(trial.reports) > 1]


def search_results(root: Path) -> SearchResults:
    """The results of a search so far.

    Raises:
        InputError: the directory is not a search, or a file of it is damaged.
    """
    paths = SearchPaths(root.absolute())
    about, request = read_about(paths), load_space(paths.request)
    progress = SearchProgress(read_journal(paths.journal).events)
    require_parameters(request, progress.asked)
    ranked = sorted(progress.trials.values(), key=lambda one: _rank(request, one))
    best = progress.best(request.better)
    if best is not None:
        ranked.remove(best)
        ranked.insert(0, best)
    # at the first rung, which all trials have reached
    values = [
        (trial.params, first.value) for trial in ranked if (first := trial.results.get(0)) and first.value is not None
    ]
    typed = best_command(request, best) if best and request.engine != "ray" else ""
    seconds = sum(trial.seconds for trial in ranked)
    name = paths.root.resolve().name
    return SearchResults(name, request, about, tuple(ranked), importances(request, values), typed, seconds)


def _rank(request: SearchRequest, trial: TrialProgress) -> tuple[bool, int, tuple[bool, float, int]]:
    is_bad = trial.is_bad or trial.value is None
    return is_bad, -max(trial.results, default=-1), order(request.better, trial.value, trial.number)


def best_command(request: SearchRequest, best: TrialProgress) -> str:
    """The ``stackyard launch`` that runs a trial's parameters as a job of its own."""
    own = {"budget": str(request.budgets[-1]), "checkpoint": "checkpoint", "directory": ".", "trial": str(best.number)}
    words = tuple(words_of(request, best.params, own))
    changes: dict[str, object] = {"program": words, "nodes": request.trial.nodes, "cwd": ""}
    changes["ranks_per_node"] = request.trial.ranks if request.trial.ranks > 1 or request.trial.nodes > 1 else 1
    if request.trial.cores:
        changes["cores_per_rank"] = max(1, request.trial.cores // request.trial.ranks)
    if request.trial.gpus is not None:
        changes["gpus_per_rank"] = request.trial.gpus // request.trial.ranks
    if request.pass_as == "variables":
        values = {name: str(value) for name, value in best.params.items()}
        changes["variables"] = {**request.job.variables, **values}
    return shlex.join(launch_words(request.job.model_copy(update=changes)))
