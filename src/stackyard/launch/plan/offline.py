"""Experiment trackers on nodes without internet: they write into the run directory, and are uploaded later.

W&B: environment variables of docs.wandb.ai; it writes into ``$WANDB_DIR/wandb/offline-run-<time>-<id>``. MLflow: a path
as its tracking URI is a file store, which newer versions use only where it is allowed.
"""

from __future__ import annotations

from collections.abc import Container

from stackyard.launch.plan.model import Reason, Wrapper

_STEP = "${STACKYARD_STEP}"
VARIABLES = {
    "WANDB_MODE": "offline", "WANDB_DIR": _STEP,
    "MLFLOW_TRACKING_URI": f"{_STEP}/mlruns", "MLFLOW_ALLOW_FILE_STORE": "true",
}  # fmt: skip


def wrap(others: Container[str]) -> Wrapper:
    """The variables for every rank, without those of `others`: your shell's, your own, the stack's and the site's."""
    variables = {name: value for name, value in VARIABLES.items() if name not in others}
    reason = "nodes have no internet: trackers write into the run directory"
    return Wrapper((), None, variables, (Reason(tuple(variables), reason),) if variables else ())
