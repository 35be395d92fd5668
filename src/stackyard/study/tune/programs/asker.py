"""Asks Optuna's TPE sampler, in the Python that has Optuna: a line of JSON on standard input, one on standard output.

The sampler is made anew for each trial, with that trial's seed, and knows what is told here: so it answers the same to
the same journal, however often the search was stopped meanwhile. One sampler that goes on would not. Standard library
and Optuna (3 and newer) only.
"""

import json
import sys
import warnings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

STARTUP = 10
"""Trials that are drawn at random before the sampler begins."""


def distributions(space: "dict[str, Any]") -> "dict[str, BaseDistribution]":
    """Optuna's distributions of a space."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    found = {}  # type: dict[str, BaseDistribution]
    for name, one in space.items():
        if one["kind"] == "choice":
            found[name] = CategoricalDistribution(one["values"])
        elif one["kind"] == "int":
            found[name] = IntDistribution(*one["values"])
        else:
            found[name] = FloatDistribution(*one["values"], log=one["kind"] == "loguniform")
    return found


def frozen(one: "dict[str, Any]", space: "dict[str, BaseDistribution]") -> "FrozenTrial":
    """A trial as Optuna has it: complete, pruned at a rung, or failed."""
    from optuna.trial import TrialState, create_trial

    state = TrialState[one["state"]]
    steps = {int(step): value for step, value in one.get("reports", {}).items()}
    if state == TrialState.PRUNED and one["value"] is not None:
        steps = steps or {int(one["resource"]): one["value"]}
    value = one["value"] if state == TrialState.COMPLETE else None
    attributes = {"trial": one["trial"], **one.get("attributes", {})}
    return create_trial(params=one["params"], distributions=space, value=value, state=state,
                        intermediate_values=steps, user_attrs=attributes)  # fmt: skip


def fresh(better: "str", name: str = "search", storage: "Any" = None) -> "Any":
    """An empty study, in memory where no storage is named."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    direction = "minimize" if better == "lower" else "maximize"
    return optuna.create_study(direction=direction, study_name=name, storage=storage)


def filled(whole: "dict[str, Any]", storage: "Any" = None) -> "Any":
    """A study with all trials of a search."""
    space, study = distributions(whole["space"]), fresh(whole["better"], whole["name"], storage)
    study.add_trials([frozen(one, space) for one in whole["trials"]])
    return study


def export(file: "str") -> None:
    """Write the search on standard input as a file of Optuna's journal storage (4 and newer)."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    filled(json.load(sys.stdin), JournalStorage(JournalFileBackend(file)))


def main() -> None:
    """Answer until the input ends."""
    import optuna

    if sys.argv[1:2] == ["export"]:
        export(sys.argv[2])
        return
    head = json.loads(sys.stdin.readline())
    space, study = distributions(head["space"]), fresh(head["better"])
    print(json.dumps({"optuna": optuna.__version__}), flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        if question["anew"]:
            study = fresh(head["better"])
        study.add_trials([frozen(one, space) for one in question["trials"]])
        study.sampler = optuna.samplers.TPESampler(seed=question["seed"], n_startup_trials=STARTUP)
        trial = study.ask(space)
        # a trial that is asked for is left out of what the next one knows: its result comes with the journal
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        print(json.dumps(trial.params), flush=True)


if __name__ == "__main__":
    main()
