"""Two lines for a program that `stackyard tune` runs; it works as well without, by printing a line of JSON.

    from stackyard_trial import report
    if report(epoch=epoch, loss=loss): break        # true: stop now, the trial is compared with others, or is pruned

Any Python from 3.6 on, standard library alone.
"""
# ruff: noqa: PTH110

import json
import os


def report(**values):
    # type: (object) -> bool
    """Print the values as one line, which `stackyard tune` reads; returns whether to stop now."""
    if os.environ.get("RANK", "0") == "0":
        print(json.dumps(values), flush=True)
    return should_stop(values.get(os.environ.get("STACKYARD_RESOURCE", "")))


def should_stop(resource=None):
    # type: (object) -> bool
    """Whether the budget is reached, or the search has said so."""
    budget = int(os.environ.get("STACKYARD_BUDGET") or "0")
    if budget and isinstance(resource, (int, float)) and resource >= budget:
        return True
    return os.path.exists(os.environ.get("STACKYARD_STOP", "") or os.devnull + "/none")


def checkpoint():
    # type: () -> str
    """The directory of this trial's checkpoints: the same one whenever and wherever it goes on."""
    return os.environ.get("STACKYARD_CHECKPOINT", ".")
